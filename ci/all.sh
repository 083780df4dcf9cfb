#!/usr/bin/env bash
# Every step. Those after setup run two at a time, each with one thread, and print when they have ended; after one that
# fails no other starts. The tests come last, so that their summary closes the output.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

logs=build/ci/logs   # in a folder that setup.sh makes anew

run_step() {
    local step=$1 status=0 log=$logs/$1.log
    SECONDS=0
    mkdir -p "$logs"
    bash "ci/$step.sh" >"$log" 2>&1 || status=$?
    printf '\n===== %s (%s) =====\n%s\n===== %s %s in %d s =====\n' "$step" "ci/$step.sh" "$(cat "$log")" \
        "$step" "$([ "$status" = 0 ] && echo passed || echo "failed with status $status")" "$SECONDS"
    [ "$status" = 0 ] || exit 255   # which ends xargs
}
export -f run_step
export logs

printf '\n===== setup (ci/setup.sh) =====\n'
bash ci/setup.sh
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1
# Lint is short and fails most often; then the longest ones first.
printf '%s\n' lint docs commands examples wheel pytensor_versions pythons pytensor_tests |
    xargs -P 2 -I{} bash -c 'set -euo pipefail; run_step {}' || { printf '\n===== a step failed =====\n'; exit 1; }
unset OMP_NUM_THREADS OPENBLAS_NUM_THREADS NUMBA_NUM_THREADS
run_step matrix   # after the others, since it installs drivers

printf '\n===== test (ci/test.sh) =====\n'
exec bash ci/test.sh
