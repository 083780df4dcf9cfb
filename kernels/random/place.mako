## Put the draws of each chunk where they belong, with the parameters of the distribution that do not change how many numbers a draw takes.
## `varying` tells which of the parameters a, b, c are arrays of the result's shape; `bad` is set where one is not `proper`.
<%page args="name, kind, result, finish, varying, proper, schedule"/>\
<%
parameters = [f"const double {c}_value" if not v else f"__global const double *{c}_values" for c, v in zip("abc", varying)]
if any(varying):
    parameters.append("__global int *bad")
%>\
__kernel ${"__attribute__((reqd_work_group_size(1, 1, 1)))" if schedule == "cpu" else ""}
void ${name}(__global const ${kind} *in, const long capacity, const long chunks, __global const long *where, const long at, const long size,
             __global ${result} *out${"".join(f", {p}" for p in parameters)})
{
    #pragma OPENCL FP_CONTRACT OFF
    const long j = ${"get_global_id(0)" if schedule == "cpu" else "get_group_id(0)"}, start = where[chunks + j], count = min(where[j], size - start);
    in += j * capacity;
    out += at + start;
% for c, v in zip("abc", varying):
    % if v:
    ${c}_values += at + start;
    % else:
    const double ${c} = ${c}_value;
    % endif
% endfor
    for (long i = ${"0; i < count; ++i" if schedule == "cpu" else "get_local_id(0); i < count; i += get_local_size(0)"}) {
        const ${kind} z = in[i];
% for c, v in zip("abc", varying):
    % if v:
        const double ${c} = ${c}_values[i];
    % endif
% endfor
% if any(varying):
        if (!(${proper})) *bad = 1;
% endif
        out[i] = (${result})(${finish});
    }
}
