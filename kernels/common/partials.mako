## The final pass of a reduction in two passes: `total` is combined with the partial results number 0 to parts - 1, in
## this order, so that a result is the same in each call. `combine` is an expression of `{total}` and `{partial}`, and
## `partial` the expression of partial result number `part`. The host side is routines/base/two_pass.py.
<%def name="combine(total, parts, partial, combine='{total} + {partial}')">
        for (long part = 0; part < ${parts}; ++part)
            ${total} = ${combine.format(total=total, partial=partial)};
</%def>

## The final pass of sums on GPUs: `width` work-items of a group take totals beside each other, and the others share
## out the parts. The order of the sum depends on the number of parts alone. All work-items of the group must reach it:
## it has barriers. `item` is the work-item's number, `sums` an array of `group` elements in local memory, whose first
## `width` elements are the totals; `partial` is an expression of `lane` and `{part}`, read if `exists` is true.
<%def name="sum_in_group(kind, group, width, parts, partial, exists, sums='sums')">
        {
            const int lane = item % ${width}, slots = ${group} / ${width};
            ${kind} ${", ".join(f"s{u} = 0" for u in range(4))};
            if (${exists}) {
                long part = item / ${width};
                for (; ${parts} - part > 3 * slots; part += 4 * slots) {
                    % for u in range(4):
                    const ${kind} p${u} = ${partial.format(part=f"(part + {u} * slots)")};
                    % endfor
                    ${" ".join(f"s{u} += p{u};" for u in range(4))}
                }
                for (; part < ${parts}; part += slots)
                    s0 += ${partial.format(part="part")};
            }
            ${sums}[item] = (s0 + s1) + (s2 + s3);
            for (int distance = ${group // 2}; distance >= ${width}; distance /= 2) {
                barrier(CLK_LOCAL_MEM_FENCE);
                if (item < distance)
                    ${sums}[item] += ${sums}[item + distance];
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
</%def>
