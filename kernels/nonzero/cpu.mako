## Algorithm   Stream compaction for CPUs. `<name>_count` counts the nonzero elements of each chunk; `<name>` has from
##             the counts where its own results begin.
## Operands    mask[size], contiguous, elements of type `unit`, nonzero if `bits` of it are. output_mode says what is
##             written for each nonzero element: "coords" its index along each dimension, "flat" its flat index,
##             "select" the element of x; "expand": all of x, with the next element of y where the mask is nonzero.
## NDRange     (work-items): each takes one chunk; chunks are an even partition of the elements.
## Workspace   counts[chunks].
## Invariants  A work-item writes beyond its own results only where it overwrites that itself later.
<%page args="name, unit, bits, output_mode, dims, element, combine, lanes=16,
             elements=''"/>\
<%namespace name="common" file="/nonzero/common.mako"/>\
<%include file="/common/partition.mako"/>\
<%include file="/math/lane_vote.mako"/>\
<%!
    BLOCK = 16  # elements that are tested together
%>\
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
        int16 hits = 0;
        for (const long stop = min(last, i + (1L << 30)); i + ${BLOCK} <= stop; i += ${BLOCK})
            hits -= convert_int16((*(__global const ${name}_vector *)(mask
                + i) & (${unit}16)(${bits or 1})) != (${unit}16)(0));
        const int8 a = hits.lo + hits.hi;
        const int4 b = a.lo + a.hi;
        count += (long)b.x + b.y + b.z + b.w;
    }
% endif
    for (; i < last; ++i)
        count += ${common.is_hit("mask[i]")};
    counts[part] = count;
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}(${common.parameters()})
{
    ${common.begin()}
    const long part = get_global_id(0);
    const long parts = get_global_size(0);
    const long last = partition_begin(size, 1, part + 1, parts);
    long k = 0;
    for (long p = 0; p < part; ++p)
        k += counts[p];
    const long end = k + counts[part];
    long i = partition_begin(size, 1, part, parts);
    /* A test of ${BLOCK} elements pays where it nearly always comes out the same. */
    const int is_rare = counts[part] * ${512 if output_mode == "select" else 64} < last - i;
% if output_mode in ("coords", "flat"):
    const int is_common = (last - i - counts[part]) * 64 < last - i;
% endif
% if output_mode == "coords":
    while (i < last && k < end) {
        long rest = i / n${dims - 1};
        long start = k;
        const long row = rest * n${dims - 1};
        const long stop = min(last, row + n${dims - 1});
        ${compact_range("stop", "row", lanes)}
    % for d in reversed(range(dims - 1)):
        {
            const long place = ${f"rest % n{d}" if d else "rest"};
            rest /= n${d};
            for (long h = start; h < k; ++h)
                o${d}[h] = place;
        }
    % endfor
    }
% else:
    ${compact_range("last", "0", lanes)}
% endif
}
## Take the elements from i to `stop`. Where many hits follow, without a branch for each: what is no hit is written
## too, and overwritten by the next hit. `end` is where the hits of the next chunk begin, which are another
## work-item's.
<%def name="compact_range(stop, row, lanes)">
% if unit != "ulong2":
        for (; i + ${BLOCK} <= ${stop}; i += ${BLOCK}) {
            const ${unit}16 m = *(__global const ${name}_vector *)(mask + i) & (${unit}16)(${bits or 1});
            if (${"" if output_mode == "expand" else "is_rare && "}!some_lane(m != (${unit}16)(0))) {
    % for j in range(0, BLOCK if output_mode == "expand" else 0, lanes):
                if (x_step == 1)
                    *(__global ${name}_elements *)(o + i + ${j}) = *(__global const ${name}_elements *)(x + i + ${j});
                else for (int j = ${j}; j < ${j + lanes}; ++j)
                    o[i + j] = x[(i + j) * x_step];
    % endfor
                continue;
            }
    % if output_mode in ("coords", "flat"):
            if (is_common && every_lane(m != (${unit}16)(0))) {
                const long16 places = (long16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
                *(__global ${name}_places *)(o${dims - 1} + k) = places + (i - ${row});
                k += ${BLOCK};
                continue;
            }
    % endif
    % if output_mode != "expand":
            if (k + ${BLOCK} <= end) {
        % for j in range(BLOCK):
                ${store(f"i + {j}", row)}
                k += ${common.is_hit(f"mask[i + {j}]")};
        % endfor
                continue;
            }
    % endif
    % if output_mode == "expand":
        % for j in range(BLOCK):
            {
                const ${element} own = x[(i + ${j}) * x_step];
                const ${element} other = y[min(k, end - 1) * y_step];
                const int h = ${common.is_hit(f"mask[i + {j}]")};
                o[i + ${j}] = h ? ${combine.format(a="own", b="other")} : own;
                k += h;
            }
        % endfor
    % else:
            for (long j = i; j < i + ${BLOCK}; ++j) {
                ${compact_one("j", row)}
            }
    % endif
        }
% endif
        for (; i < ${stop}; ++i) {
            ${compact_one("i", row)}
        }
</%def>\
<%def name="compact_one(at, row)">
            if (${common.is_hit(f"mask[{at}]")}) {
                ${store(at, row)}
                ++k;
            }
% if output_mode == "expand":
            else
                o[${at}] = x[${at} * x_step];
% endif
</%def>\
<%def name="store(at, row)">\
% if output_mode == "expand":
o[${at}] = ${combine.format(a=f"x[({at}) * x_step]", b="y[k * y_step]")};\
% elif output_mode == "select":
o[k] = x[(${at}) * x_step];\
% else:
o${dims - 1}[k] = ${at} - ${row};\
% endif
</%def>\
