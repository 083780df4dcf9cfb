## Algorithm   The triangular window of `numpy.bartlett`, rounded as NumPy rounds.
## Operands    o: `size` > 1 values, contiguous.
## NDRange     cpu: (work-items), each with a contiguous range; simt: any size, a loop with it as stride.
<%page args="name, dtype, schedule"/>\
<%include file="/common/partition.mako"/>\
<%namespace name="elements" file="/common/each_element.mako"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
%>\
<% T, one = ctype(dtype), literal(1, dtype) %>\
__kernel void ${name}(__global ${T} *o, const long size)
{
    <%elements:each n="size" schedule="${schedule}">
        const long n = 2 * i + 1 - size;
        const ${T} slope = (${T})n / (${T})(size - 1);
        o[i] = n <= 0 ? ${one} + slope : ${one} - slope;
    </%elements:each>
}
