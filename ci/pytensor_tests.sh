#!/usr/bin/env bash
# A part of PyTensor's own tests with OPENCL as the default mode: those in which wrong numbers or errors were found before.
# PYTENSOR_SOURCE is a checkout of PyTensor. Its sdist lacks these tests, so without a checkout the step is skipped.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [ ! -d "${PYTENSOR_SOURCE:-}/tests/tensor" ]; then
    printf "SKIPPED: PyTensor's own tests: PYTENSOR_SOURCE names no checkout of PyTensor\n"
    exit 0
fi
basic=tests/tensor/test_basic.py scan=tests/scan/test_basic.py::TestExamples sparse=tests/sparse/test_math.py
python tools/pytensor_tests.py "$PYTENSOR_SOURCE" --results "$work/pytensor-tests" --jobs 2 \
    tests/tensor/test_shape.py tests/tensor/test_blockwise.py tests/compile/test_builders.py tests/compile/test_executor.py \
    $basic::TestSecondSameRank $basic::TestSecondBroadcast $scan::test_grad_multiple_outs_some_disconnected \
    $scan::test_grad_multiple_outs_some_disconnected_2 $sparse::TestAddMul $sparse::TestMulSV \
    $sparse::TestStructuredAddSV tests/sparse/test_linalg.py
