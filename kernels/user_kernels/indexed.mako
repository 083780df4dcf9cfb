## Algorithm   A function that a user wrote, of each element and of what else it indexes: its number, and raw arrays.
## Operands    `arguments`: for each parameter its variable (i0.. inputs, o0.. outputs), C type, kind (array, value or
##             raw) and, of a raw array, its number of dimensions. Arrays have any strides; raw arrays are contiguous.
## NDRange     cpu: (work-items), each with a contiguous range; simt: any size, a loop with it as stride.
<%page args="name, plan, offsets, arguments, statements, ndim, index, plan_in_buffer, schedule"/>\
<%namespace name="elements" file="/common/each_element.mako"/>\
<%namespace name="unravel" file="/common/unravel.mako"/>\
<%include file="/common/partition.mako"/>\
<%
places = [variable for variable, _, kind, _ in arguments if kind != "value"]
arrays = [variable for variable, _, kind, _ in arguments if kind == "array"]
type_of = {variable: c_type for variable, c_type, _, _ in arguments}
%>\
${plan.c_typedef(f"{name}_plan")}
${offsets.c_typedef(f"{name}_offsets")}

__kernel ${"__attribute__((reqd_work_group_size(1, 1, 1)))" if schedule == "cpu" else ""}
void ${name}(
% for variable, c_type, kind, _ in arguments:
    % if kind == "value":
    const ${c_type} ${variable},
    % else:
    __global ${"const " if variable[0] == "i" else ""}${c_type} *b_${variable},
    % endif
% endfor
    const ${name}_offsets offset,
    ${"__global " if plan_in_buffer else ""}const ${name}_plan ${"*plan" if plan_in_buffer else "p"})
{
% if plan_in_buffer:
    const ${name}_plan p = *plan;
% endif
% for place, variable in enumerate(places):
    b_${variable} += offset.at[${place}];
% endfor
    const long elements = p.elements;
% for variable, _, kind, dims in arguments:
    % if kind == "raw":
    const long size_${variable} = p.size_${variable};
    const long shape_${variable}[] = {${", ".join(f"p.shape_{variable}[{d}]" for d in range(max(dims, 1)))}};
    % endif
% endfor
    <%elements:each n="elements" schedule="${schedule}">
        const long element = i;
        % for variable in arrays:
        ${index} at_${variable} = 0;
        % endfor
        % if arrays:
        {
            ${index} rest = element;
            ${unravel.unravel(range(ndim), index, "rest", "p.shape[{}]",
                [(f"at_{variable}", f"p.stride[{a}][{{}}]") for a, variable in enumerate(arrays)])}
        }
        % endif
        % for variable in arrays:
        % if variable[0] == "i":
        const ${type_of[variable]} ${variable} = b_${variable}[at_${variable}];
        % else:
        ${type_of[variable]} ${variable};
        % endif
        % endfor
        {
            ${statements}
        }
        % for variable in arrays:
        % if variable[0] == "o":
        b_${variable}[at_${variable}] = ${variable};
        % endif
        % endfor
    </%elements:each>
}
