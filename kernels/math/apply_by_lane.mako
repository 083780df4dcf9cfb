## Algorithm   A function of scalars, applied to each lane.
<%page args="function, dtype, inputs"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype
%>\
<%
T = ctype(dtype)
%>\
% for lanes in (2, 4, 8, 16):
<% V = f"{T}{lanes}" %>\
static inline ${V} ${function}_${V}(${", ".join(f"const {V} x{k}" for k in range(inputs))})
{
    % for k in range(inputs):
    ${T} a${k}[${lanes}];
    vstore${lanes}(x${k}, 0, a${k});
    % endfor
    for (int k = 0; k < ${lanes}; ++k)
        a0[k] = ${function}_${T}(${", ".join(f"a{k}[k]" for k in range(inputs))});
    return vload${lanes}(0, a0);
}

% endfor
