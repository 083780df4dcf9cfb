## Text that the kernels of schedule simt share: arguments, where arrays begin, and the outer dimensions. The defs use
## the arguments of the template that calls them: inputs and outputs (dtypes), by_value (a bool for each input), plan
## and offsets (structs), plan_in_buffer.
<%!
from pytensor_cl.codegen.dtypes import ctype
%>

## Inputs by value are i<k>; arrays are b_i<k> and b_o<k>.
<%def name="parameters()">
    % for k, (dtype, value) in enumerate(zip(inputs, by_value, strict=True)):
    const ${ctype(dtype) if value else ""} ${f"i{k}" if value else f"__global {ctype(dtype)} *b_i{k}"},
    % endfor
    % for k, dtype in enumerate(outputs):
    __global ${ctype(dtype)} *b_o${k},
    % endfor
    const ${name}_offsets offset,
    ${"__global " if plan_in_buffer else ""}const ${name}_plan ${"*plan" if plan_in_buffer else "p"}
</%def>

## Declares p, and moves the pointers to where the arrays begin.
<%def name="begin(arrays)">
    % if plan_in_buffer:
    const ${name}_plan p = *plan;
    % endif
    % for a, array in enumerate(arrays):
    b_${array} += offset.at[${a}];
    % endfor
</%def>

## Declares at_<array>, the element with index `rest` along the first `dims` dimensions, in C order.
<%def name="outer_offsets(arrays, dims)">
        % for array in arrays:
        ${index} at_${array} = 0;
        % endfor
        % for d in reversed(range(dims)):
        {
            const u${index} i = ${f"rest % (u{index})p.shape[{d}]" if d else "rest"};
            ${f"rest /= (u{index})p.shape[{d}];" if d else ""}
            % for a, array in enumerate(arrays):
            at_${array} += (${index})i * p.stride[${a}][${d}];
            % endfor
        }
        % endfor
</%def>
