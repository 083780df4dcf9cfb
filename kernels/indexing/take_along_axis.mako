## Algorithm   o[place] = x[place, i[place]] (take along an axis); `inverse`: o[place, i[place]] = x[place].
## Operands    shape[ndim], any strides; the elements to choose from are `step` apart, `length` of them.
## NDRange     cpu: (work-items), each with a contiguous range; simt: any size, a loop over units
##             (kernels/common/units.mako) with it as stride. A work-item has `lanes` elements in flight.
## Invariants  `mode` is for indices out of range: "wrap" and "clip" as in NumPy; "index" counts from the
##             end if negative; what is still out of range is reported, and taken for 0.
<%page args="name, plan, element, kind, mode, inverse, ndim, index, schedule, in_buffer, lanes"/>\
<%namespace name="units" file="/common/units.mako"/>\
<%include file="/common/partition.mako"/>\
<%!
from pytensor_cl.codegen.dtypes import to_long
%>\
<% last = ndim - 1 %>\
${plan.c_typedef(f"{name}_plan")}

static inline long ${name}_pick(const ${kind} given, const long length, volatile __global int *error_flag,
    const int error_code)
{
    long at = ${to_long(kind, "given")};
% if mode == "wrap":
    at %= length;
    at += at < 0 ? length : 0;
% elif mode == "clip":
    at = ${"at" if kind == "ulong" else "max(at, 0L)"};
    at = at < 0 || at >= length ? length - 1 : at;
% else:
    % if mode == "index":
    at += at < 0 ? length : 0;
    % endif
    if ((ulong)at >= (ulong)length) {
        report_error(error_flag, error_code, 0, given, length);
        at = 0;
    }
% endif
    return at;
}

__kernel void ${name}(__global const ${element} *x, __global const ${kind} *i, __global ${element} *o,
    ${"__global " if in_buffer else ""}const ${name}_plan ${"*given_plan" if in_buffer else "p"},
    volatile __global int *error_flag, const int error_code)
{
% if in_buffer:
    const ${name}_plan p = *given_plan;
% endif
    x += p.at_x;
    i += p.at_i;
    o += p.at_o;
% if schedule == "cpu":
    const long part = get_global_id(0);
    const long parts = get_global_size(0);
    const long end = partition_begin(p.size, 1, part + 1, parts);
    for (long e = partition_begin(p.size, 1, part, parts); e < end;) {
        const long row = e / p.shape[${last}];
        const long first = e - row * p.shape[${last}];
        const long stop = min(end, e - first + p.shape[${last}]);
        ${index} rest = row;
        ${index} at_o = first * p.o[${last}];
        ${index} at_x = first * p.x[${last}];
        ${index} at_i = first * p.i[${last}];
        ${place(range(last), index)}
        for (; e < stop; ++e) {
            const long at = ${name}_pick(i[at_i], p.length, error_flag, error_code) * p.step;
            ${"o[at_o + at] = x[at_x]" if inverse else "o[at_o] = x[at_x + at]"};
            at_o += p.o[${last}];
            at_x += p.x[${last}];
            at_i += p.i[${last}];
        }
    }
% else:
    ${units.loop(index, lanes, last, "0")}
        % for array in "oxi":
        ${index} at_${array} = 0;
        % endfor
        ${units.rows(index, last, [(f"at_{array}", f"p.{array}[{{}}]") for array in "oxi"])}
        % for q in range(lanes):
        const ${index} at_${q} = ${units.place(q)};
        % endfor
        % for q in range(lanes):
        const ${kind} given_${q} = i[at_i + at_${q} * p.i[${last}]];
        % endfor
        % for q in range(lanes):
        const ${index} pick_${q} = ${name}_pick(given_${q}, p.length, error_flag, error_code) * p.step;
        % endfor
        % for q in range(lanes):
        const ${element} moved_${q} = x[at_x + at_${q} * p.x[${last}]${"" if inverse else f" + pick_{q}"}];
        % endfor
        % for q in range(lanes):
        if (column + ${q} * spread < end)
            o[at_o + at_${q} * p.o[${last}]${f" + pick_{q}" if inverse else ""}] = moved_${q};
        % endfor
    }
% endif
}
<%def name="place(dims, index)">
        % for d in reversed(dims):
        {
            const ${index} n = ${f"rest % p.shape[{d}]" if d else "rest"};
            ${f"rest /= p.shape[{d}];" if d else ""}
            at_o += n * p.o[${d}];
            at_x += n * p.x[${d}];
            at_i += n * p.i[${d}];
        }
        % endfor
</%def>\
