## Algorithm   x[positions] = y, or += y, in place, for CPUs. Each position belongs to one work-item (owner computes),
##             which takes all that goes there in order: repeated positions need no atomics.
## Operands    positions[count] in elements of x, -1 where nothing is written; y:
##             values of `inner` positions are y_count apart, those of the next
##             ones y_outer later; shape, x, y: the elements that one position means, `run` along the last dimension.
## NDRange     (parts, owners): dimension 0 divides the elements that one position means, dimension 1 the positions:
##             which of them a work-item owns, or, with `copy_stride`, which it looks through.
## Workspace   With `copy_stride` each owner adds to a private copy, `copy_stride` elements after the one before;
##             kernels/indexing/scatter_reduce.mako adds these up.
## Invariants  The last one wins, or the sum is NumPy's to the bit (without `copy_stride`).
<%page args="name, plan, ctype, combine, nothing, ndim, index, lanes"/>\
<%namespace name="unravel" file="/common/unravel.mako"/>\
<%include file="/common/partition.mako"/>\
<%!
from pytensor_cl.codegen.dtypes import widened

AHEAD = 12  # prefetch distance in positions
BLOCK = 256  # positions of which those that are owned are noted first: a branch for each would be guessed wrong
%>\
<% halves = [lanes >> k for k in range(lanes.bit_length() - 1)] %>\
% for n in halves:
typedef ${widened(ctype, n)} ${name}_vector${n} __attribute__((aligned(sizeof(${ctype}))));
% endfor
${plan.c_typedef(f"{name}_plan")}

## The values of position number b of a run.
<%def name="add(b)">
                __global ${ctype} *row = to + positions[outer + ${b}];
                __global const ${ctype} *value = from + ${b} * p.y_count;
                ${index} c = 0;
                if (p.y_run == 1) {
% for n in halves:
                    ${"for" if n == lanes else "if"} (${";" if n == lanes else ""} c
                        + ${n} <= count${"; c += %d" % n if n == lanes else ""}) {
                        __global ${name}_vector${n} *v = (__global ${name}_vector${n} *)(row + c);
                        *v = ${combine.format(a="*v", b=f"*(__global const {name}_vector{n} *)(value + c)")};
                        ${"" if n == lanes else f"c += {n};"}
                    }
% endfor
                }
                for (; c < count; ++c)
                    row[c] = ${combine.format(a="row[c]", b="value[c * p.y_run]")};
</%def>\

__attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
__kernel void ${name}(__global const ${index} *positions, __global ${ctype} *x, __global const ${ctype} *y,
    const long x_at, const long y_at, const ${name}_plan p)
{
    const long part = get_global_id(0);
    const long parts = get_global_size(0);
    const long owner = get_global_id(1);
    const long owners = get_global_size(1);
    const int is_shared = owners > 1 && !p.copy_stride;
    const ${index} low = is_shared ? partition_begin(p.span, 1, owner, owners) : 0;
    const ${index} high = is_shared ? partition_begin(p.span, 1, owner + 1, owners) : p.span;
    const ${index} outers = p.count / p.inner;
    ${index} outer_begin = 0;
    ${index} outer_end = outers;
    ${index} begin = 0;
    ${index} end = p.inner;
    ${index} owned[${BLOCK}];
    if (p.copy_stride) {
        x += owner * p.copy_stride;
        for (long k = 0; k < p.copy_stride; ++k)
            x[k] = ${nothing};
        if (outers >= owners) {
            outer_begin = partition_begin(outers, 1, owner, owners);
            outer_end = partition_begin(outers, 1, owner + 1, owners);
        } else {
            begin = partition_begin(p.inner, 1, owner, owners);
            end = partition_begin(p.inner, 1, owner + 1, owners);
        }
    }
    const ${index} unit_end = partition_begin(p.units, 1, part + 1, parts);
    for (${index} unit = partition_begin(p.units, 1, part, parts); unit < unit_end; ++unit) {
        ${index} rest = unit / p.segments;
        const ${index} first = (unit - rest * p.segments) * p.segment;
        const ${index} count = min(p.segment, p.run - first);
        __global ${ctype} *to = x + x_at + first;
        __global const ${ctype} *from = y + y_at + first * p.y_run;
        ${unravel.unravel(range(ndim), index, "rest", "p.shape[{}]", [("to", "p.x[{}]"), ("from", "p.y[{}]")])}
        from += outer_begin * p.y_outer;
        for (${index} outer = outer_begin * p.inner; outer < outer_end * p.inner; outer += p.inner, from += p.y_outer) {
            if (count == 1) {
                for (${index} b = begin; b < end; ++b) {
                    const ${index} at = positions[outer + b];
                    if (at >= low && at < high)
                        to[at] = ${combine.format(a="to[at]", b="from[b * p.y_count]")};
                }
                continue;
            }
            if (!is_shared) {
                for (${index} b = begin; b < end; ++b) {
                    if (p.is_far)
                        fetch_ahead(to + positions[outer + min(b + ${AHEAD}, end - 1)], count * sizeof(${ctype}));
                    if (positions[outer + b] < 0)
                        continue;
                    ${add("b")}
                }
                continue;
            }
            for (${index} start = begin; start < end; start += ${BLOCK}) {
                const ${index} stop = min(start + ${BLOCK}, end);
                ${index} found = 0;
                for (${index} b = start; b < stop; ++b) {
                    const ${index} at = positions[outer + b];
                    owned[found] = b;
                    found += (at >= low) & (at < high);
                }
                for (${index} k = 0; k < found; ++k) {
                    if (p.is_far) {
                        const ${index} next = owned[min(k + ${AHEAD}, found - 1)];
                        fetch_ahead(to + positions[outer + next], count * sizeof(${ctype}));
                        fetch_ahead(from + next * p.y_count, count * sizeof(${ctype}));
                    }
                    ${add("owned[k]")}
                }
            }
        }
    }
}
