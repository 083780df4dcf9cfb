## Algorithm   fmod of vectors. PoCL 3.0's own does not return if a lane is zero, infinite or NaN.
<%page args="dtype"/>\
<%include file="/math/lane_vote.mako"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype
%>\
<%
T, M = ctype(dtype), "long" if dtype == "float64" else "int"
## Quotients below this are exact integers after trunc().
limit = "0x1p51" if dtype == "float64" else "0x1p22f"
%>\
% for lanes in (2, 4, 8, 16):
<% V, mask = f"{T}{lanes}", f"{M}{lanes}" %>\
static inline ${V} fmod_${V}(const ${V} x, const ${V} y)
{
    const ${V} a = fabs(x);
    const ${V} b = fabs(y);
    const ${V} quotient = trunc(a / b);
    const ${mask} plain = quotient < (${V})(${limit}) && b < (${V})(INFINITY);
    /* The quotient is at most one off, and then the remainder is exact: correct it by one step. */
    ${V} result = fma(-quotient, b, a);
    result = select(result, result + b, result < (${V})(0));
    result = select(result, result - b, result >= b);
    result = copysign(result, x);
    if (!every_lane(plain)) {
    % for k in range(lanes):
        if (!plain.s${f"{k:x}"})
            result.s${f"{k:x}"} = fmod(x.s${f"{k:x}"}, y.s${f"{k:x}"});
    % endfor
    }
    return result;
}

% endfor
