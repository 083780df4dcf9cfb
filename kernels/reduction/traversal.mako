## Loops over the dimensions of the input and of the output, for reductions and argmax. The defs use the arguments of
## the template that calls them.
<%!
    from pytensor_cl.codegen.dtypes import ctype
%>
## Calls the body for each run (x, n, step) of the innermost reduced dimension in the task's chunk.
<%def name="runs()">
        for (${index} at = first; at < last;) {
            ${divmod_index("at", "rest", "inner", "g.reduced[0]")}
            const ${index} n = min(g.reduced[0] - inner, last - at);
            const ${index} step = g.reduced_in[0];
            __global const ${ctype(in_dtype)} *x = input + in + inner * step;
            for (int d = 1; rest; ++d) {
                x += rest % g.reduced[d] * g.reduced_in[d];
                rest /= g.reduced[d];
            }
            at += n;
            ${caller.body()}
        }
</%def>

## Moves `in` and `out` to output number `rest` (in C order of the outer dimensions). Outer coordinates of a small
## number are zero, so the loop ends early. GPUs (`unrolled`) would copy the geometry into private memory
## for indices that are not constants.
<%def name="outer_offset(unrolled=False)">
% if unrolled:
% for d in range(outer_dims):
        ${"if (rest) " if d else ""}{
% if d < outer_dims - 1:
            ${divmod_index("rest", "quotient", "i", f"g.outer[{d}]")}
            rest = quotient;
% else:
            const ${index} i = rest;
% endif
            in += i * g.outer_in[${d}];
            out += i * g.outer_out[${d}];
        }
% endfor
% else:
        for (int d = 0; rest; ++d) {
            ${divmod_index("rest", "quotient", "i", "g.outer[d]")}
            rest = quotient;
            in += i * g.outer_in[d];
            out += i * g.outer_out[d];
        }
% endif
</%def>

## The output and the part of the reduced range that a work-item of schedule simt has: elements first + lane,
## first + lane + threads, .. below `last`, of output number output_index, which may not exist. `in` and `out` are the
## offsets of the output in both arrays. The numbers of work-items are powers of two: dividing them by a variable would
## take as long as a load.
<%def name="simt_task(along)">
    const ${index} item = get_local_id(0);
    const ${index} threads = g.threads_per_output;
    const int shift = 31 - clz((int)threads);
    const ${index} slots = ${group} >> shift;
    % if along:
    const ${index} lane = item & (threads - 1);
    const ${index} slot = item >> shift;
    % else:
    const ${index} lane = item >> (31 - clz((int)slots));
    const ${index} slot = item & (slots - 1);
    % endif
    const ${index} output_index = (${index})get_group_id(0) * slots + slot;
    const ${index} chunk = get_group_id(1);
    const ${index} first = chunk * g.chunk;
    const ${index} last = min(g.total, first + g.chunk);
    ${index} rest = output_index < g.outputs ? output_index : 0;
    ${index} in = 0;
    ${index} out = chunk * g.chunk_stride;
    ${outer_offset(unrolled=True)}
</%def>

## The place of element `rest` of the reduced range, in C order of the reduced dimensions, or (is_run) of one dimension;
## every index is a constant, for GPUs.
<%def name="reduced_offset(is_run=False)">
% if is_run:
    return rest * g->reduced_in[0];
% else:
    ${reduced_offset_of_several()}
% endif
</%def>

<%def name="reduced_offset_of_several()">
    ${index} at = 0;
% for d in range(reduced_dims - 1):
    ${"if (rest) " if d else ""}{
            ${divmod_index("rest", "quotient", "i", f"g->reduced[{d}]")}
            at += i * g->reduced_in[${d}];
            rest = quotient;
    }
% endfor
    return at + rest * g->reduced_in[${reduced_dims - 1}];
</%def>

## Divides a number. Most are smaller than the length, and division is slow.
<%def name="divmod_index(number, quotient, remainder, length)">
            ${index} ${quotient} = 0, ${remainder} = ${number};
            if (${remainder} >= ${length}) {
                ${quotient} = ${number} / ${length};
                ${remainder} -= ${quotient} * ${length};
            }
</%def>
