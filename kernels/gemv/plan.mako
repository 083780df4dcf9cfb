// What the kernels of the gemv family share: sizes, and where the operands lie, counted in elements.
typedef struct {
    long m, k;
    long a_start, x_start, y_start, o_start;  // relative to the arrays' offsets
    long a_row, a_col, x_step, y_step, o_step;
    long packed;  // elements of scratch space of one work-item for a copy of x; 0 where x is contiguous (schedule cpu)
    long splits;  // parts of k; their sums go to `partial` if there are several
} gemv_plan;

// First of `total` things, in units of `unit`, of part `index` of `count`.
static long gemv_share(long total, long unit, long index, long count)
{
    return min(total, (total + unit - 1) / unit * index / count * unit);
}
