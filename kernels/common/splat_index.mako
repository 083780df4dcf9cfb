## Loads elements that are the same for several lanes in a row. A table has the index of each lane; where `is_wide`, a
## vector has at most two of them.
<%page args="dtype, lanes, is_wide"/>\
<%!
import numpy as np

from pytensor_cl.codegen.dtypes import access_name, ctype, repeated, vector_type

MASK = {1: "char", 2: "short", 4: "int", 8: "long"}  # of a comparison's outcome, by bytes
%>\
<%
T, V, top = ctype(dtype), vector_type(dtype, lanes), lanes - 1
size = np.dtype(dtype).itemsize
%>\
static inline ${V} spread_${access_name(dtype, lanes)}(__global const ${T} *p, __global const int *place,
    const int last)
{
% if is_wide and size in MASK and dtype != "complex64":
    const ${V} first = ${repeated(dtype, lanes, "p[place[0]]")};
    if (place[0] == place[last])
        return first;
    return convert_${MASK[size]}${lanes}(*(__global const int${lanes} *)place == place[0]) ? first
        : ${repeated(dtype, lanes, "p[place[last]]")};
% else:
    if (last == ${top})
        return (${V})(${", ".join(f"p[place[{k}]]" for k in range(lanes))});
    return (${V})(${", ".join(f"p[place[min({k}, last)]]" for k in range(lanes))});
% endif
}
