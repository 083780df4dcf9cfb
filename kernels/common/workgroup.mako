## Reductions and scans over the work-items of a work-group, in local memory. All work-items of the group must reach
## them: they have barriers. The work-item's number is the variable `item`.
<%!
    from pytensor_cl.codegen.dtypes import ctype
%>

## Tree reduction. The body combines what is at `item` and at `item + distance`; the result is at 0. `group` is half
## of the work-items, a power of two. If work-items write global memory afterwards that others have read before,
## `fences` has CLK_GLOBAL_MEM_FENCE too.
<%def name="tree_reduce(group, fences='CLK_LOCAL_MEM_FENCE')">
    barrier(${fences});
    for (int distance = ${group}; distance; distance /= 2) {
        if (item < distance) {
            ${caller.body()}
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
</%def>

## Inclusive scan of one value for each work-item in the local array `values` (Hillis and Steele 1986). Before it the
## work-item has written its own value; after it all have been written.
<%def name="inclusive_scan(kind, values, group, combine, identity)">
        for (int distance = 1; distance < ${group}; distance *= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            const ${kind} own = ${values}[item];
            const ${kind} lower = item >= distance ? ${values}[item - distance] : ${identity};
            barrier(CLK_LOCAL_MEM_FENCE);
            ${values}[item] = ${combine.format("lower", "own")};
        }
        barrier(CLK_LOCAL_MEM_FENCE);
</%def>

## Local memory of row_reduce: an array of `kind`. Not for use in between.
<%def name="row_scratch(kind, scratch, group)">
    __local ${kind} ${scratch}[${group + max(1, group // 2)}];
</%def>

## Reduces a value that each work-item has over the `threads` work-items of a row, a power of two; all of them get the
## result, or (everyone=False) the first one. A work-item is number `lane` of its row, `stride` items from the next;
## rows number `slot` of `slots` share the work-group. The order of the operations is fixed. In `combine` {a} is the
## part with the lower numbers.
##
## Two barriers: the square root of the work-items add up as many values, then every work-item those sums. Where a
## driver has shuffles (kernels/common/warp_shuffle.mako of each dtype, which the program needs), 32 neighbours use
## these, and there is one barrier, or none for rows of 32 work-items. `along` says that `stride` is 1. Reductions that
## follow one another with the same `scratch` have phase 0 and 1 in turn.
##
## `value`: variable of C type `kind`; `fields`: its members as pairs (".name", dtype), or (("", dtype),).
<%def name="row_reduce(value, kind, fields, combine, group, scratch='scratch', threads='threads', lane='lane',
    slot='slot', slots='slots', stride='1', along=True, phase=0, everyone=True)">
% if along and group % 32 == 0:
#ifdef WARP_SHUFFLES
        for (int distance = min((int)(${threads}), 32) / 2; distance > 0; distance /= 2) {
            ${kind} other;
            % for member, dtype in fields:
            other${member} = warp_down_${ctype(dtype)}(${value}${member}, distance);
            % endfor
            ${value} = ${combine.format(a=value, b="other")};
        }
        if (${threads} > 32) {
            __local ${kind} *const sums = ${scratch} + ${phase % 2 * group // 32} + (item - ${lane}) / 32;
            if (${lane} % 32 == 0)
                sums[${lane} / 32] = ${value};
            barrier(CLK_LOCAL_MEM_FENCE);
            ${"" if everyone else f"if ({lane} == 0) "}{
                ${value} = sums[0];
                for (int k = 1; k < ${threads} / 32; ++k)
                    ${value} = ${combine.format(a=value, b="sums[k]")};
            }
        }
        % if everyone:
        else {
            % for member, dtype in fields:
            ${value}${member} = warp_from_${ctype(dtype)}(${value}${member}, (int)((item - ${lane}) % 32));
            % endfor
        }
        % endif
#else
% endif
        if (${threads} > 1) {  // the same for the whole group, so the barriers are uniform
            const int heads = 1 << (31 - clz((int)(${threads}))) / 2;
            ${scratch}[item] = ${value};
            barrier(CLK_LOCAL_MEM_FENCE);
            if (${lane} < heads) {
                for (int k = heads; k < ${threads}; k += heads)
                    ${value} = ${combine.format(a=value, b=f"{scratch}[item + k * {stride}]")};
                ${scratch}[${group} + ${lane} * ${slots} + ${slot}] = ${value};
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            ${"" if everyone else f"if ({lane} == 0) "}{
                ${value} = ${scratch}[${group} + ${slot}];
                for (int k = 1; k < heads; ++k)
                    ${value} = ${combine.format(a=value, b=f"{scratch}[{group} + k * {slots} + {slot}]")};
            }
        }
% if along and group % 32 == 0:
#endif
% endif
</%def>
