## Loops over a range that is divided among all work-items. Include common/partition.mako before.
##
## Algorithm   The body is for element number `i`, 0 to n - 1. Schedule cpu: each work-item has a contiguous part;
##             schedule simt: neighbouring work-items have neighbouring elements, with the NDRange as step.
<%def name="each(n, schedule)">
    % if schedule == "cpu":
    const long end = partition_begin(${n}, 1, get_global_id(0) + 1, get_global_size(0));
    for (long i = partition_begin(${n}, 1, get_global_id(0), get_global_size(0)); i < end; ++i) {
    % else:
    for (long i = get_global_id(0); i < ${n}; i += get_global_size(0)) {
    % endif
        ${caller.body()}
    }
</%def>
