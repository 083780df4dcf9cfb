## Draws that take one number of the generator each, as a uniform number z from 0 to 1; work-item j makes a chunk of them.
## `varying` tells which of the parameters a, b, c are arrays of the result's shape; `bad` is set where one is not `proper`.
## With `search` a draw is the number of sums of probabilities that are below z.
<%page args="name, generator, result, finish, varying, proper, search, schedule"/>\
<%
G = generator
parameters = [f"const double {c}_value" if not v else f"__global const double *{c}_values" for c, v in zip("abc", varying)]
if any(varying):
    parameters.append("__global int *bad")
if search:
    parameters += ["__global const double *sums", "const long categories", "const long rows", "__global const long *row_of"]
%>\
__kernel ${"__attribute__((reqd_work_group_size(1, 1, 1)))" if schedule == "cpu" else ""}
void ${name}(const ulong s_hi, const ulong s_lo, const ulong c_hi, const ulong c_lo, const long chunk, const long size,
             __global ${result} *out${"".join(f", {p}" for p in parameters)})
{
    #pragma OPENCL FP_CONTRACT OFF
    const random_u128 state = {s_hi, s_lo}, increment = {c_hi, c_lo};
    const long begin = get_global_id(0) * chunk, stop = min(begin + chunk, size);
    if (begin >= stop) return;
    ulong raw[RANDOM_BLOCK];
    random_u128 s = ${G}_jump(state, increment, begin);
% for c, v in zip("abc", varying):
    % if not v:
    const double ${c} = ${c}_value;
    % endif
% endfor
    for (long base = begin; base < stop; base += RANDOM_BLOCK) {
        s = ${G}_fill(s, increment, raw);
        const int count = min(stop - base, (long)RANDOM_BLOCK);
        for (int i = 0; i < count; ++i) {
            const double z = (double)(long)(raw[i] >> 11) * (1.0 / 9007199254740992.0);
% for c, v in zip("abc", varying):
    % if v:
            const double ${c} = ${c}_values[base + i];
    % endif
% endfor
% if any(varying):
            if (!(${proper})) *bad = 1;
% endif
% if search:
            __global const double *sum = sums + (rows == 1 ? 0 : row_of[base + i]) * categories;
            long low = 0, high = categories;
            while (low < high) {
                const long middle = (low + high) / 2;
                if (sum[middle] < z) low = middle + 1;
                else high = middle;
            }
            out[base + i] = (${result})low;
% else:
            out[base + i] = (${result})(${finish});
% endif
        }
    }
}
