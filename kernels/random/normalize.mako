## Algorithm   Divide each row by its sum. The sum is taken from left to right, and its reciprocal is a factor, as in
##             NumPy's dirichlet.
## Operands    in[rows][length], out[rows][length].
## NDRange     (work-items). cpu: each takes a contiguous range of the rows. simt: rows as far apart as there are
##             work-items.
## Workspace   None.
## Invariants  Each row depends on its own elements only.
## Reference   numpy.random.Generator.dirichlet.
<%page args="name, result, schedule"/>\
<%include file="/common/partition.mako"/>\
__kernel ${"__attribute__((reqd_work_group_size(1, 1, 1)))" if schedule == "cpu" else ""}
void ${name}(const long rows, const long length, __global const double *in, __global ${result} *out)
{
    #pragma OPENCL FP_CONTRACT OFF
    const long item = get_global_id(0), items = get_global_size(0);
% if schedule == "cpu":
    const long end = partition_begin(rows, 1, item + 1, items);
    for (long i = partition_begin(rows, 1, item, items); i < end; ++i) {
% else:
    for (long i = item; i < rows; i += items) {
% endif
        volatile double sum = 0.0;  /* some compilers change the order of a sum in a register */
        for (long k = 0; k < length; ++k) sum = sum + in[i * length + k];
        const double factor = 1.0 / sum;
        for (long k = 0; k < length; ++k) out[i * length + k] = (${result})(in[i * length + k] * factor);
    }
}
