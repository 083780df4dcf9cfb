#!/usr/bin/env bash
# The array API standard's own test suite, version 2024.12 of the standard, on each OpenCL driver. By hand, because a
# driver without stored kernels compiles for minutes: 'MAX_EXAMPLES=200 ci/array_api.sh pocl'. The suite's checkout is
# $ARRAY_API_TESTS, with its submodule; else git clones it. Arguments are drivers: pocl and intel if there are none.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

revision=55fcc60
suite=${ARRAY_API_TESTS:-$work/array-api-tests}
mkdir -p "$work"
if [ ! -d "$suite" ]; then
    git clone -q https://github.com/data-apis/array-api-tests "$suite" \
        && git -C "$suite" checkout -q "$revision" && git -C "$suite" submodule update -q --init \
        || { rm -rf "$suite"; printf 'skipped: no checkout of the test suite, and git cannot clone it\n'; exit 0; }
fi
[ -d "$suite/array-api/src" ] || { printf '%s has no submodule array-api\n' "$suite" >&2; exit 1; }

export ARRAY_API_TESTS_MODULE=pytensor_cl.array ARRAY_API_TESTS_VERSION=2024.12 ARRAY_API_TESTS_MAX_ARRAY_SIZE=64
export ARRAY_API_XFAILS=$checkout/tests/array/array_api_xfails.txt
drivers=("$@")
[ $# -gt 0 ] || drivers=(pocl intel)
failed=()
for driver in "${drivers[@]}"; do
    printf -- '--- %s\n' "$driver"
    SECONDS=0
    (
        cd "$suite"
        export PYTENSOR_FLAGS=device=opencl:$driver,floatX=float64 PYTHONPATH=$checkout/ci:$checkout:$suite
        python -m pytest -q -n 0 -p array_api_plugin -p no:cacheprovider --tb=short --disable-deadline \
            --hypothesis-seed 0 --max-examples "${MAX_EXAMPLES:-10}" array_api_tests
    ) || failed+=("$driver")
    printf -- '--- %s: %d s\n' "$driver" "$SECONDS"
done
[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[*]}"; exit 1; }
