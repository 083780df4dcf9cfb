## Copies the elements of an array of any strides to a buffer, in C order.
##
## Operands    source: `shape` from the outermost dimension inwards, with `strides` in elements; target: contiguous.
## NDRange     cpu: (work-items), each with a contiguous range of `segments` of rows, of `segment` elements; simt: any
##             size, a loop with it as stride.
<%page args="name, unit, geometry, dims, schedule"/>\
<%namespace name="unravel" file="/common/unravel.mako"/>\
<%include file="/common/partition.mako"/>\
<% last = dims - 1 %>\
${geometry.c_typedef(f"{name}_geometry")}

% if schedule == "cpu":
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
% else:
__kernel
% endif
void ${name}(__global ${unit} *restrict target, __global const ${unit} *restrict source,
    const long target_at, const long source_at, const ${name}_geometry g)
{
    target += target_at;
    % if schedule == "cpu":
    const long length = g.shape[${last}];
    const long step = g.strides[${last}];
    const long end = partition_begin(g.units, 1, get_global_id(0) + 1, get_global_size(0));
    for (long n = partition_begin(g.units, 1, get_global_id(0), get_global_size(0)); n < end; ++n) {
        const long row = n / g.segments;
        const long first = (n - row * g.segments) * g.segment;
        const long count = min(g.segment, length - first);
        long rest = row;
        long at = source_at + first * step;
        ${unravel.unravel(range(last), "long", "rest", "g.shape[{}]", [("at", "g.strides[{}]")])}
        __global ${unit} *to = target + row * length + first;
        for (long k = 0; k < count; ++k)
            to[k] = source[at + k * step];
    }
    % else:
    for (long n = get_global_id(0); n < g.units; n += get_global_size(0)) {
        long rest = n;
        long at = source_at;
        ${unravel.unravel(range(dims), "long", "rest", "g.shape[{}]", [("at", "g.strides[{}]")])}
        target[n] = source[at];
    }
    % endif
}
