## Pooling, schedule cpu. Kinds: max; sum, or average; argmax: where the first largest element of each window is;
## max_gather: the element of v that is there.
##
## Algorithm   Each output is a reduction of its window of x; a window ends at the edge of x.
## Operands    x (planes, n[0], n[1], n[2]), C-contiguous; the output (planes, count[0], count[1], count[2]).
## Tiling      Eight neighbouring windows without padding at a time; the others one by one, eight elements of a row at a
##             time if it is long.
## NDRange     a partition of the rows of the output.
## Invariants  The last eight windows may overlap those before.
<%page args="name, kind, dtype, other, place, index, mask, lowest, inner, square, skipped, spacing, geometry"/>
<%include file="/common/partition.mako"/>\
<%include file="/math/lane_vote.mako"/>\
<%namespace name="order" file="/argmax/order.mako"/>
<%namespace name="parts" file="/pool/common.mako"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype
%>
<%
is_max_gather, is_search = kind == "max_gather", kind in ("max_gather", "argmax")
R = place if kind == "argmax" else ctype(other)
by_eights = spacing != "dilated" and not inner  # rows of windows that may be long


def chosen(best):
    """What is stored for the place of the largest element."""
    if not is_max_gather:
        return best
    return f"{best} < 0 ? 0 : v[{best}]" if spacing == "dilated" else f"v[{best}]"
%>
${parts.header()}
${parts.load()}
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}(__global const ${ctype(dtype)} *const x_base, const long x_at,
% if is_max_gather:
             __global const ${ctype(other)} *const v_base, const long v_at,
% endif
             __global ${R} *const y_base, const long y_at, const ${name}_geometry g)
{
    const long tasks = g.planes * g.count[0] * g.count[1];
    const long end = partition_begin(tasks, 1, get_global_id(0) + 1, get_global_size(0));
    for (long task = partition_begin(tasks, 1, get_global_id(0), get_global_size(0)); task < end; ++task) {
        const long o1 = task % g.count[1], rest = task / g.count[1], o0 = rest % g.count[0];
        const long plane = rest / g.count[0] * g.n[0] * g.n[1] * g.n[2];
        __global const ${ctype(dtype)} *x = x_base + x_at + plane;
        % if is_max_gather:
        __global const ${ctype(other)} *v = v_base + v_at + plane;
        % endif
        __global ${R} *y = y_base + y_at + task * g.count[2];
        ${parts.taps(0)}
        ${parts.taps(1)}
        for (long o = 0; o < g.count[2];) {
            % if spacing != "bins":
            if (o >= g.inner_first && o < g.inner_last) {
                const long o2 = min(o, g.inner_last - 8);  // may overlap those before
                const long at2 = o2 * ${name}_step - g.pad_lo[2];
                % if is_search:
                ${parts.search(order, lowest, 8)}
                int argmax[8];
                vstore8(best, 0, argmax);
                for (int k = 0; k < 8; ++k)
                    y[o2 + k] = ${chosen("argmax[k]")};
                % else:
                ${parts.reduce(order, lowest, 8)}
                *(__global ${name}_8 *)(y + o2) = result;
                % endif
                o = o2 + 8;
            } else
            % endif
            {
                const long o2 = o++;
                ${parts.taps(2)}
                % if is_search:
                ${parts.search(order, lowest, by_eights=by_eights)}
                y[o2] = ${chosen("best")};
                % else:
                ${parts.reduce(order, lowest, by_eights=by_eights)}
                y[o2] = result;
                % endif
            }
        }
    }
}
