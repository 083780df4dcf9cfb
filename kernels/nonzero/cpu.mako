## Algorithm   Stream compaction for CPUs. `<name>_count` counts the nonzero elements (hits) of each chunk. `<name>`
##             adds up the counts of the chunks before its own: so many hits precede its first one.
## Operands    mask[size], contiguous, elements of type `unit`, nonzero if `bits` of it are. output_mode says what is
##             written for each hit: "coords" its index along each dimension, "flat" its flat index, "select" the
##             element of x; "expand": all of x, with the next element of y at each hit; "assign": the
##             next element of y, in x itself.
## NDRange     (work-items): each takes one chunk; chunks are an even partition of the elements.
## Workspace   counts[chunks].
## Invariants  What a work-item writes past its own results, another hit of its own overwrites: it never writes to those
##             of the next chunk, which begin at `end`.
<%page args="name, unit, bits, output_mode, dims, element, combine, lanes=16, elements=''"/>\
<%namespace name="common" file="/nonzero/common.mako"/>\
<%include file="/common/partition.mako"/>\
<%include file="/math/lane_vote.mako"/>\
<%!
    BLOCK = 16  # elements that are tested together
%>\
## Whether element `at` is a hit, and what of the elements from i on makes them hits.
<%def name="is_hit(at)" buffered="True" filter="trim">
${common.is_hit(f"mask[{at}]", unit, bits)}
</%def>\
<%def name="block()" buffered="True" filter="trim">
*(__global const ${name}_vector *)(mask + i) & (${unit}16)(${bits or 1})
</%def>\
% if unit != "ulong2":
typedef ${unit}16 ${name}_vector __attribute__((aligned(sizeof(${unit}))));
typedef long16 ${name}_places __attribute__((aligned(sizeof(long))));
% endif
% if elements:
typedef ${elements} ${name}_elements __attribute__((aligned(sizeof(${element}))));
% endif

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}_count(__global const ${unit} *mask, const long mask_at, const long size, __global long *counts)
{
    mask += mask_at;
    const long part = get_global_id(0);
    const long parts = get_global_size(0);
    const long last = partition_begin(size, 1, part + 1, parts);
    long i = partition_begin(size, 1, part, parts);
    long count = 0;
% if unit != "ulong2":
    while (i + ${BLOCK} <= last) {
        int16 hits = 0;  // of each lane
        for (const long stop = min(last, i + (1L << 30)); i + ${BLOCK} <= stop; i += ${BLOCK})
            hits -= convert_int16((${block()}) != (${unit}16)(0));
        const int8 a = hits.lo + hits.hi;
        const int4 b = a.lo + a.hi;
        count += (long)b.x + b.y + b.z + b.w;
    }
% endif
    for (; i < last; ++i)
        count += ${is_hit("i")};
    counts[part] = count;
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}(${common.parameters(output_mode, unit, element, dims)})
{
    ${common.begin(output_mode)}
    const long part = get_global_id(0);
    const long parts = get_global_size(0);
    const long last = partition_begin(size, 1, part + 1, parts);
    long k = 0;  // hits before element i
    for (long p = 0; p < part; ++p)
        k += counts[p];
    const long end = k + counts[part];
    long i = partition_begin(size, 1, part, parts);
% if output_mode == "expand":
    ${expand()}
% elif output_mode == "assign":
    ${assign()}
% elif output_mode == "select":
    const int is_rare = counts[part] * 512 < last - i;
    ${compact("last", "o", "x[({at}) * x_step]")}
% elif output_mode == "flat":
    const int is_rare = counts[part] * 64 < last - i;
    const int is_common = (last - i - counts[part]) * 64 < last - i;
    ${compact("last", "o0", "{at}")}
% else:
    const int is_rare = counts[part] * 64 < last - i;
    const int is_common = (last - i - counts[part]) * 64 < last - i;
    ${coordinates()}
% endif
}
## Stores the hits of the elements from i to `stop` in `target`: `value` for element {at}. A test of a whole block pays
## where it nearly always comes out the same: where hits are rare (is_rare), or nearly all are (is_common).
<%def name="compact(stop, target, value)">
% if unit != "ulong2":
        for (; i + ${BLOCK} <= ${stop}; i += ${BLOCK}) {
            const ${unit}16 m = ${block()};
            if (is_rare && !some_lane(m != (${unit}16)(0)))
                continue;
    % if output_mode != "select":
            if (is_common && every_lane(m != (${unit}16)(0))) {
                const long16 places = (long16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
                *(__global ${name}_places *)(${target} + k) = places + (${value.format(at="i")});
                k += ${BLOCK};
                continue;
            }
    % endif
            if (k + ${BLOCK} <= end) {
                // Without a branch for each element: what is no hit is written too, and overwritten by the next hit.
    % for j in range(BLOCK):
                ${target}[k] = ${value.format(at=f"i + {j}")};
                k += ${is_hit(f"i + {j}")};
    % endfor
                continue;
            }
            for (long j = i; j < i + ${BLOCK}; ++j)
                if (${is_hit("j")})
                    ${target}[k++] = ${value.format(at="j")};
        }
% endif
        for (; i < ${stop}; ++i)
            if (${is_hit("i")})
                ${target}[k++] = ${value.format(at="i")};
</%def>\
## Stores the index of each hit along each dimension: first along the last one, row by row, then that of the row along
## the others.
<%def name="coordinates()">
    while (i < last && k < end) {
        long rest = i / n${dims - 1};
        const long start = k;
        const long row = rest * n${dims - 1};
        const long stop = min(last, row + n${dims - 1});
        ${compact("stop", f"o{dims - 1}", "{at} - row")}
    % for d in reversed(range(dims - 1)):
        {
            const long place = ${f"rest % n{d}" if d else "rest"};
        % if d:
            rest /= n${d};
        % endif
            for (long h = start; h < k; ++h)
                o${d}[h] = place;
        }
    % endfor
    }
</%def>\
## Puts the next element of y at each hit in x. Elements that are no hits are not written.
<%def name="assign()">
% if unit != "ulong2":
    const int is_common = (last - i - counts[part]) * 64 < last - i;
    for (; i + ${BLOCK} <= last; i += ${BLOCK}) {
        const ${unit}16 m = ${block()};
        if (!some_lane(m != (${unit}16)(0)))
            continue;
        if (is_common && every_lane(m != (${unit}16)(0))) {
            for (int j = 0; j < ${BLOCK}; ++j, ++k)
                x[(i + j) * x_step] = ${combine.format(a="x[(i + j) * x_step]", b="y[k * y_step]")};
            continue;
        }
        // Hits are listed first, without a branch for each element: random masks would mispredict every second one.
        int hits[${BLOCK}];
        int n = 0;
    % for j in range(BLOCK):
        hits[n] = ${j};
        n += ${is_hit(f"i + {j}")};
    % endfor
        for (int h = 0; h < n; ++h, ++k)
            x[(i + hits[h]) * x_step] = ${combine.format(a="x[(i + hits[h]) * x_step]", b="y[k * y_step]")};
    }
% endif
    for (; i < last; ++i)
        if (${is_hit("i")}) {
            x[i * x_step] = ${combine.format(a="x[i * x_step]", b="y[k * y_step]")};
            ++k;
        }
</%def>\
## Copies x, with the next element of y at each hit. A block without hits is copied as vectors.
<%def name="expand()">
% if unit != "ulong2":
    for (; i + ${BLOCK} <= last; i += ${BLOCK}) {
        const ${unit}16 m = ${block()};
        if (!some_lane(m != (${unit}16)(0))) {
    % for j in range(0, BLOCK, lanes):
            if (x_step == 1)
                *(__global ${name}_elements *)(o + i + ${j}) = *(__global const ${name}_elements *)(x + i + ${j});
            else
                for (int j = ${j}; j < ${j + lanes}; ++j)
                    o[i + j] = x[(i + j) * x_step];
    % endfor
            continue;
        }
    % for j in range(BLOCK):
        {
            const ${element} own = x[(i + ${j}) * x_step];
            const ${element} other = y[min(k, end - 1) * y_step];
            const int h = ${is_hit(f"i + {j}")};
            o[i + ${j}] = h ? ${combine.format(a="own", b="other")} : own;
            k += h;
        }
    % endfor
    }
% endif
    for (; i < last; ++i)
        if (${is_hit("i")}) {
            o[i] = ${combine.format(a="x[i * x_step]", b="y[k * y_step]")};
            ++k;
        } else
            o[i] = x[i * x_step];
</%def>\
