## Algorithm   Copy the draws of each chunk to their places in the result. The parameters that do not change how many
##             numbers a draw takes are applied here, by the expression `finish` of the draw z.
## Operands    in: `capacity` places for each chunk. where: for each chunk how many draws there are, then the number of
##             the first one in the batch. out begins with draw `at`; the batch has `size` draws.
## NDRange     cpu: (chunks), one work-item for each chunk. simt: one work-group for each chunk; draw i of the chunk
##             is for work-item i modulo their number.
## Workspace   None. Vectors are read past the last draw of a chunk.
## Invariants  Each draw depends on its own element of the parameters only.
## Reference   numpy.random.Generator.
<%page args="name, kind, result, finish, varying, proper, lanes, schedule"/>\
<%namespace name="parts" file="/random/finish.mako"/>\
<%
    V = "double" if lanes == 1 else f"double{lanes}"
    if schedule == "cpu":
        chunk, first, step = "get_global_id(0)", "0", lanes
    else:
        chunk, first, step = "get_group_id(0)", "get_local_id(0)", "get_local_size(0)"
%>\
__kernel ${"__attribute__((reqd_work_group_size(1, 1, 1)))" if schedule == "cpu" else ""}
void ${name}(__global const ${kind} *in, const long capacity, const long chunks, __global const long *where,
             const long at, const long size, __global ${result} *out${parts.arguments(varying)})
{
    #pragma OPENCL FP_CONTRACT OFF
    const long j = ${chunk};
    const long start = where[chunks + j];
    const long count = min(where[j], size - start);
    in += j * capacity;
    out += at + start;
% for c, v in zip("abc", varying):
    % if v:
    ${c}_values += at + start;
    % endif
% endfor
${parts.constants(varying, V)}
    for (long i = ${first}; i < count; i += ${step}) {
% if lanes == 1:
            const ${kind} z = in[i];
% else:
            const ${kind}${lanes} z = vload${lanes}(0, in + i);  /* there is room for more after the last chunk */
% endif
${parts.load(varying, V, lanes, "i", "count - i")}\
${parts.check(varying, proper, lanes)}\
${parts.store(result, finish, lanes, "i", "count - i")}\
    }
}
