## The search for the largest elements of windows for grad_rows.mako: their taps. The defs use the arguments of the
## template that calls them.
<%namespace name="order" file="/argmax/order.mako"/>
<%namespace name="parts" file="/pool/common.mako"/>
<%!
    import numpy as np
    from pytensor_cl.codegen.dtypes import ctype
%>
## Finds the tap of the first largest element of eight windows; a sum shows whether there may be a NaN.
<%def name="largest_of_eight()">
<% D, is_real = f"{ctype(dtype)}8", np.dtype(dtype).kind == "f" %>\
${D} largest = (${D})(${lowest}), sum = (${D})(0);
int8 best = (int8)((int)f1 * ${inner[0]});
for (int exact = ${int(not is_real)};; exact = 1) {
    __global const ${ctype(dtype)} *row = x + (at1 + f1) * g.n[2] + at2;
    for (int tap = (int)f1 * ${inner[0]}; tap < (int)l1 * ${inner[0]}; tap += ${inner[0]}, row += g.n[2])
        if (exact) {
            % for t in range(inner[0]):
            {
                const ${D} value = ${name}_load(row, ${t}, ${inner[0]}, ${inner[1]});
                const ${mask}8 wins = ${order.beats("value", "largest")};
                largest = wins ? value : largest;
                best = convert_int8(wins) ? (int8)(tap + ${t}) : best;
            }
            % endfor
        } else {
            % for t in range(inner[0]):
            {
                const ${D} value = ${name}_load(row, ${t}, ${inner[0]}, ${inner[1]});
                best = convert_int8(value > largest) ? (int8)(tap + ${t}) : best;
                largest = value > largest ? value : largest;
                sum += value;
            }
            % endfor
        }
    if (exact || !some_lane(sum != sum))
        break;
    largest = (${D})(${lowest});
    best = (int8)((int)f1 * ${inner[0]});
}
</%def>

## Finds it in one window.
<%def name="largest()">
${ctype(dtype)} largest = ${lowest};
int best = (int)(f1 * ${inner[0]} + f2);
<%call expr="parts.visit(1)">
            const int wins = ${order.beats("value", "largest")};
            largest = wins ? value : largest;
            best = wins ? (int)(t1 * ${inner[0]} + t2) : best;
</%call>
</%def>
