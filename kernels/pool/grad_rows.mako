## Gradients of pooling in one or two dimensions, schedule cpu. Kinds: max_grad_rows reads x, and needs no argmax in
## memory; sum_grad_rows.
##
## Algorithm: a ring buffer holds the rows of windows that cover a row of the gradient: for each window its gradient,
##     and for max_grad_rows the tap that was the largest. Row r of windows is in slot r % ring:
##         slot      0          1        ...   ring - 1
##         row    | r0 + k | r0 + k + 1 | ... | r0 + k - 1 |        ring = rows that cover one row of the gradient
##     A row is padded on either side with windows that give nothing, so that all elements are alike.
## Operands    x and dx (planes, n[1], n[2]), dy (planes, count[1], count[2]), C-contiguous.
## Tiling      Eight windows at a time.
## NDRange     a partition of the rows of the gradient.
## Workspace   For each work-item `ring` rows of `pitch` gradients, and as many argmax.
<%page args="name, kind, dtype, other, place, index, mask, lowest, inner, square, skipped, spacing, geometry"/>
<%include file="/common/partition.mako"/>\
<%include file="/math/lane_vote.mako"/>\
<%namespace name="found" file="/pool/window_max.mako"/>
<%namespace name="parts" file="/pool/common.mako"/>
<%namespace name="windows" file="/pool/covering_windows.mako"/>
<%!
    import numpy as np
    from pytensor_cl.codegen.dtypes import ctype
%>
<%
    T, is_max, (taps, step) = ctype(other), kind == "max_grad_rows", inner
    wide = {1: "char", 2: "short", 4: "int", 8: "long"}[np.dtype(other).itemsize]
%>
${parts.header()}
${parts.load()}
typedef ${T}8 ${name}_out8 __attribute__((aligned(sizeof(${T}))));
typedef ${T}16 ${name}_out16 __attribute__((aligned(sizeof(${T}))));
typedef int8 ${name}_int8 __attribute__((aligned(4)));

// Fills a slot of the ring with row number o1 of a plane's windows.
static void ${name}_push_row(${f"__global const {ctype(dtype)} *const x, " if is_max else ""}
                             __global const ${T} *const dy, const long o1, __global ${T} *const share,
                             __global int *const place,
                             const ${name}_geometry g)
{
    const long o0 = 0;
    % if is_max:
    ${parts.taps(0)}
    ${parts.taps(1)}
    % endif
    for (long o = 0; o < g.count[2];) {
        if (o >= g.inner_first && o < g.inner_last) {
            const long o2 = min(o, g.inner_last - 8), at2 = o2 * ${step} - g.pad_lo[2];
            % if is_max:
            ${found.largest_of_eight()}
            *(__global ${name}_int8 *)(place + o2) = best;
            *(__global ${name}_out8 *)(share + o2) = *(__global const ${name}_out8 *)(dy + o2);
            % else:
            const ${T} weight = 1 / (${T})(
                ${name}_window_count(&g, 0, o0) * ${name}_window_count(&g, 1, o1) * ${name}_whole_count(&g));
            *(__global ${name}_out8 *)(share + o2) = *(__global const ${name}_out8 *)(dy + o2) * weight;
            % endif
            o = o2 + 8;
        } else {
            const long o2 = o++;
            % if is_max:
            ${parts.taps(2)}
            ${found.largest()}
            place[o2] = best;
            share[o2] = dy[o2];
            % else:
            share[o2] = dy[o2]
                / (${name}_window_count(&g, 0, o0) * ${name}_window_count(&g, 1, o1) * ${name}_window_count(&g, 2, o2));
            % endif
        }
    }
}

## Adds what a row of windows gives to the elements `phase` behind where windows number o begin, of which there are
## `width`.
<%def name="add_row(sum, phase, width)">
% for t in range(phase, taps, step):
<%
    at = f"o - {t // step}"
    given, tap = f"share[{at}]", f"place[{at}]"
    if width > 1:
        given = f"*(__global const {name}_out8 *)(share + {at})"
        tap = f"*(__global const {name}_int8 *)(place + {at})"
    here = f"{tap} == ({'int8' if width > 1 else 'int'})(tap + {t})"
%>\
% if is_max:
${sum} += ${f"convert_{wide}8({here})" if width > 1 else here} ? ${given} : (${T}${width if width > 1 else ""})(0);
% else:
${sum} += ${given};
% endif
% endfor
</%def>

## Runs the body for each row in the ring that covers row i1.
<%def name="rows()">
for (long r = first1, slot = first1 % ring; r < last1; ++r, slot = slot + 1 == ring ? 0 : slot + 1) {
    const int tap = (int)(i1 + g.pad_lo[1] - r * g.step[1]) * ${taps};
    __global const ${T} *const share = gradients + slot * pitch;
    ${"__global const int *const place = argmax + slot * pitch;" if is_max else ""}
    ${caller.body()}
}
</%def>
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}(\
% if is_max:
__global const ${ctype(dtype)} *const x_base, const long x_at, \
% endif
__global const ${T} *const dy_base, const long dy_at, __global ${T} *const gradients_base, const long gradients_at,
% if is_max:
__global int *const argmax_base, const long argmax_at, \
% endif
__global ${T} *const dx_base, const long dx_at, const ${name}_geometry g)
{
    const long tasks = g.planes * g.n[1];
    const long end = partition_begin(tasks, 1, get_global_id(0) + 1, get_global_size(0));
    const long ring = (g.k[1] + g.step[1] - 1) / g.step[1], pitch = (g.n[2] + g.pad_lo[2]) / ${step} + 17;
    __global ${T} *const gradients = gradients_base + gradients_at + get_global_id(0) * ring * pitch + 8;
    __global int *const argmax = ${"argmax_base + argmax_at + get_global_id(0) * ring * pitch + 8" if is_max else "0"};
    for (long i = -8; i < ring * pitch - 8; ++i) {
        gradients[i] = 0;
        ${"argmax[i] = -1;" if is_max else ""}
    }
    // Windows that begin inside.
    const long first = (g.pad_lo[2] + ${step - 1}) / ${step}, last = (g.n[2] + g.pad_lo[2]) / ${step};
    long next = 0;
    const long start = partition_begin(tasks, 1, get_global_id(0), get_global_size(0));
    for (long task = start; task < end; ++task) {
        const long i1 = task % g.n[1], plane = task / g.n[1];
        __global ${T} *const dx = dx_base + dx_at + task * g.n[2];
        ${windows.cover(1)}
        next = i1 && task != start ? max(next, (long)first1) : first1;
        for (; next < last1; ++next)
            ${name}_push_row(${"x_base + x_at + plane * g.n[1] * g.n[2], " if is_max else ""}
                             dy_base + dy_at + (plane * g.count[1] + next) * g.count[2], next,
                             gradients + next % ring * pitch, ${"argmax + next % ring * pitch" if is_max else "0"}, g);
        for (long at = first; at < last;) {
            if (last - first < 8)
                break;
            const long o = min(at, last - 8);
            ${T}8 ${", ".join(f"sum{p} = ({T}8)(0)" for p in range(step))};
            <%call expr="rows()">
                % for p in range(step):
                ${add_row(f"sum{p}", p, 8)}
                % endfor
            </%call>
            % if step == 2:
            ${T}16 both;
            both.even = sum0;
            both.odd = sum1;
            *(__global ${name}_out16 *)(dx + o * 2 - g.pad_lo[2]) = both;
            % else:
            *(__global ${name}_out8 *)(dx + o - g.pad_lo[2]) = sum0;
            % endif
            at = o + 8;
        }
        const long low = last - first < 8 ? 0 : first * ${step} - g.pad_lo[2];
        const long high = last - first < 8 ? 0 : last * ${step} - g.pad_lo[2];
        for (long i = low > 0 ? 0 : high; i < g.n[2]; i = i + 1 == low ? high : i + 1) {
            const long o = (i + g.pad_lo[2]) / ${step}, phase = (i + g.pad_lo[2]) % ${step};
            ${T} sum = 0;
            <%call expr="rows()">
                % for p in range(step):
                if (phase == ${p}) {
                    ${add_row("sum", p, 1)}
                }
                % endfor
            </%call>
            dx[i] = sum;
        }
    }
}
