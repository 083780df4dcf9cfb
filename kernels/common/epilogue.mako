## What kernels share that apply a function to the elements that they store: `i0` is what they computed, i1.. come from further
## arrays, and the results go where o0.. are. The defs see the arguments of the template that calls them: name, inputs (dtypes of
## the further arrays), repeated (which of them have one column for all), outputs (dtypes), statements.
<%!
    import numpy as np
    from pytensor_cl.codegen.dtypes import access_name, ctype, repeated as same, vector_type
%>
<%def name="declarations(lanes)">
% for dtype in dict.fromkeys((*inputs, *outputs)) if lanes > 1 else ():
typedef ${vector_type(dtype, lanes)} ${name}_${vector_type(dtype, lanes)} __attribute__((aligned(${np.dtype(dtype).itemsize})));
% endfor
typedef struct { long in[${max(1, len(inputs))}], out[${len(outputs)}]; } ${name}_starts;  // offsets of the further arrays
typedef struct {  // where the first element of a matrix lies in them, and the steps from row to row and from column to column
% for k, dtype in enumerate(inputs, 1):
    __global const ${ctype(dtype)} *i${k};
    long row${k}, col${k};
% endfor
% for k, dtype in enumerate(outputs):
    __global ${ctype(dtype)} *o${k};
% endfor
} ${name}_matrices;
</%def>

## What a kernel takes for them.
<%def name="parameters()">, ${name}_starts starts${
    "".join(f", __global const {ctype(t)} *I{k}" for k, t in enumerate(inputs, 1))}${
    "".join(f", __global {ctype(t)} *O{k}" for k, t in enumerate(outputs))}</%def>

## A condition: neighbouring columns are neighbours in memory.
<%def name="is_unit()">${"".join(f" && at->col{k} == 1" for k, r in enumerate(repeated, 1) if not r)}</%def>

## Pointers to the elements in row i and column j, and the steps from row to row of what is read; `to` is the distance of the
## results from their first.
<%def name="pointers(i, j, to)">
% for k, dtype in enumerate(inputs, 1):
    const long step${k} = at->row${k};
    __global const ${ctype(dtype)} *p${k} = at->i${k} + (${i}) * step${k} + (${j}) * at->col${k};
% endfor
% for k, dtype in enumerate(outputs):
    __global ${ctype(dtype)} *r${k} = at->o${k} + ${to};
% endfor
</%def>

## From row to row; results lie `step` apart.
<%def name="next_row(step)">
% for k in range(1, len(inputs) + 1):
    p${k} += step${k};
% endfor
% for k in range(len(outputs)):
    r${k} += ${step};
% endfor
</%def>

## Apply the function to `lanes` elements of a row, and store the results.
## Without `top` all of them are there and neighbours; else those up to number `top`, and results lie `step` apart.
<%def name="apply(lanes, step='1', top='')">
% for k, dtype in enumerate(inputs, 1):
<%
    access, vector = access_name(dtype, lanes), vector_type(dtype, lanes)
    one = repeated[k - 1] or lanes == 1
    read = f"load_{access}(p{k}, at->col{k}, {top})" if top else f"*(__global const {name}_{vector} *)p{k}"
%>\
    const ${vector} i${k} = ${same(dtype, lanes, f"*p{k}") if one else read};
% endfor
% for k, dtype in enumerate(outputs):
    ${vector_type(dtype, lanes)} o${k};
% endfor
    { ${statements} }
% for k, dtype in enumerate(outputs):
    ${f"store_{access_name(dtype, lanes)}(o{k}, r{k}, {step}, {top})" if top else f"*(__global {f'{name}_' if lanes > 1 else ''}{vector_type(dtype, lanes)} *)r{k} = o{k}"};
% endfor
</%def>
