#!/usr/bin/env bash
# All tests. Both drivers have to be there: a missing one would only make the run shorter.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

export PYTENSOR_CL_REQUIRE_DRIVERS=pocl,intel
export PYTENSOR_CL_SHARE=${PYTENSOR_CL_SHARE:-1/1}
export PYTENSOR_CL_STRICT_COVERAGE=1   # every Op of the pinned PyTensor has a probe and a row
pytest "$@"
