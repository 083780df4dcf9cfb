#!/usr/bin/env bash
# A fresh virtual environment with the project, its tools and Intel's OpenCL driver.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

is_wanted() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' >/dev/null 2>&1; }

find_python() {
    local candidate
    # Names first (a pyenv shim reads .python-version), then the interpreters that pyenv holds.
    for candidate in "${PYTHON:-}" python3.12 python python3 \
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.12*/bin/python; do
        if [ -n "$candidate" ] && is_wanted "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    printf 'CI needs Python %s: install it, or set PYTHON to its path.\n' "$(cat .python-version)" >&2
    return 1
}

write_icd() {
    # The .icd files of Intel's wheel name paths of the machine that built it.
    local library=$venv/lib/libintelocl.so
    [ -f "$library" ] || { printf 'no %s\n' "$library" >&2; return 1; }
    mkdir -p "$icd"
    printf '%s\n' "$library" >"$icd/intel.icd"
}

rm -rf "$work"
mkdir -p "$work"
python=$(find_python)
"$python" --version
"$python" -m venv "$venv"
"$venv/bin/python" -m pip install -qq --upgrade pip
"$venv/bin/python" -m pip install -qq -c ci/constraints.txt '.[test,dev,docs,examples,pymc,intel]'
write_icd
"$venv/bin/python" -m pytensor_cl devices
