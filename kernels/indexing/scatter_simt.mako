## Algorithm   x[positions] = y, or += y, in place, for GPUs (owner computes). A work-group looks through all positions
##             together; each of its work-items applies those that the group owns in order, for elements of its own.
## Operands    positions[count] in elements of x, -1 where nothing is written; y:
##             values of positions are y_count apart, y_outer after `inner`;
##             shape, x, y: the elements that one position means.
## NDRange     (owners, tiles): dimension 0 divides the positions, dimension 1 the elements that one position means.
## Invariants  No atomics on x: the last one wins, or the sum is NumPy's to the bit. Barriers are uniform.
<%page args="name, plan, ctype, combine, ndim, index, group"/>\
<%namespace name="unravel" file="/common/unravel.mako"/>\
<%namespace name="runs" file="/indexing/value_runs.mako"/>\
<%include file="/common/partition.mako"/>\
${plan.c_typedef(f"{name}_plan")}

__attribute__((reqd_work_group_size(${group}, 1, 1)))
__kernel void ${name}(__global const ${index} *positions, __global ${ctype} *x, __global const ${ctype} *y,
    const long x_at, const long y_at, const ${name}_plan p)
{
    __local ${index} owned[${group}];
    __local int any;
    const ${index} lane = get_local_id(0);
    const long owner = get_group_id(0);
    const long owners = get_num_groups(0);
    const ${index} low = partition_begin(p.span, 1, owner, owners);
    const ${index} high = partition_begin(p.span, 1, owner + 1, owners);
    x += x_at;
    y += y_at;
    for (long first = get_group_id(1) * (long)p.tile; first < p.elements; first += get_num_groups(1) * (long)p.tile) {
        const ${index} last = min(first + p.tile, (long)p.elements);
        for (${index} start = 0; start < p.count; start += ${group}) {
            if (lane == 0)
                any = 0;
            barrier(CLK_LOCAL_MEM_FENCE);
            const ${index} at = start + lane < p.count ? positions[start + lane] : -1;
            const int is_owned = at >= low && at < high;
            owned[lane] = is_owned ? at : -1;
            if (is_owned)
                atomic_or(&any, 1);
            barrier(CLK_LOCAL_MEM_FENCE);
            if (any) {
                const ${index} filled = min((${index})${group}, p.count - start);
                for (${index} e = first + lane; e < last; e += ${group}) {
                    ${index} rest = e;
                    ${index} to = 0;
                    ${index} from = 0;
                    ${unravel.unravel(range(ndim), index, "rest", "p.shape[{}]",
                        [("to", "p.x[{}]"), ("from", "p.y[{}]")])}
                    for (${index} b = 0; b < filled; ++b)
                        if (owned[b] >= 0) {
                            const ${ctype} value = y[from + ${runs.at("start + b")}];
                            x[to + owned[b]] = ${combine.format(a="x[to + owned[b]]", b="value")};
                        }
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }
}
