## Algorithm   Stream compaction for GPUs, as in kernels/nonzero/cpu.mako: count, then a scan of each tile in local
##             memory.
## Operands    As in kernels/nonzero/cpu.mako.
## Tiling      Tiles of group * run elements; each work-item takes `run` neighbouring ones.
## NDRange     (chunks * group): a work-group takes a chunk, an even partition of the elements.
## Workspace   counts[chunks]; local memory: flags of a tile, one sum for each work-item.
## Invariants  Barriers are uniform: a work-group has one chunk.
<%page args="name, unit, bits, output_mode, index, group, run, dims, element, combine"/>\
<%namespace name="workgroup" file="/common/workgroup.mako"/>\
<%namespace name="common" file="/nonzero/common.mako"/>\
<%include file="/common/partition.mako"/>\
<%
    tile = group * run
%>\
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_count(__global const ${unit} *mask, const long mask_at, const long size, __global long *counts)
{
    __local long sums[${group}];
    const int item = get_local_id(0);
    const long part = get_group_id(0);
    const long parts = get_num_groups(0);
    const ${index} first = partition_begin(size, 1, part, parts);
    const ${index} last = partition_begin(size, 1, part + 1, parts);
    mask += mask_at;
    ${index} count = 0;
    for (${index} i = first + item; i < last; i += ${group})
        count += ${common.is_hit("mask[i]", unit, bits)};
    sums[item] = count;
    ${total()}
    if (item == 0)
        counts[part] = sums[0];
}

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}(${common.parameters(output_mode, unit, element, dims)})
{
    __local long sums[${group}];
    __local int ends[${group}];
    __local uchar hits[${tile}];
    const int item = get_local_id(0);
    const long part = get_group_id(0);
    const long parts = get_num_groups(0);
    const ${index} first = partition_begin(size, 1, part, parts);
    const ${index} last = partition_begin(size, 1, part + 1, parts);
    ${common.begin(output_mode)}
    long before = 0;
    for (long p = item; p < part; p += ${group})
        before += counts[p];
    sums[item] = before;
    ${total()}
    before = sums[0];
    for (${index} start = first; start < last; start += ${tile}) {
        for (int j = item; j < ${tile}; j += ${group})
            hits[j] = start + j < last ? ${common.is_hit("mask[start + j]", unit, bits)} : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        int own = 0;
        for (int t = 0; t < ${run}; ++t)
            own += hits[item * ${run} + t];
        ends[item] = own;
        ${workgroup.inclusive_scan("int", "ends", group, "{0} + {1}", "0")}
        long k = before + ends[item] - own;
        for (int t = 0; t < ${run}; ++t) {
            const ${index} i = start + item * ${run} + t;
            if (hits[item * ${run} + t]) {
                ${store()}
                ++k;
            }
% if output_mode == "expand":
            else if (i < last)
                o[i] = x[i * x_step];
% endif
        }
        before += ends[${group - 1}];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
<%def name="total()">
    <%workgroup:tree_reduce group="get_local_size(0) / 2">
            sums[item] += sums[item + distance];
    </%workgroup:tree_reduce>
</%def>\
<%def name="store()">
% if output_mode == "expand":
                o[i] = ${combine.format(a="x[i * x_step]", b="y[k * y_step]")};
% elif output_mode == "assign":
                x[i * x_step] = ${combine.format(a="x[i * x_step]", b="y[k * y_step]")};
% elif output_mode == "select":
                o[k] = x[i * x_step];
% elif output_mode == "flat":
                o0[k] = i;
% else:
                ${index} rest = i;
    % for d in reversed(range(dims)):
        % if d:
                o${d}[k] = rest % (${index})n${d};
                rest /= (${index})n${d};
        % else:
                o0[k] = rest;
        % endif
    % endfor
% endif
</%def>\
