#!/usr/bin/env bash
# A share of the tests on every driver that can be installed (tools/driver_matrix.py). PYTENSOR_CL_MATRIX: quick, all, off.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

packages=(mesa-opencl-icd pocl-opencl-icd oclgrind)

is_installed() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'install ok installed'; }

install_packages() {
    # For CI alone: a developer's machine keeps what it has.
    local missing=() package
    command -v apt-get >/dev/null || { echo 'skipped: no apt-get, so no drivers of Debian'; return; }
    for package in "${packages[@]}"; do
        is_installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    [ "$(id -u)" = 0 ] || { printf 'skipped: not root, so not installed: %s\n' "${missing[*]}"; return; }
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$work/apt.log" 2>&1 ||
        printf 'skipped: apt-get failed (%s), so not installed: %s\n' "$work/apt.log" "${missing[*]}"
}

mkdir -p "$work"
if [ "${PYTENSOR_CL_MATRIX:-quick}" != off ] && [ "${CI:-}" = true ]; then
    install_packages
fi
"${PYTHON:-python}" tools/driver_matrix.py --logs "$work/matrix" "$@"
