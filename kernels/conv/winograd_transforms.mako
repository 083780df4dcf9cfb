## What the kernels of Winograd's convolution share. The defs see the arguments of the template that calls them.
## Apply a matrix, as routines/conv/winograd_transforms.py gives its code, to the column that is at `load(i)`.
<%def name="transform(form, load, store)">
{
    % for i in range(form[0]):
    const ${ctype}${lanes} x${i} = ${load(i)};
    % endfor
    % for line in form[1]:
    ${line}
    % endfor
    % for i, value in enumerate(form[2]):
    ${store(i)} = ${value};
    % endfor
}
</%def>
## Exchange lanes and vectors.
<%def name="turn(load, store)">
<%
    L, halves = range(lanes), [lanes >> i for i in range(1, lanes.bit_length())]
    item = lambda v, i: f"{v}.s{i:x}"
%>
{
    % for l in L:
    ${ctype}${lanes} r${l} = ${load(l)};
    % endfor
    % for h in halves:
    % for i in (i for i in L if not i & h):
    {
        const ${ctype}${lanes} a = r${i}, b = r${i + h};
        r${i} = (${ctype}${lanes})(${", ".join(item("b", l - h) if l & h else item("a", l) for l in L)});
        r${i + h} = (${ctype}${lanes})(${", ".join(item("b", l) if l & h else item("a", l + h) for l in L)});
    }
    % endfor
    % endfor
    % for l in L:
    ${store(l)} = r${l};
    % endfor
}
</%def>
