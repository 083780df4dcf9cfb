## Transpose of a square of lanes x lanes elements in registers, in log2(lanes) steps of exchanges between pairs of
## vectors. `load` is row l, `store` the place of column l; they are C with "{l}" for the number.
<%def name="transpose(ctype, lanes, load, store)">
<%
    L, distances = range(lanes), [lanes >> i for i in range(1, lanes.bit_length())]
    item = lambda vector, lane: f"{vector}.s{lane:x}"
%>
{
    % for l in L:
    ${ctype}${lanes} r${l} = ${load.format(l=l)};
    % endfor
    % for d in distances:
    % for i in L:
    % if not i & d:
    {
        const ${ctype}${lanes} a = r${i}, b = r${i + d};
        r${i} = (${ctype}${lanes})(${", ".join(item("b", l - d) if l & d else item("a", l) for l in L)});
        r${i + d} = (${ctype}${lanes})(${", ".join(item("b", l) if l & d else item("a", l + d) for l in L)});
    }
    % endif
    % endfor
    % endfor
    % for l in L:
    ${store.format(l=l)} = r${l};
    % endfor
}
</%def>
