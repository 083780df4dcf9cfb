## Epilogue of a kernel: a function of each element that the kernel computed, applied before it is stored.
##
## Algorithm   in the function's statements `i0` is the kernel's element, i1.. are elements of further arrays (the
##             epilogue's operands), o0.. are the results.
## Operands    Matrices with any strides between rows and between columns; a `repeated` one has one column for all.
## The defs use the arguments of the template that calls them: name, starts (struct: offsets of the arrays of the
##     operands and of the results), inputs (dtypes of the operands), repeated (a bool for each), outputs (dtypes of the
##     results), statements.
<%!
    import numpy as np
    from pytensor_cl.codegen.dtypes import access_name, ctype, repeated as splat, vector_type
%>
<%def name="declarations(lanes)">
% for dtype in dict.fromkeys((*inputs, *outputs)) if lanes > 1 else ():
<% vector = vector_type(dtype, lanes) %>\
typedef ${vector} ${name}_${vector} __attribute__((aligned(${np.dtype(dtype).itemsize})));
% endfor
${starts.c_typedef(f"{name}_starts", "offsets of the operands' and of the results' arrays")}
typedef struct {  // first element of a matrix of each operand and result; strides of the operands
% for k, dtype in enumerate(inputs, 1):
    __global const ${ctype(dtype)} *i${k};
    long row${k}, col${k};
% endfor
% for k, dtype in enumerate(outputs):
    __global ${ctype(dtype)} *o${k};
% endfor
} ${name}_matrices;
</%def>

## Arguments of a kernel with an epilogue.
<%def name="parameters()">, ${name}_starts starts${
    "".join(f", __global const {ctype(t)} *I{k}" for k, t in enumerate(inputs, 1))}${
    "".join(f", __global {ctype(t)} *O{k}" for k, t in enumerate(outputs))}</%def>

## A condition: columns of all operands are contiguous.
<%def name="is_contiguous()">${
    "".join(f" && at->col{k} == 1" for k, is_repeated in enumerate(repeated, 1) if not is_repeated)}</%def>

## Pointers to the elements in row i and column j; `to` is the distance of the results from their first.
<%def name="pointers(i, j, to)">
% for k, dtype in enumerate(inputs, 1):
    const long step${k} = at->row${k};
    __global const ${ctype(dtype)} *p${k} = at->i${k} + (${i}) * step${k} + (${j}) * at->col${k};
% endfor
% for k, dtype in enumerate(outputs):
    __global ${ctype(dtype)} *r${k} = at->o${k} + ${to};
% endfor
</%def>

## Advance the pointers by a row; rows of the results are `step` apart.
<%def name="next_row(step)">
% for k in range(1, len(inputs) + 1):
    p${k} += step${k};
% endfor
% for k in range(len(outputs)):
    r${k} += ${step};
% endfor
</%def>

## Apply the function to `lanes` elements of a row, and store the results.
## Without `last_lane` all of them are there and contiguous; else those up to last_lane, and results are `step` apart.
<%def name="apply(lanes, step='1', last_lane='')">
% for k, dtype in enumerate(inputs, 1):
<% access, vector = access_name(dtype, lanes), vector_type(dtype, lanes) %>\
    % if repeated[k - 1] or lanes == 1:
    const ${vector} i${k} = ${splat(dtype, lanes, f"*p{k}")};
    % elif last_lane:
    const ${vector} i${k} = load_${access}(p${k}, at->col${k}, ${last_lane});
    % else:
    const ${vector} i${k} = *(__global const ${name}_${vector} *)p${k};
    % endif
% endfor
% for k, dtype in enumerate(outputs):
    ${vector_type(dtype, lanes)} o${k};
% endfor
    { ${statements} }
% for k, dtype in enumerate(outputs):
<% vector = vector_type(dtype, lanes) %>\
    % if last_lane:
    store_${access_name(dtype, lanes)}(o${k}, r${k}, ${step}, ${last_lane});
    % elif lanes > 1:
    *(__global ${name}_${vector} *)r${k} = o${k};
    % else:
    *(__global ${vector} *)r${k} = o${k};
    % endif
% endfor
</%def>
