## Algorithm   The flat index of an index along each dimension; `mode` is "raise", "wrap" or "clip". "unravel": the
##             index along each dimension of a flat index.
## Operands    One array for each dimension, the same number of elements in all.
## NDRange     cpu: (work-items), each with a contiguous range; simt: any size, a loop with it as stride.
## Invariants  An index that is out of range is reported ("raise", "unravel").
<%page args="name, mode, types, schedule, word, dims"/>\
<%include file="/common/partition.mako"/>\
<%namespace name="elements" file="/common/each_element.mako"/>\
<%!
from pytensor_cl.codegen.dtypes import to_long
%>\
<%
count, is_checked = len(types) if mode != "unravel" else None, mode in ("raise", "unravel")
%>\
<%def name="unravel(kind, ndim)">
${dims.c_typedef(f"{name}_dims")}

__kernel void ${name}(__global const ${kind} *flat, const long flat_at,
    ${"".join(f"__global long *o{k}, " for k in range(ndim))} const long size, const ${name}_dims d,
    volatile __global int *error_flag, const int error_code)
{
    flat += flat_at;
    <%elements:each n="size" schedule="${schedule}">
        long given = ${to_long(kind, "flat[i]")};
        if (given < 0 || given >= d.size) {
            report_error(error_flag, error_code, 0, given, d.size);
            given = 0;
        }
        ${word} rest = given;
    % for k in range(ndim):
        % if k < ndim - 1:
        o${k}[i] = rest % (${word})d.dim[${k}];
        rest /= (${word})d.dim[${k}];
        % else:
        o${k}[i] = rest;
        % endif
    % endfor
    </%elements:each>
}
</%def>\
% if mode == "unravel":
${unravel(types[0], len(types) - 1)}
% else:
${dims.c_typedef(f"{name}_dims")}

__kernel void ${name}(${"".join(f"__global const {kind} *i{k}, " for k, kind in enumerate(types))} __global long *o,
    const long size, const ${name}_dims d, volatile __global int *error_flag, const int error_code)
{
    int wrong = 0;
    <%elements:each n="size" schedule="${schedule}">
        long flat = 0;
    % for k in range(count):
        {
            long at = ${to_long(types[k], f"i{k}[d.at[{k}] + i]")};
        % if mode == "raise":
            wrong |= at < 0 || at >= d.dim[${k}];
        % elif mode == "wrap":
            at %= d.dim[${k}];
            at += at < 0 ? d.dim[${k}] : 0;
        % else:
            at = clamp(at, 0L, d.dim[${k}] - 1);
        % endif
            flat += at * d.weight[${k}];
        }
    % endfor
        o[i] = flat;
    </%elements:each>
    % if is_checked:
    if (wrong)
        report_error(error_flag, error_code, 0, 0, 0);
    % endif
}
% endif
