## How reductions and argmax walk through their arrays. The defs see the arguments of the template that calls them.
<%!
    from pytensor_cl.codegen.dtypes import ctype
%>
## Calls the body for each run (x, n, step) of the innermost reduced dimension in the task's chunk.
<%def name="runs()">
        for (${index} at = first; at < last;) {
            ${split("at", "rest", "inner", "g.reduced[0]")}
            const ${index} n = min(g.reduced[0] - inner, last - at), step = g.reduced_in[0];
            __global const ${ctype(in_dtype)} *x = input + in + inner * step;
            for (int d = 1; rest; ++d) {
                x += rest % g.reduced[d] * g.reduced_in[d];
                rest /= g.reduced[d];
            }
            at += n;
            ${caller.body()}
        }
</%def>

## Moves `in` and `out` to output number `rest` (in C order of the kept dimensions). Outer coordinates of a small number are
## zero, so the loop ends early. GPUs (`unrolled`) would copy the geometry into private memory for indices that are not constants.
<%def name="kept_offset(unrolled=False)">
% if unrolled:
% for d in range(kept_dims):
        ${"if (rest) " if d else ""}{
% if d < kept_dims - 1:
            ${split("rest", "outer", "i", f"g.kept[{d}]")}
            rest = outer;
% else:
            const ${index} i = rest;
% endif
            in += i * g.kept_in[${d}];
            out += i * g.kept_out[${d}];
        }
% endfor
% else:
        for (int d = 0; rest; ++d) {
            ${split("rest", "outer", "i", "g.kept[d]")}
            rest = outer;
            in += i * g.kept_in[d];
            out += i * g.kept_out[d];
        }
% endif
</%def>

## Where element `rest` of the reduced range lies, in C order of the reduced dimensions; every index is a constant, for GPUs.
<%def name="reduced_offset()">
    ${index} at = 0;
% for d in range(reduced_dims - 1):
    ${"if (rest) " if d else ""}{
            ${split("rest", "outer", "i", f"g->reduced[{d}]")}
            at += i * g->reduced_in[${d}];
            rest = outer;
    }
% endfor
    return at + rest * g->reduced_in[${reduced_dims - 1}];
</%def>

## Divides a number. Most are smaller than the length, and division is slow.
<%def name="split(number, quotient, remainder, length)">
            ${index} ${quotient} = 0, ${remainder} = ${number};
            if (${remainder} >= ${length}) {
                ${quotient} = ${number} / ${length};
                ${remainder} -= ${quotient} * ${length};
            }
</%def>
