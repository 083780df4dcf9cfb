## Algorithm   Sorts long rows on CPUs: a radix sort from the lowest digit up. Each pass counts the digits of every
##             chunk (count), turns the counts into the places where each chunk writes each digit (scan), and moves the
##             elements (scatter). Passes whose digit is the same in all keys are skipped.
## Operands    input, output: as in kernels/sort/network_cpu.mako; a, b: contiguous rows of elements, ping-pong buffers.
## NDRange     (work-items): each takes a contiguous range of the tasks; a task is a chunk of a row.
## Workspace   counts[rows][2^bits][chunks]; difference: 64 bits, those in which keys of a row differ.
## Invariants  The order of equal keys stays: every pass is stable.
## Reference   D. E. Knuth, The Art of Computer Programming 3, algorithm 5.2.5R; M. Zagha, G. E. Blelloch, Radix sort
##             for vector multiprocessors, Supercomputing 1991.
<%page args="name, geometry, key, to_key, from_key, element, indexed, is_128_bit, dims, index, bits, passes, steps"/>
<%include file="/common/partition.mako"/>\
<%namespace name="shared" file="/sort/keys.mako"/>
<%namespace name="radix" file="/sort/radix_common.mako"/>
<% E, R = element, "long" if indexed else key %>
${shared.rows()}
${shared.element()}
${radix.digits(E, "__attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))")}
<%def name="tasks()">
    const long tasks = g.rows * g.chunks;
    const long task_end = partition_begin(tasks, 1, get_global_id(0) + 1, get_global_size(0));
    for (long task = partition_begin(tasks, 1, get_global_id(0), get_global_size(0)); task < task_end; ++task) {
        const long row = task / g.chunks;
        const long chunk = task % g.chunks;
        const long start = chunk * g.chunk;
        const long end = min(g.length, start + g.chunk);
        __global ${index} *histogram_slice = counts + row * ${1 << bits} * g.chunks + chunk;
        ${caller.body()}
    }
</%def>

% for first in (True, False):
% if first or passes > 1:
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}_count${"_first" if first else ""}(__global const ${key} *restrict input, const long input_at,
    __global const ${E} *restrict a, __global const ${E} *restrict b, __global ${index} *restrict counts,
    __global uint *difference, const int pass, const ${name}_geometry g)
{
    % if not first:
    const ulong differing_bits = ${name}_differing_bits(difference);
    if (pass < ${passes - 1} && ${name}_is_skipped(differing_bits, pass))
        return;
    % endif
    <%self:tasks>
        ${index} histogram[${1 << bits}];
        for (int d = 0; d < ${1 << bits}; ++d)
            histogram[d] = 0;
        ${radix.begin(first, E)}
        % if first:
        const ${key} reference = ${name}_key(x[0]);
        ${key} different = 0;
        % endif
        for (long i = start; i < end; ++i) {
            const ${E} e = ${radix.read(first)};
            ++histogram[${name}_digit(e, pass)];
            % if first:
            different |= ${name}_key_of(e) ^ reference;
            % endif
        }
        for (int d = 0; d < ${1 << bits}; ++d)
            histogram_slice[d * g.chunks] = histogram[d];
        % if first:
        atomic_or(difference, (uint)different);
        atomic_or(difference + 1, (uint)((ulong)different >> 32));
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
    __global ${index} *restrict counts, __global const uint *difference, const int pass, const ${name}_geometry g)
{
    % if not first:
    const ulong differing_bits = ${name}_differing_bits(difference);
    % endif
    % if not (first or last):
    if (${name}_is_skipped(differing_bits, pass))
        return;
    % endif
    <%self:tasks>
        ${index} next[${1 << bits}];
        for (int d = 0; d < ${1 << bits}; ++d)
            next[d] = histogram_slice[d * g.chunks];
        ${radix.begin(first, E)}
        ${radix.target(first, last, E)}
        for (long i = start; i < end; ++i) {
            const ${E} e = ${radix.read(first)};
            const ${index} to = next[${name}_digit(e, pass)]++;
            ${f"y[to * g.out_step] = {name}_result(e)" if last else "y[to] = e"};
        }
    </%self:tasks>
}
% endfor
