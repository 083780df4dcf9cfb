## Algorithm   x[i] = y, or += y, in place, for vectors on CPUs. A work-item reads the indices itself, in order:
##             repeated ones need no atomics. Where equal indices follow one another, which a sample of each block
##             shows, the element stays in a register. The range of the indices of other blocks is found with vectors
##             first.
## Operands    x[length]; i[count] and y[count] with steps i_step and y_step.
## NDRange     (work-items): one, or several that each take an even share of the indices.
## Workspace   Several work-items add to private copies of x, `copy_stride` elements from one to the next;
##             kernels/indexing/scatter_reduce.mako adds these up.
## Invariants  An index that is out of range is reported, and left out. With one work-item the last one wins, or the sum
##             is NumPy's to the bit.
<%page args="name, plan, ctype, index_type, is_checked, combine, nothing, lanes"/>\
<%namespace name="bounds" file="/common/bounds.mako"/>\
<%include file="/common/partition.mako"/>\
<%!
from pytensor_cl.codegen.dtypes import to_long

BLOCK, SAMPLE, RUN = 1024, 32, 4
%>\
<%def name="next_index()">
        const long given = ${to_long(index_type, "i[b * p.i_step]")};
        const long at = given < 0 ? given + p.length : given;
% if is_checked:
        if (at < 0 || at >= p.length) {
            report_error(error_flag, error_code, 0, given, p.length);
            continue;
        }
% endif
</%def>\
<% value = "y[b * p.y_step]" %>\
${plan.c_typedef(f"{name}_plan")}

${bounds.all_in_bounds(name, index_type, lanes)}

/* Add up indices that follow equal ones. A function of its own, or it takes a fifth longer. */
__attribute__((noinline)) static void ${name}_add_runs(__global const ${index_type} *i, __global ${ctype} *x,
    __global const ${ctype} *y,
    const long first, const long end, const ${name}_plan p, volatile __global int *error_flag, const int error_code)
{
    ${ctype} sum = 0;
    long last = -1;
    for (long b = first; b < end; ++b) {
        ${next_index()}
        if (at != last) {
            if (last >= 0)
                x[last] = sum;
            sum = x[at];
            last = at;
        }
        sum = ${combine.format(a="sum", b=value)};
    }
    if (last >= 0)
        x[last] = sum;
}

__attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
__kernel void ${name}(__global const ${index_type} *i, __global ${ctype} *x, __global const ${ctype} *y,
    const ${name}_plan p, volatile __global int *error_flag, const int error_code)
{
    const long part = get_global_id(0);
    const long parts = get_global_size(0);
    const long stop = partition_begin(p.count, 1, part + 1, parts);
    x += p.x + part * p.copy_stride;
    y += p.y;
    i += p.i;
    if (p.copy_stride)
        for (long k = 0; k < p.length; ++k)
            x[k] = ${nothing};
    for (long first = partition_begin(p.count, 1, part, parts); first < stop; first += ${BLOCK}) {
        const long end = min(first + ${BLOCK}, stop);
        const long sampled = min(first + ${SAMPLE}, end);
        int runs = 1;
        for (long b = first + 1; b < sampled; ++b)
            runs += i[b * p.i_step] != i[(b - 1) * p.i_step];
        if (runs * ${RUN} <= sampled - first) {
            ${name}_add_runs(i, x, y, first, end, p, error_flag, error_code);
            continue;
        }
        if (p.i_step == 1 && ${name}_all_in_bounds(i + first, end - first, p.length)) {
            #pragma clang loop unroll_count(4)
            for (long b = first; b < end; ++b) {
                const long at = (long)i[b];
                x[at] = ${combine.format(a="x[at]", b=value)};
            }
            continue;
        }
        for (long b = first; b < end; ++b) {
    ${next_index()}
            x[at] = ${combine.format(a="x[at]", b=value)};
        }
    }
}
