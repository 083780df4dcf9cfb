#!/usr/bin/env bash
# The Python versions that pyproject.toml names besides the one that the other steps use: a fresh environment, and a part of
# the tests. A version of which no interpreter is found is skipped, and that is said.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

chosen=(tests/runtime/test_array.py tests/runtime/pocl/test_batch.py tests/linker/test_linker.py tests/linker/run/test_graph_cache.py
    tests/linker/test_interrupts.py tests/rewriting tests/routines/reduction/test_reduction.py tests/test_autoload.py tests/test_packaging.py)

find_python() {
    local candidate
    # Names first (a pyenv shim reads .python-version), then the interpreters that pyenv holds.
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
        if "$candidate" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" >/dev/null 2>&1; then
            printf '%s\n' "$candidate"
            return
        fi
    done
}

used=$(python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
export PYTENSOR_CL_TEST_DRIVERS=pocl
for version in $(sed -n 's/.*Programming Language :: Python :: \(3\.[0-9]*\)".*/\1/p' pyproject.toml); do
    [ "$version" != "$used" ] || continue
    interpreter=$(find_python "$version")
    if [ -z "$interpreter" ]; then
        printf 'SKIPPED: Python %s: no interpreter is there\n' "$version"
        continue
    fi
    printf -- '--- Python %s (%s)\n' "$version" "$interpreter"
    fresh=$work/python-$version
    "$interpreter" -m venv "$fresh"
    "$fresh/bin/python" -m pip install -qq -c ci/constraints.txt '.[test]'
    "$fresh/bin/python" -m pytest -q "${chosen[@]}"
    rm -rf "$fresh"
done
