## Long rows on schedule cpu: a radix sort from the lowest digit up. A task is a chunk of a row; each pass counts the digits of
## every chunk, makes of the counts where each chunk's share of each digit begins (scan), and moves the elements (scatter).
<%page args="name, key, to_key, from_key, element, indexed, wide, dims, index, bits, passes, steps"/>
<%namespace name="shared" file="/sort/keys.mako"/>
<%namespace name="radix" file="/sort/radix_common.mako"/>
<% E, R = element, "long" if indexed else key %>
${shared.rows()}
${shared.element()}
${radix.digits(E, "__attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))")}
<%def name="tasks()">
    const long tasks = g.rows * g.chunks, task_end = tasks * (get_global_id(0) + 1) / get_global_size(0);
    for (long task = tasks * get_global_id(0) / get_global_size(0); task < task_end; ++task) {
        const long row = task / g.chunks, chunk = task % g.chunks;
        const long start = chunk * g.chunk, end = min(g.length, start + g.chunk);
        __global ${index} *share = counts + row * ${1 << bits} * g.chunks + chunk;
        ${caller.body()}
    }
</%def>

% for first in (True, False):
% if first or passes > 1:
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}_count${"_first" if first else ""}(__global const ${key} *restrict input, const long input_at,
    __global const ${E} *restrict a, __global const ${E} *restrict b, __global ${index} *restrict counts,
    __global uint *diff, const int pass, const ${name}_geometry g)
{
    % if not first:
    const ulong varied = ${name}_varied(diff);
    if (pass < ${passes - 1} && ${name}_skips(varied, pass))
        return;
    % endif
    <%self:tasks>
        ${index} bins[${1 << bits}];
        for (int d = 0; d < ${1 << bits}; ++d)
            bins[d] = 0;
        ${radix.begin(first, E)}
        % if first:
        const ${key} reference = ${name}_key(x[0]);
        ${key} different = 0;
        % endif
        for (long i = start; i < end; ++i) {
            const ${E} e = ${radix.read(first)};
            ++bins[${name}_digit(e, pass)];
            % if first:
            different |= ${name}_key_of(e) ^ reference;
            % endif
        }
        for (int d = 0; d < ${1 << bits}; ++d)
            share[d * g.chunks] = bins[d];
        % if first:
        atomic_or(diff, (uint)different);
        atomic_or(diff + 1, (uint)((ulong)different >> 32));
        % endif
    </%self:tasks>
}
% endif
% endfor

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}_scan(__global ${index} *restrict counts, const ${name}_geometry g)
{
    for (long row = get_global_id(0); row < g.rows; row += get_global_size(0)) {
        __global ${index} *count = counts + row * ${1 << bits} * g.chunks;
        ${index} sum = 0;
        for (long k = 0; k < ${1 << bits} * g.chunks; ++k) {
            const ${index} own = count[k];
            count[k] = sum;
            sum += own;
        }
    }
}

% for first, last in steps:
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}_scatter${"_first" * first}${"_last" * last}(__global const ${key} *restrict input, const long input_at,
    __global ${E} *a, __global ${E} *b, __global ${R} *restrict output, const long output_at,
    __global ${index} *restrict counts, __global const uint *diff, const int pass, const ${name}_geometry g)
{
    % if not first:
    const ulong varied = ${name}_varied(diff);
    % endif
    % if not (first or last):
    if (${name}_skips(varied, pass))
        return;
    % endif
    <%self:tasks>
        ${index} next[${1 << bits}];
        for (int d = 0; d < ${1 << bits}; ++d)
            next[d] = share[d * g.chunks];
        ${radix.begin(first, E)}
        % if last:
        __global ${R} *y = output + output_at + ${name}_out(&g, row);
        % else:
        __global ${E} *y = ${"a" if first else f"({name}_turn(varied, pass) ? a : b)"} + row * g.length;
        % endif
        for (long i = start; i < end; ++i) {
            const ${E} e = ${radix.read(first)};
            const ${index} to = next[${name}_digit(e, pass)]++;
            ${f"y[to * g.out_step] = {name}_result(e)" if last else "y[to] = e"};
        }
    </%self:tasks>
}
% endfor
