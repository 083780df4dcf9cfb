## Algorithm   The states before each chunk of a loop whose steps are affine maps: prefixes of the products of the
##             chunks' maps. Each work-item multiplies the maps of a range of chunks; an inclusive scan over the
##             work-group gives the map of all ranges before its own (Hillis and Steele 1986; Blelloch 1990); then it
##             applies the maps of its range to the state one after the other. A work-group of one has one range.
## Operands    maps, starts: planes (number, member of the batch, chunk), as loop.mako has them; starts holds the states
##             before the first chunk. in_turn: zero for each member; the steps say where the states are not exact
##             enough.
## NDRange     (work-groups): one for each member of the batch.
## Invariants  `entries`: places (state, column) in a map; the diagonal is one at a state without a column.
<%page args="name, dtype, states, columns, entries, group"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype
%>\
<%
T = ctype(dtype)
numbers = [*(f"m{i}_{j}" for i, j in entries), *(f"v{i}" for i in range(states))]
S = range(states)


def factors(i):
    """Return the columns of a state, each with its element of the map `{m}`; None: it is one."""
    own = [(j, f"m{i}_{j}") for p, j in entries if p == i]
    return own if i in columns else [*own, (i, None)]


def applied(i, element, state):
    """Return the state after a map, whose elements and whose base `element` names; `state` names the one before."""
    terms = [f"{element(m)} * {state(j)}" if m else state(j) for j, m in factors(i)]
    return " + ".join([*terms, element(f"v{i}")])


def product(i, j, left, right):
    """Return an element of the product of two maps."""
    terms = [
        f"{left(m)} * {right(f'm{k}_{j}')}" if m else right(f"m{k}_{j}") for k, m in factors(i) if (k, j) in entries
    ]
    return " + ".join(terms)
%>\
typedef struct {
% for number in numbers:
    ${T} ${number};
% endfor
} ${name}_map;

static inline ${name}_map ${name}_load(__global const ${T} *maps, const long plane, const long at)
{
    ${name}_map map;
% for k, number in enumerate(numbers):
    map.${number} = maps[${k} * plane + at];
% endfor
    return map;
}

/* The map of steps `a`, then of steps `b`. */
static inline ${name}_map ${name}_then(const ${name}_map a, const ${name}_map b)
{
    ${name}_map both;
% for i, j in entries:
    both.m${i}_${j} = ${product(i, j, "b.{}".format, "a.{}".format)};
% endfor
% for i in S:
    both.v${i} = ${applied(i, "b.{}".format, "a.v{}".format)};
% endfor
    return both;
}

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}(__global const ${T} *maps, __global ${T} *starts, __global int *in_turn, const long members,
    const long chunks)
{
% if group > 1:
    const long member = get_group_id(0);
    const int item = get_local_id(0);
% else:
    const long member = get_global_id(0);
    const int item = 0;
% endif
    const long plane = members * chunks, row = member * chunks;
    const long each = (chunks - 1 + ${group - 1}) / ${group};
    const long begin = min(chunks - 1, item * each), end = min(chunks - 1, begin + each);
% for i in S:
    ${T} s${i} = starts[${i} * plane + row];
% endfor
% if group > 1:
    __local ${name}_map through[${group}];
    ${name}_map own;
    % for i, j in entries:
    own.m${i}_${j} = ${int(i == j)};
    % endfor
    % for i in S:
    own.v${i} = 0;
    % endfor
    for (long c = begin; c < end; ++c) {
        own = ${name}_then(own, ${name}_load(maps, plane, row + c));
    }
    through[item] = own;
    for (int distance = 1; distance < ${group}; distance *= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        const int has_lower = item >= distance;
        const ${name}_map lower = through[has_lower ? item - distance : item];
        barrier(CLK_LOCAL_MEM_FENCE);
        if (has_lower) {
            own = ${name}_then(lower, own);
            through[item] = own;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item > 0) {
        const ${name}_map before = through[item - 1];
    % for i in S:
        const ${T} first${i} = ${applied(i, "before.{}".format, "s{}".format)};
    % endfor
    % for i in S:
        s${i} = first${i};
    % endfor
    }
% endif
    for (long c = begin; c < end; ++c) {
        const ${name}_map map = ${name}_load(maps, plane, row + c);
% for i in S:
        const ${T} next${i} = ${applied(i, "map.{}".format, "s{}".format)};
% endfor
% for i in S:
        s${i} = next${i};
        starts[${i} * plane + row + c + 1] = s${i};
% endfor
    }
    if (item == 0)
        in_turn[member] = 0;
}
