#!/usr/bin/env bash
# Routine tests of each family under Oclgrind, a simulator of a device that reports data races and accesses out of
# bounds. By hand: it is a hundred times slower than a driver. 'ci/oclgrind.sh sort/sort conv/conv' runs those only.
# Debian has the program (apt install oclgrind). With the compiler's optimisation on, version 21.10 computes nonsense.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

export PYTENSOR_CL_TEST_DRIVERS=oclgrind
export PYOPENCL_NO_CACHE=1   # binaries of a simulator of another version

# Which tests: small arrays, both schedules, every variant of the kernels.
declare -A chosen=(
    [indexing/gather_scatter]="sorted_positions and 2 and float32 or gather_and_scatter or minus_zero and float32 or values_are_repeated or strides or bad_indices"
    [argmax]="axes_and_layouts or broadcast"
    [indexing/embedding_bag]="axes or strides"
    [indexing/take_along_axis]="modes_and_broadcasting or strides or out_of_range"
    # conv/im2col_gemm has private memory written to by way of a global pointer: CPUs have one memory, the simulator has not.
    [conv/conv]="(zero_strides or empty) and not (zero_strides and cpu)"
    [creation]="eye or bartlett or arange_is_numpys"
    [cumop]="broadcast or infinities or output_with_strides and shape0"
    [indexing/diagonal]="fill or offsets or dimensions"
    [elemwise/elemwise]="tails or strided_views or permuted or broadcast or copy or fill"
    [fft]="any_stride or minus_one or of_ones"
    [fft_registers]="batches or cut or (real and float64) or few_work"
    [gemm/gemm]="zero_strides or beta_zero or output_may_be or itself"
    [gemm/large_tiles]="many_batch_dimensions or (batches and float32)"
    [gemv/gemv]="zero_strides or output_strides or output_may_be or writes"
    [gemv/pair]="memory_ends"
    [nonzero]="strides or repeated or select"
    [grouped_rows/grouped_rows]="layouts or shapes or range"
    [indexing/permute_row_elements]="both_ways or strides or range"
    [indexing/gather_fused]="strides or shapes or errors or more_picks"
    [pool]="infinities or strides"
    [indexing/ravel_multi_index]="ravel or strides or range"
    [random/counter]="a_few_numbers"
    [random/draw]="few_numbers"
    [reduction/reduction]="broadcast or output_of_any or alternating or nothing"
    [repeat]="uneven or strides"
    [rowwise/rowwise]="several or operands or shapes_and_layouts and 0"
    [sort/searchsorted]="sorter or layouts or batches"
    [linalg/linalg]="zero_on or views_of or singular"
    [sort/sort]="broadcast or many_dimensions or negative_zero"
    [sparse]="views or wrong"
    [sort/unique]="outputs or layouts"
)
families=("$@")
[ $# -gt 0 ] || mapfile -t families < <(printf '%s\n' "${!chosen[@]}" | sort)

mkdir -p "$work"
# The self-check tries what the simulator reports as an error: its results are stored before reports count.
oclgrind --log /dev/null "${PYTHON:-python}" -m pytensor_cl devices > /dev/null
failed=()
for family in "${families[@]}"; do
    log=$work/oclgrind-${family//\//-}.log
    rm -f "$log"
    echo "== $family"
    # It adds up the local memory of all kernels of a program, which 32 KiB do not hold.
    oclgrind --data-races --local-mem-size 65536 --build-options '-cl-opt-disable' --max-errors 20 --log "$log" \
        "${PYTHON:-python}" -m pytest -q -n 0 "tests/routines/$(dirname "$family")/test_$(basename "$family").py" -k "${chosen[$family]}" || failed+=("$family (tests)")
    if [ -s "$log" ]; then
        cat "$log"
        failed+=("$family (report: $log)")
    fi
done
[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[@]}"; exit 1; }
