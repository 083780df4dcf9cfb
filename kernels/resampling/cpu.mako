## Algorithm   Sums of weighted elements along an axis for CPUs:
##             y[o][i][c] = sum over k of weight[k][i] * x[o][index[k][i]][c], the taps in their order.
##             With `single` there is one column, and the loop over i is left to the compiler, which makes gathers of
##             it. Else a row of y is computed by vectors.
## Operands    x[outer][length][inner], index[taps][results], weight[taps][results] if `weighted`,
##             y[outer][results][inner].
## NDRange     (parts, parts): dimension 0 divides the rows of y, with `single` those of x; dimension 1 the
##             columns.
## Invariants  `taps` is the number of taps, which are unrolled, or 0 for a loop. An index of -1 reads nothing (`gaps`).
<%page args="name, element, lanes, taps, weighted, gaps, single"/>\
<%include file="/common/partition.mako"/>\
<%
    vector = element if lanes == 1 else f"{element}{lanes}"
%>\
% if lanes > 1 and not single:
typedef ${vector} ${name}_vector __attribute__((aligned(sizeof(${element}))));
% endif

<%def name="one_tap(k, kind, load, first)">\
            {
                const int from = index[${k} * results + i];
% if gaps:
                if (from >= 0)
% endif
                {
                    const ${kind} value = ${load};
                    ${"sum = " if first else "sum += "}${f"weight[{k} * results + i] * value" if weighted else "value"};
                }
% if gaps and first:
                else sum = 0;
% endif
            }
</%def>\
<%def name="every_tap(kind, load)">\
            ${kind} sum;
% if taps:
    % for k in range(taps):
${one_tap(k, kind, load, k == 0)}\
    % endfor
% else:
            sum = 0;
            for (long k = 0; k < taps; ++k)
${one_tap("k", kind, load, False)}\
% endif
</%def>\
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${name}(__global const ${element} *restrict x, const long x_at, __global const int *restrict index,
    const long index_at,${f" __global const {element} *restrict weight, const long weight_at," if weighted else ""}
    __global ${element} *restrict y, const long outer, const long length, const long results, const long inner,
    const long ${"all_taps" if taps else "taps"})
{
    x += x_at;
    index += index_at;
% if weighted:
    weight += weight_at;
% endif
    const long part = get_global_id(0);
    const long parts = get_global_size(0);
% if single:
    const long last = partition_begin(outer, 1, part + 1, parts);
    for (long o = partition_begin(outer, 1, part, parts); o < last; ++o) {
        __global const ${element} *row = x + o * length;
        __global ${element} *to = y + o * results;
        for (long i = 0; i < results; ++i) {
${every_tap(element, "row[from]")}\
            to[i] = sum;
        }
    }
% else:
    const long column = partition_begin(inner, ${lanes}, get_global_id(1), get_global_size(1));
    const long end = partition_begin(inner, ${lanes}, get_global_id(1) + 1, get_global_size(1));
    const long rows = outer * results;
    const long last = partition_begin(rows, 1, part + 1, parts);
    for (long r = partition_begin(rows, 1, part, parts); r < last; ++r) {
        const long o = r / results;
        const long i = r - o * results;
        __global const ${element} *plane = x + o * length * inner;
        __global ${element} *to = y + r * inner;
        long c = column;
    % if lanes > 1:
        for (; c + ${lanes} <= end; c += ${lanes}) {
${every_tap(vector, f"*(__global const {name}_vector *)(plane + from * inner + c)")}\
            *(__global ${name}_vector *)(to + c) = sum;
        }
    % endif
        for (; c < end; ++c) {
${every_tap(element, "plane[from * inner + c]")}\
            to[c] = sum;
        }
    }
% endif
}
