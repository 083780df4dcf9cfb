## Algorithm   Draws that take one number of the generator each. It becomes a number z, uniform from 0 to 1. `finish` is
##             the expression of the draw. With `search` a draw is the number of sums of probabilities that are
##             below z, found by bisection.
## Operands    `state`: numbers that make up the generator's sequence; out[size]. sums[rows, categories]; row_of[size]:
##             the row of each draw, not read if there is one row.
## NDRange     (work-items). Schedule cpu: work-item j makes the draws from j * chunk on. None beyond `size`.
##             Schedule simt: neighbours make neighbouring draws; for PCG, `stride` leads to the state a whole
##             NDRange ahead.
## Workspace   Schedule cpu: one block of the generator for each work-item, in private memory.
## Invariants  Draw i takes number i of the sequence, whatever the NDRange is.
## Reference   numpy.random.Generator.
<%page args="name, generator, state, result, finish, varying, proper, search, lanes, schedule"/>\
<%namespace name="parts" file="/random/finish.mako"/>\
<%
    G, V = generator, "double" if lanes == 1 else f"double{lanes}"
    tables = ", __global const double *sums, const long categories, const long rows, __global const long *row_of"
    unit = "(1.0 / 9007199254740992.0)"
    counts = G == "philox4x64"
    stride = () if counts else ("stride_m_hi", "stride_m_lo", "stride_c_hi", "stride_c_lo")
    values = [f"const ulong {x}" for x in (*state, *(() if schedule == "cpu" else stride))]
%>\
<%def name="draw(raw, at, left)">\
% if search:
            const double z = (double)(long)(${raw} >> 11) * ${unit};
            __global const double *sum = sums + (rows == 1 ? 0 : row_of[${at}]) * categories;
            long low = 0, high = categories;
            while (low < high) {
                const long middle = (low + high) / 2;
                if (sum[middle] < z) low = middle + 1;
                else high = middle;
            }
            out[${at}] = (${result})low;
% else:
    % if lanes == 1:
            const double z = (double)(long)(${raw} >> 11) * ${unit};
    % else:
            const long${lanes} bits = vload${lanes}(0, (const long *)raw + i) >> 11 & 0x1fffffffffffffL;
            const ${V} z = convert_${V}(bits) * ${unit};
    % endif
${parts.load(varying, V, lanes, at, left)}\
${parts.check(varying, proper, lanes)}\
${parts.store(result, finish, lanes, at, left)}\
% endif
</%def>\
__kernel ${"__attribute__((reqd_work_group_size(1, 1, 1)))" if schedule == "cpu" else ""}
void ${name}(${", ".join(values)},
             ${"const long chunk, " if schedule == "cpu" else ""}const long size,
             __global ${result} *out${parts.arguments(varying)}\
${tables if search else ""})
{
    #pragma OPENCL FP_CONTRACT OFF
    const ${G}_sequence sequence = {${", ".join(state)}};
${parts.constants(varying, V)}
% if schedule == "simt":
    % if not counts:
    const random_u128 multiplier = {stride_m_hi, stride_m_lo}, addend = {stride_c_hi, stride_c_lo};
    random_u128 s = ${G}_jump(sequence.s, sequence.c, get_global_id(0));
    % endif
    for (long i = get_global_id(0); i < size; i += get_global_size(0)) {
    % if counts:
        const ulong raw = ${G}_number(sequence, i);
    % else:
        const ulong raw = ${G}_output(s.hi, s.lo);
        s = random_add(random_mul(s, multiplier), addend);
    % endif
        {
            ${draw("raw", "i", "1")}
        }
    }
% else:
    const long begin = get_global_id(0) * chunk, stop = min(begin + chunk, size);
    if (begin >= stop) return;
    ulong raw[RANDOM_BLOCK];
    ${G}_state s = ${G}_at(sequence, begin);
    for (long base = begin; base < stop; base += RANDOM_BLOCK) {
        ${G}_fill(&s, raw);
        const long count = min(stop - base, (long)RANDOM_BLOCK);
        for (long i = 0; i < count; i += ${1 if search else lanes}) {
${draw("raw[i]", "base + i", "count - i")}\
        }
    }
% endif
}
