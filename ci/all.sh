#!/usr/bin/env bash
# Every step in order; the first that fails ends the run. The tests come last, so that their
# summary closes the output.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for step in setup lint docs wheel commands examples pytensor_versions pythons pytensor_tests matrix; do
    printf '\n===== %s (%s) =====\n' "$step" "ci/$step.sh"
    SECONDS=0
    bash "ci/$step.sh" || { printf '\n===== %s failed after %d s =====\n' "$step" "$SECONDS"; exit 1; }
    printf '===== %s passed in %d s =====\n' "$step" "$SECONDS"
done

printf '\n===== test (ci/test.sh) =====\n'
exec bash ci/test.sh
