## table[i0], counted from the end where it is negative: statements of an element function. Lanes that do not exist
## repeat one that does. An index that is out of range is reported, and clamped.
<%page args="number, dtype, index_dtype, lanes, is_checked"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, to_long, vector_type
%>\
<%
whole, element = vector_type("int64", lanes), f"table{number}[tables.at[{number}] + {{}} * tables.step[{number}]]"
places = [f"place.s{k:x}" for k in range(lanes)] if lanes > 1 else ["place"]
halves = [1 << k for k in reversed(range(lanes.bit_length() - 1))]
%>\
const ${whole} given = ${to_long(ctype(index_dtype), "i0", lanes)};
const ${whole} length = tables.length[${number}];
${whole} place = given + ((given >> 63) & length);
% if is_checked:
/* Negative in lanes that are out of range. PoCL's any() takes as long as all the rest. */
const ${whole} outside${lanes} = place | (length - 1 - place);
    % for n in halves:
const ${vector_type("int64", n)} outside${n} = outside${2 * n}.lo | outside${2 * n}.hi;
    % endfor
if (outside1 < 0) {
    long lane[${lanes}];
    ${f"vstore{lanes}(given, 0, lane)" if lanes > 1 else "lane[0] = given"};
    for (int l = 0; l < ${lanes}; ++l)
        if (lane[l] < -tables.length[${number}] || lane[l] >= tables.length[${number}])
            report_error(error_flag, error_code, 0, lane[l], tables.length[${number}]);
    place = clamp(place, (${whole})0, length - 1);
}
% endif
o0 = ${f"({vector_type(dtype, lanes)})" if lanes > 1 else ""}(${", ".join(element.format(p) for p in places)});
