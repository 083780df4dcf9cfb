## Text that the kernels of both schedules share.

## Whether an element of the mask, of type `unit`, is nonzero: 0 or 1. `bits` are those that count; None for a bool.
<%def name="is_hit(value, unit, bits)" buffered="True" filter="trim">
% if bits is None:
${value}
% elif unit == "ulong2":
(((${value}.x | ${value}.y) & ${bits}) != 0)
% else:
((${value} & ${bits}) != 0)
% endif
</%def>

## The mask, the counts of the chunks, and what is read and written by an `output_mode`.
<%def name="parameters(output_mode, unit, element, dims)">\
__global const ${unit} *mask, const long mask_at, const long size, __global const long *counts,
% if output_mode in ("select", "expand"):
    __global const ${element} *x, const long x_at, const long x_step,
% endif
% if output_mode == "assign":
    __global ${element} *x, const long x_at, const long x_step, __global const ${element} *y, const long y_at,
    const long y_step
% elif output_mode == "expand":
    __global const ${element} *y, const long y_at, const long y_step, __global ${element} *o
% elif output_mode == "select":
    __global ${element} *o
% else:
    ${", ".join(f"__global long *o{d}" for d in range(dims))}${"".join(f", const long n{d}" for d in range(dims))}
% endif
</%def>

## Moves the pointers to the first elements.
<%def name="begin(output_mode)">
    mask += mask_at;
% if output_mode in ("select", "expand", "assign"):
    x += x_at;
% endif
% if output_mode in ("expand", "assign"):
    y += y_at;
% endif
</%def>
