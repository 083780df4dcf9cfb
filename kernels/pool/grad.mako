## Gradients of pooling, schedule cpu. Kinds: max_grad adds dy to the element at argmax (from cpu.mako);
## sum_grad adds to each element of a window its share of dy.
##
## Algorithm   Each row of the gradient sums over the windows that cover it: eight windows side by side where there is
##             an inner range, else window by window.
## Operands    Argmax and dy (planes, count[0], count[1], count[2]), dx (planes, n[0], n[1], n[2]), C-contiguous.
## Tiling      Eight steps of the windows at a time where all windows are whole; the other elements of such a row one by
##             one.
## NDRange     a partition of the rows of the gradient.
<%page args="name, kind, dtype, other, place, index, mask, lowest, inner, square, skipped, spacing, geometry"/>
<%include file="/common/partition.mako"/>\
<%namespace name="parts" file="/pool/common.mako"/>
<%namespace name="windows" file="/pool/covering_windows.mako"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype
%>
<% T, is_max = ctype(other), kind == "max_grad" %>
${parts.header()}
typedef ${T}8 ${name}_8 __attribute__((aligned(sizeof(${T}))));
typedef ${T}16 ${name}_16 __attribute__((aligned(sizeof(${T}))));
typedef ${place}8 ${name}_place __attribute__((aligned(sizeof(${place}))));

// What a row of windows gives to the elements that are `phase` behind where its windows o to o + 7 begin, but for the
// first
// `skip` of them; the first has the number `own`.
static inline ${T}8 ${name}_eight(__global const ${T} *const dy, __global const ${place} *const argmax,
                                  const ${name}_geometry g, const long phase, const long own, const ${T} share,
                                  const int skip)
{
    const int8 lane = (int8)(0, 1, 2, 3, 4, 5, 6, 7);
    ${T}8 sum = (${T}8)(0);
    % if is_max:
    const ${place}8 mine = (${place}8)(own) + convert_${place}8(lane) * (${place})(${name}_step);
    for (long t = phase, o = 0; t < ${name}_taps; t += ${name}_step, --o)
        sum += convert_${mask}8(*(__global const ${name}_place *)(argmax + o) == mine)
            ? *(__global const ${name}_8 *)(dy + o) : (${T}8)(0);
    % else:
    for (long t = phase, o = 0; t < ${name}_taps; t += ${name}_step, --o)
        sum += *(__global const ${name}_8 *)(dy + o) * share;
    % endif
    return skip ? (convert_${mask}8(lane >= (int8)(skip)) ? sum : (${T}8)(0)) : sum;
}

## Adds what each window of a row of windows gives to the row of the gradient.
<%def name="add_windows()">
% if is_max:
for (long o2 = 0; o2 < g.count[2]; ++o2) {
    const ${place} at = argmax[row + o2] - (${place})row_start;
    if (at >= 0 && at < g.n[2])
        dx[at] += dy[row + o2];
}
% else:
% if spacing == "dilated":
if ((i0 + g.pad_lo[0] - o0 * g.step[0]) % g.dilation[0] || (i1 + g.pad_lo[1] - o1 * g.step[1]) % g.dilation[1])
    continue;  // none of its taps is in this row
% endif
const long rows = ${name}_window_count(&g, 0, o0) * ${name}_window_count(&g, 1, o1);
for (long o2 = 0; o2 < g.count[2]; ++o2) {
    ${parts.taps(2)}
    const ${T} share = dy[row + o2] / (${T})(rows * ${name}_window_count(&g, 2, o2));
    for (long t = f2; t < l2; ++t)
        dx[at2 + ${parts.module.tap("t", 2, spacing)}] += share;
}
% endif
</%def>

<%def name="eight(phase)" filter="trim">
${name}_eight(dy + o, argmax + o, g, ${phase}, row_start + at + ${phase}, share, skip)
</%def>
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}(\
% if is_max:
__global const ${place} *const argmax_base, const long argmax_at, \
% endif
__global const ${T} *const dy_base, const long dy_at, __global ${T} *const dx_base, const long dx_at,
             const ${name}_geometry g)
{
    __global const ${T} *const dy = dy_base + dy_at;
    __global const ${place} *const argmax = ${"argmax_base + argmax_at" if is_max else "0"};
    const long tasks = g.planes * g.n[0] * g.n[1];
    const long end = partition_begin(tasks, 1, get_global_id(0) + 1, get_global_size(0));
    for (long task = partition_begin(tasks, 1, get_global_id(0), get_global_size(0)); task < end; ++task) {
        __global ${T} *const dx = dx_base + dx_at + task * g.n[2];
        const long i1 = task % g.n[1], i0 = task / g.n[1] % g.n[0], row_start = (i0 * g.n[1] + i1) * g.n[2];
        const long plane = task / (g.n[0] * g.n[1]);
        ${windows.cover(0)}
        ${windows.cover(1)}
        if (${"1" if spacing else "g.inner_first == g.inner_last"}) {
            for (long i = 0; i < g.n[2]; ++i)
                dx[i] = 0;
            for (long o0 = first0; o0 < last0; ++o0)
                for (long o1 = first1; o1 < last1; ++o1) {
                    const long row = ((plane * g.count[0] + o0) * g.count[1] + o1) * g.count[2];
                    ${add_windows()}
                }
            continue;
        }
        % if not spacing:
        for (long i2 = 0; i2 < g.n[2]; ++i2) {
            if (i2 == g.inner_first)
                i2 = g.inner_last;  // the rest
            if (i2 == g.n[2])
                break;
            ${windows.cover(2)}
            ${windows.sum_gradients("plane")}
            dx[i2] = sum;
        }
        for (long i = g.inner_first; i < g.inner_last; ++i)
            dx[i] = 0;
        for (long o0 = first0; o0 < last0; ++o0)
            for (long o1 = first1; o1 < last1; ++o1) {
                const long row = ((plane * g.count[0] + o0) * g.count[1] + o1) * g.count[2];
                % if is_max:
                const ${T} share = 0;
                % else:
                const long count
                    = ${name}_window_count(&g, 0, o0) * ${name}_window_count(&g, 1, o1) * ${name}_whole_count(&g);
                const ${T} share = 1 / (${T})count;
                % endif
                for (long i = g.inner_first; i < g.inner_last;) {
                    const long at = min(i, g.inner_last - 8 * ${name}_step);
                    const long o = row + (at + g.pad_lo[2]) / ${name}_step;
                    const int skip = (i - at) / ${name}_step;
                    if (${name}_step == 1)
                        *(__global ${name}_8 *)(dx + at) += ${eight("0")};
                    else if (${name}_step == 2) {
                        ${T}16 both;
                        both.even = ${eight("0")};
                        both.odd = ${eight("1")};
                        *(__global ${name}_16 *)(dx + at) += both;
                    } else
                        for (long phase = 0; phase < ${name}_step; ++phase) {
                            ${T} lane[8];
                            vstore8(${eight("phase")}, 0, lane);
                            for (int k = skip; k < 8; ++k)
                                dx[at + k * ${name}_step + phase] += lane[k];
                        }
                    i = at + 8 * ${name}_step;
                }
            }
        % endif
    }
}
