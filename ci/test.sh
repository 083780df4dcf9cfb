#!/usr/bin/env bash
# The tests. Both drivers have to be there: a missing one would only make the run shorter.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

export PYTENSOR_CL_REQUIRE_DRIVERS=pocl,intel
pytest "$@"
