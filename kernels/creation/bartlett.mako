## Algorithm   The triangular window of `numpy.bartlett`, rounded as NumPy rounds.
## Operands    o: `size` > 1 values, contiguous.
## NDRange     cpu: (work-items), each with a contiguous range; simt: any size, a loop with it as stride.
<%page args="name, dtype, schedule"/>\
<%include file="/common/partition.mako"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
%>\
<% T, one = ctype(dtype), literal(1, dtype) %>\
__kernel void ${name}(__global ${T} *o, const long size)
{
% if schedule == "cpu":
    const long part = get_global_id(0);
    const long parts = get_global_size(0);
    for (long i = partition_begin(size, 1, part, parts); i < partition_begin(size, 1, part + 1, parts); ++i) {
% else:
    for (long i = get_global_id(0); i < size; i += get_global_size(0)) {
% endif
        const long n = 2 * i + 1 - size;
        const ${T} slope = (${T})n / (${T})(size - 1);
        o[i] = n <= 0 ? ${one} + slope : ${one} - slope;
    }
}
