## What the kernels of Winograd's convolution share. The defs see the arguments of the template that calls them.
## Apply a matrix, as routines/conv_transforms.py gives its code, to the column that is at `load(i)`.
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
<%def name="turn()">
<%
    vec, L, halves = f"conv_{ctype}{lanes}", range(lanes), [lanes >> i for i in range(1, lanes.bit_length())]
    item = lambda v, i: f"{v}.s{i:x}"
%>
// Exchange lanes and vectors.
static CONV_VECTORS(${8 * itemsize * lanes}) void ${name}_turn(__global const ${vec} *from, __global ${vec} *to)
{
    % for l in L:
    ${ctype}${lanes} r${l} = from[${l}];
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
    to[${l}] = r${l};
    % endfor
}
</%def>
