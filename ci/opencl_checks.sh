#!/usr/bin/env bash
# Tests of threads, transfers, forks and ends of processes under a layer that reports what the OpenCL standard leaves
# undefined: released objects, memory that is freed too early, calls of a driver after a fork or while the process ends,
# overlapping buffers, sizes beyond the limits. By hand: 'ci/opencl_checks.sh tests/array' runs those tests instead.
# DRIVER is that of the tests. The default is PoCL as "strict-gpu": it says that it is a GPU with memory of its own.
# NOTES=1 reports the driver's errors and the ends of threads, too. HEADERS is a folder with CL/cl_layer.h; without it
# release v2025.07.22 of the Khronos Group's OpenCL-Headers is fetched. A C++ compiler is needed, and glibc.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

driver=${DRIVER:-strict-gpu}
library=$work/opencl_checks.so
log=$work/opencl_checks-$driver.log
headers=${HEADERS:-$work/OpenCL-Headers}
mkdir -p "$work"
[ -f "$headers/CL/cl_layer.h" ] ||
    git clone -q --depth 1 -b v2025.07.22 https://github.com/KhronosGroup/OpenCL-Headers "$headers"
${CXX:-g++} -std=c++17 -O1 -g -Wall -fPIC -shared -I"$headers" -o "$library" tools/opencl_checks.cpp

tests=("$@")
[ $# -gt 0 ] || tests=(
    tests/array/test_edge_cases.py
    tests/linker/graphs/test_dependencies_{memory,threads}.py
    tests/linker/graphs/test_transfers.py
    tests/linker/reports/test_profile.py
    tests/linker/run/test_{graph_cache,threads}.py
    tests/linker/test_interrupts.py
    tests/runtime/memory
    tests/runtime/test_{context,fork,interrupts,process_end,program}.py
    tests/user_kernels/test_{elementwise,raw}.py
)

rm -f "$log"
export LD_PRELOAD=$library OPENCL_LAYERS=$library OPENCL_CHECKS_LOG=$log OPENCL_CHECKS_NOTES=${NOTES:-0}
export PYTENSOR_CL_TEST_DRIVERS=$driver
export PYOPENCL_NO_CACHE=1 # programs come as texts, in which the layer sees which buffers are only read
[ "$driver" != strict-gpu ] || export OPENCL_CHECKS_AS_GPU=1
failed=0
"${PYTHON:-python}" -m pytest -q -n 0 "${tests[@]}" || failed=1
unset LD_PRELOAD OPENCL_LAYERS
touch "$log"
cat "$log"
! grep -q '^error' "$log" || failed=1
exit $failed
