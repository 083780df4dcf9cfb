## Reductions and scans over the work-items of a work-group, in local memory. All work-items of the group must reach
## them: they have barriers. The work-item's number is the variable `item`.

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
