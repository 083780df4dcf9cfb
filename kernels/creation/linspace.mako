## Algorithm   Evenly spaced values as NumPy computes them: number times step, plus the start; the last one is the stop
##             itself if `last` is its number.
## Operands    output: `size` elements, `step` apart. `statements` compute o0 from i0 (the number), i1 (the start), i2
##             (the difference) and i3 (the stop), of the dtype `wide`.
## NDRange     cpu: (work-items), each with a contiguous range; simt: any size, a loop with it as stride.
<%page args="name, dtype, wide, statements, schedule"/>
<%include file="/common/partition.mako"/>\
<%namespace name="elements" file="/common/each_element.mako"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype, part
%>
<% real = ctype(part(wide)) %>
__kernel void ${name}(__global ${ctype(dtype)} *output, const long output_at, const long step, const long size,
    const ${ctype(wide)} start, const ${ctype(wide)} difference, const ${ctype(wide)} stop, const long last)
{
    #pragma OPENCL FP_CONTRACT OFF
    output += output_at;
    <%elements:each n="size" schedule="${schedule}">
        const ${real} i0 = (${real})i;
        const ${ctype(wide)} i1 = start;
        const ${ctype(wide)} i2 = difference;
        const ${ctype(wide)} i3 = stop;
        const int is_last = i == last;
        ${ctype(dtype)} o0;
        ${statements}
        output[i * step] = o0;
    </%elements:each>
}
