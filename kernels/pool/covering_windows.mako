## The windows that cover an element, for the gradients of pooling. The defs use the arguments of the template that
## calls them.
<%!
    from pytensor_cl.codegen.dtypes import ctype
%>
## The windows, first to last, that an element is in along dimension d.
<%def name="cover(d)">
<%
is_last = d == 2 or (d == 1 and square)
k, step = (f"({name}_taps)", f"({name}_step)") if is_last else (f"g.k[{d}]", f"g.step[{d}]")
%>\
% if d < skipped:
const ${index} first${d} = 0, last${d} = 1;
% elif spacing == "bins":
const ${index} first${d} = i${d} * (long)g.count[${d}] / g.n[${d}];
const ${index} last${d} = ((i${d} + 1) * (long)g.count[${d}] + g.n[${d}] - 1) / g.n[${d}];
% else:
% if spacing == "dilated":
const ${index} after${d} = i${d} + g.pad_lo[${d}] - (${k} - 1) * g.dilation[${d}] - 1;
% else:
const ${index} after${d} = i${d} + g.pad_lo[${d}] - ${k};
% endif
const ${index} first${d} = after${d} < 0 ? 0 : after${d} / ${step} + 1;
const ${index} last${d} = min(g.count[${d}], (i${d} + g.pad_lo[${d}]) / ${step} + 1);
% endif
</%def>

## The sum that element (i0, i1, i2) of the gradient gets from the windows that it is in.
<%def name="sum_gradients(plane)">
${ctype(other)} sum = 0;
for (${index} o0 = first0; o0 < last0; ++o0)
    for (${index} o1 = first1; o1 < last1; ++o1)
        for (${index} o2 = first2; o2 < last2; ++o2) {
            const ${index} o = ((${plane} * g.count[0] + o0) * g.count[1] + o1) * g.count[2] + o2;
            % if kind == "sum_grad":
            % if spacing == "dilated":
            if ((i0 + g.pad_lo[0] - o0 * g.step[0]) % g.dilation[0] == 0
                && (i1 + g.pad_lo[1] - o1 * g.step[1]) % g.dilation[1] == 0
                && (i2 + g.pad_lo[2] - o2 * g.step[2]) % g.dilation[2] == 0)  // one of its taps is here
            % endif
            sum += dy[o]
                / (${ctype(other)})(${name}_window_count(&g, 0, o0) * ${name}_window_count(&g, 1, o1)
                                    * ${name}_window_count(&g, 2, o2));
            % else:
            sum += argmax[o] == (i0 * g.n[1] + i1) * g.n[2] + i2 ? dy[o] : 0;
            % endif
        }
</%def>
