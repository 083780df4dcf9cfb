## Parts of the pooling kernels: the geometry, a loop over a window, the search for the largest element, the reduction,
##     and how many elements a window has.
##
## Geometry, for three pooled dimensions (lengths of 1 in front if there are fewer):
##     planes                    arrays of pooled dimensions
##     divisor                   of a sum: 0 the number of elements in the array, 1 those of padding, too, 2 none
##     inner_first, inner_last   range of the last dimension that schedule cpu computes with vectors
##     n, count                  lengths, and number of windows
##     k, step, pad_lo, pad_hi   length and step of the windows, padding before and after
##     dilation                  from element to element of a window
## `spacing`: "" for windows whose elements are neighbours, "dilated", or "bins": window o of `count` has the elements
## floor(o n / count) to ceil((o + 1) n / count), and k, step, padding and dilation have no meaning.
## `inner`: length and step along the last dimension, where they are constants; `square`: the one before has the same.
## `skipped`: so many dimensions in front have length 1 (schedule simt).
## The defs use the arguments of the template that calls them.
<%!
    import numpy as np

    from pytensor_cl.codegen.dtypes import ctype

    def tap(t, d, spacing):
        """Tap t of a window along dimension d, in elements from its begin."""
        return f"{t} * g.dilation[{d}]" if spacing == "dilated" else t
%>
<%def name="header()">
## The steps of the last dimension: known to the compiler for windows that are common.
#define ${name}_taps ${inner[0] if inner else "g.k[2]"}
#define ${name}_step ${inner[1] if inner else "g.step[2]"}
#define ${name}_window_taps ${inner[0] if inner else "g->k[2]"}
${geometry.c_typedef(f"{name}_geometry")}

// How many elements count along dimension d of window number o.
static inline ${index} ${name}_window_count(const ${name}_geometry *g, const int d, const ${index} o)
{
    if (g->divisor == 2)
        return 1;
    % if spacing == "bins":
    return ((o + 1) * (long)g->n[d] + g->count[d] - 1) / g->count[d] - o * (long)g->n[d] / g->count[d];
    % else:
    const ${index} start = o * g->step[d] - g->pad_lo[d];
    const ${index} low = g->divisor ? -g->pad_lo[d] : 0, high = g->n[d] + (g->divisor ? g->pad_hi[d] : 0);
    % if spacing == "dilated":
    const ${index} first = start < low ? (low - start + g->dilation[d] - 1) / g->dilation[d] : 0;
    const ${index} last = min(g->k[d], (high - start + g->dilation[d] - 1) / g->dilation[d]);
    return max((${index})1, last - first);  // a window without elements has the average zero
    % else:
    return min(start + g->k[d], high) - max(start, low);
    % endif
    % endif
}

// How many elements count along the last dimension of a window without padding.
static inline ${index} ${name}_whole_count(const ${name}_geometry *g)
{
    return g->divisor == 2 ? 1 : ${name}_window_taps;
}
</%def>

## The place where window number o begins along dimension d, and its taps from f to l that see an element.
<%def name="taps(d)">
<%
is_last = d == 2 or (d == 1 and square)
k, step = (f"({name}_taps)", f"({name}_step)") if is_last else (f"g.k[{d}]", f"g.step[{d}]")
%>\
% if d < skipped:
const ${index} at${d} = 0, f${d} = 0, l${d} = 1;
% elif spacing == "bins":
const ${index} at${d} = o${d} * (long)g.n[${d}] / g.count[${d}], f${d} = 0;
const ${index} l${d} = ((o${d} + 1) * (long)g.n[${d}] + g.count[${d}] - 1) / g.count[${d}] - at${d};
% else:
const ${index} at${d} = o${d} * ${step} - g.pad_lo[${d}];
% if spacing == "dilated":
const ${index} f${d} = at${d} < 0 ? (g.dilation[${d}] - 1 - at${d}) / g.dilation[${d}] : 0;
const ${index} l${d} = min((${index})${k}, (g.n[${d}] - at${d} + g.dilation[${d}] - 1) / g.dilation[${d}]);
% else:
const ${index} f${d} = max((${index})0, -at${d}), l${d} = min((${index})${k}, g.n[${d}] - at${d});
% endif
% endif
</%def>

## Runs the body for each element of a window, or of `width` windows side by side: the element is `value`, at `where`.
## `in_pairs`: two elements of a row are loaded at once where they are aligned. If windows are two elements apart, that
## is so for neighbouring work-items alike.
<%def name="visit(width=1, start='', finish='', in_pairs=False, begin='f2')">
<% w = width if width > 1 else "" %>\
for (${index} t0 = f0; t0 < l0; ++t0)
    for (${index} t1 = f1; t1 < l1; ++t1) {
        const ${index} row
            = ((at0 + ${tap("t0", 0, spacing)}) * g.n[1] + at1 + ${tap("t1", 1, spacing)}) * g.n[2] + at2;
        ${start}
        ${index} t2 = ${"0" if w else begin};
        % if in_pairs:
        if ((ulong)(x + row + t2) % ${2 * np.dtype(dtype).itemsize} == 0)
            for (; t2 + 1 < l2; t2 += 2) {
                const ${ctype(dtype)}2 pair = *(__global const ${ctype(dtype)}2 *)(x + row + t2);
                % for half in range(2):
                {
                    const ${index} where = row + t2 + ${half};
                    const ${ctype(dtype)} value = pair.s${half};
                    ${caller.body()}
                }
                % endfor
            }
        % endif
        for (; t2 < ${name + "_taps" if w else "l2"}; ++t2) {
            const ${index} where = row + ${tap("t2", 2, spacing)};
            % if w:
            const ${ctype(dtype)}${w} value
                = ${name}_load(x + row, ${tap("t2", 2, spacing)}, ${name}_taps, ${name}_step);
            % else:
            const ${ctype(dtype)} value = x[where];
            % endif
            ${caller.body()}
        }
        ${finish}
    }
</%def>

## Joins the taps of a long row that come in eights to `part`; `begin` is the first that is left. For schedule cpu and
## windows whose elements are neighbours.
<%def name="eights(join)" buffered="True">
<% T = ctype(dtype) %>
${T} part = none;
${index} begin = f2;
if (l2 - f2 >= 16) {
    ${T}8 eight = (${T}8)(none);
    for (; begin + 8 <= l2; begin += 8) {
        const ${T}8 value = *(__global const ${name}_8 *)(x + row + begin);
        eight = ${join("eight", "value")};
    }
    ${T} lanes[8];
    vstore8(eight, 0, lanes);
    for (int k = 0; k < 8; ++k)
        part = ${join("part", "lanes[k]")};
}
</%def>

## Leaves out a long row without an element that is larger than those before.
<%def name="skip_row(order)" buffered="True">
${eights(order.greater)}
if (l2 - f2 >= 16) {
    for (; begin < l2; ++begin)
        part = ${order.greater("part", "x[row + begin]")};
    if (!${order.beats("part", "largest")})
        continue;
}
</%def>

## Finds the first largest element of a window, or of `width` of them: its value in `largest`, its place in `best`,
## which is -1 if a dilated window has no element.
<%def name="search(order, lowest, width=1, in_pairs=False, by_eights=False)">
<%
w, is_wide = (width, True) if width > 1 else ("", False)
first = [tap(f"f{d}", d, spacing) for d in range(3)]
I = f"int{w}" if is_wide else index
%>\
${ctype(dtype)}${w} largest = (${ctype(dtype)}${w})(${lowest});
const ${I} lane = ${f"({I})({', '.join(map(str, range(width)))}) * (int)({name}_step)" if is_wide else "0"};
${I} best = (${I})(
    ((at0 + ${first[0]}) * g.n[1] + at1 + ${first[1]}) * g.n[2] + at2 + ${"0" if is_wide else first[2]}) + lane;
% if spacing == "dilated":
if (f0 >= l0 || f1 >= l1${"" if is_wide else " || f2 >= l2"})
    best = -1;
% endif
% if by_eights:
const ${ctype(dtype)} none = largest;
% endif
<%call expr="visit(width, skip_row(order) if by_eights else '', in_pairs=in_pairs)">
            const ${f"{mask}{w}" if is_wide else "int"} wins = ${order.beats("value", "largest")};
            largest = wins ? value : largest;
            best = ${f"convert_int{w}(wins)" if is_wide else "wins"} ? (${I})(where) + lane : best;
</%call>
</%def>

## Reduces a window, or `width` of them, to the element `result` of the output.
<%def name="reduce(order, lowest, width=1, in_pairs=False, by_eights=False)">
<% V = f"{ctype(dtype)}{width if width > 1 else ''}" %>\
${V} result = (${V})(${"0" if kind == "sum" else lowest});
% if width > 1 and inner and inner[1] == 2:
${reduce_pairs(order, lowest, V)}
% else:
${reduce_taps(order, V, in_pairs, by_eights)}
% endif
% if kind == "sum":
const ${index} count2 = ${f"{name}_whole_count(&g)" if width > 1 else f"{name}_window_count(&g, 2, o2)"};
result *= 1 / (${ctype(dtype)})(${name}_window_count(&g, 0, o0) * ${name}_window_count(&g, 1, o1) * count2);
% endif
</%def>

## Rows apart, which are then joined: sums of large windows stay accurate.
<%def name="reduce_taps(order, V, in_pairs=False, by_eights=False)">
<% join = lambda a, b: order.greater(a, b) if kind == "max" else f"({a} + {b})" %>\
const ${V} none = result;
<%
start, finish = eights(join) if by_eights else f"{V} part = none;", f"result = {join('result', 'part')};"
begin = "begin" if by_eights else "f2"
%>\
<%call expr="visit(8 if V != ctype(dtype) else 1, start, finish, in_pairs, begin)">
            part = ${join("part", "value")};
</%call>
</%def>

## Windows two elements apart: pairs of taps, and the third, meet over the rows first. A sum shows whether there may be
##     a NaN.
<%def name="reduce_pairs(order, lowest, V)">
<%
T, is_real_max = ctype(dtype), kind == "max" and ctype(dtype) in ("float", "double")
join = lambda a, b: f"({a} + {b})" if kind != "max" else f"({b} > {a} ? {b} : {a})" if is_real_max else f"max({a}, {b})"
%>\
${T}16 pair = (${T}16)(${"0" if kind == "sum" else lowest}), third = pair, sum = (${T}16)(0);
for (${index} t0 = f0; t0 < l0; ++t0)
    for (${index} t1 = f1; t1 < l1; ++t1) {
        __global const ${T} *const row = x + ((at0 + t0) * g.n[1] + at1 + t1) * g.n[2] + at2;
        const ${T}16 a = *(__global const ${name}_16 *)row;
        pair = ${join("pair", "a")};
        % if inner[0] == 3:
        const ${T}16 b = *(__global const ${name}_16 *)(row + 1);
        third = ${join("third", "b")};
        % endif
        % if is_real_max:
        sum += ${"a + b" if inner[0] == 3 else "a"};
        % endif
    }
% if is_real_max:
if (some_lane(sum != sum)) {
    ${reduce_taps(order, V)}
} else
% endif
{
    const ${V} left = pair.even, right = pair.odd, behind = third.odd, both = ${join("left", "right")};
    result = ${join("both", "behind") if inner[0] == 3 else "both"};
}
</%def>

## Loads tap number t of eight windows side by side, the first of which begins at x; windows of one tap are not so
## loaded.
<%def name="load()">
<% T = ctype(dtype) %>
typedef ${T}8 ${name}_8 __attribute__((aligned(sizeof(${T}))));
typedef ${T}16 ${name}_16 __attribute__((aligned(sizeof(${T}))));
static inline ${T}8 ${name}_load(__global const ${T} *const x, const long t, const long taps, const long s)
{
    if (s == 1)
        return *(__global const ${name}_8 *)(x + t);
    if (s == 2 && taps > 1)  // no element outside of the windows is read
        return t ? (*(__global const ${name}_16 *)(x + t - 1)).odd : (*(__global const ${name}_16 *)x).even;
    return (${T}8)(${", ".join(f"x[t + {k} * s]" for k in range(8))});
}
</%def>
