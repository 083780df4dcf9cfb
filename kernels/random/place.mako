## Put the draws of each chunk where they belong, with the parameters of the distribution that do not change how many numbers a draw takes.
<%page args="name, kind, result, finish, varying, proper, lanes, schedule"/>\
<%namespace name="parts" file="/random/finish.mako"/>\
<% V = "double" if lanes == 1 else f"double{lanes}" %>\
__kernel ${"__attribute__((reqd_work_group_size(1, 1, 1)))" if schedule == "cpu" else ""}
void ${name}(__global const ${kind} *in, const long capacity, const long chunks, __global const long *where, const long at, const long size,
             __global ${result} *out${parts.arguments(varying)})
{
    #pragma OPENCL FP_CONTRACT OFF
    const long j = ${"get_global_id(0)" if schedule == "cpu" else "get_group_id(0)"}, start = where[chunks + j], count = min(where[j], size - start);
    in += j * capacity;
    out += at + start;
% for c, v in zip("abc", varying):
    % if v:
    ${c}_values += at + start;
    % endif
% endfor
${parts.constants(varying, V)}
    for (long i = ${f"0; i < count; i += {lanes}" if schedule == "cpu" else "get_local_id(0); i < count; i += get_local_size(0)"}) {
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
