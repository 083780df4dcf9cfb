## Algorithm   Draws of which each has a stream of its own: the element's. `draw` is the expression of z, and `finish`
##             that of the result.
## Operands    Parameters x0, x1, ...: numbers or, where `varying`, arrays of the result's shape. `names`: their names
##             in the expressions; `first` is that of the first one. out[size]; bad: set where the parameters are not
##             `proper`.
## NDRange     (work-items). cpu: each takes a contiguous range of the elements. simt: elements as far apart as there
##             are work-items.
## Workspace   One philox_stream in private memory.
## Invariants  Element i depends on the key, i and its parameters only, not on the number of work-items.
## Reference   See kernels/random/philox.mako and kernels/random/variates.mako.
<%page args="name, result, draw, kind, finish, names, first, varying, proper, schedule"/>\
<%
    forms = [f"__global const double *x{k}_values" if v else f"const double x{k}" for k, v in enumerate(varying)]
    parameters = "".join(f", {form}" for form in forms)
%>\
<%include file="/common/partition.mako"/>\
__kernel ${"__attribute__((reqd_work_group_size(1, 1, 1)))" if schedule == "cpu" else ""}
void ${name}(const uint key_low, const uint key_high, const long size, __global const ulong *tables,
             __global ${result} *out, __global int *bad${parameters})
{
    #pragma OPENCL FP_CONTRACT OFF
    const long item = get_global_id(0), items = get_global_size(0);
    const double one = 1.0, zero = 0.0;
% if schedule == "cpu":
    const long end = partition_begin(size, 1, item + 1, items);
    for (long i = partition_begin(size, 1, item, items); i < end; ++i) {
% else:
    for (long i = item; i < size; i += items) {
% endif
% for k, v in enumerate(varying):
    % if v:
        const double x${k} = x${k}_values[i];
    % endif
% endfor
% for letter, k in names:
        const double ${letter} = ${(first if loop.first else "{x}").format(x=f"x{k}")};
% endfor
        if (!(${proper})) {
            *bad = 1;
            continue;
        }
        philox_stream stream, *r = &stream;
        r->key = (uint2)(key_low, key_high);
        r->element = i;
        r->block = 0;
        r->at = 0;
        r->tables = tables;
        const ${kind} z = ${draw};
        out[i] = (${result})(${finish});
    }
}
