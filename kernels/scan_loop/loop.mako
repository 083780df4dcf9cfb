## Algorithm   A loop over time. A work-item has one element of a batch, or (schedule cpu) up to `vectors` vectors of
##             `lanes` of them, which it advances in turn. States are private; sequences are read, outputs written
##             step by step.
## Operands    b0.. according to `operands`; the geometry has their strides in elements. `arrays`: what a step reads
##             and writes (pytensor_cl/routines/scan_loop/program.py).
## NDRange     (work-items): each takes a contiguous range of the chunks of a row (schedule cpu), or every so many.
##             With a condition, the last operand takes the number of steps that were run.
## Chunks      `part` "maps" and "steps": the last dimension of the shape is that of chunks of time, and lanes are
##             chunks. Each has g.chunk steps, but for the last one, which has the rest, in a vector of its own. "maps"
##             writes the map of the steps of each chunk but the last, states behind it = entries * states before it +
##             bases (`linear`, a LinearStep), and the states before the first chunk. Both are planes: number of the
##             entry or state, member of the batch, chunk. "steps" reads the states before each chunk (starts.mako), and
##             runs the steps. Where the states behind a chunk are not those from which the next one has begun, it sets
##             `in_turn` for the member. The same kernel then runs once more (`again`): the last chunk of such a member
##             is all steps, and nothing else is done.
## Invariants  Lanes run along the last axis. Lanes past its end repeat the last element. An output without some axis
##             is written by the work-item at position 0 of it.
<%page args="name, arrays, operands, statements, geometry, axes, has_axes,
             lanes, vectors, schedule, in_buffer, condition, condition_dtype, part='whole', linear=None"/>\
<%!
from pytensor_cl.codegen.dtypes import access_name, ctype, literal, repeated, vector_type
%>\
<%
V = lambda dtype: vector_type(dtype, lanes)
T = ctype
input_of = {o.number: k for k, o in enumerate(operands) if not o.is_output}
output_of = {o.number: k for k, o in enumerate(operands) if o.is_output}
each = "for (int v = 0; v < count; ++v) {" if vectors > 1 else "{ const int v = 0;"
if lanes > 1 and part == "whole":
    each += f" const int last = (int)min((long){lanes}, g.shape[{axes - 1}] - (first + v) * {lanes}) - 1;"
at = "[v]" if vectors > 1 else ""
extent = f"[{vectors}]" if vectors > 1 else ""
E = lambda a: range(len(a.elements))
has_lane_axis = lambda k: any(d.kind == ("axis" if part == "whole" else "time") for d in operands[k].dims)
every_axis = lambda k: sum(d.kind == "axis" for d in operands[k].dims) == axes - (part != "whole") or not has_axes


def place(k, element, row):
    """Return the offset of an element of a row, relative to the first element of the work-item."""
    index = arrays[operands[k].number].elements[element]
    parts = [f"g.at[{k}].core[{d}] * {i}" for d, i in enumerate(index) if i]
    return " + ".join([f"({row}) * g.at[{k}].time", *parts] if row else parts or ["0"])


def load(k, element, row):
    array = arrays[operands[k].number]
    pointer = f"p{k} + {place(k, element, row)}"
    if lanes == 1:
        return f"({pointer})[0]"
    if not has_lane_axis(k):
        return repeated(array.dtype, lanes, f"({pointer})[0]")
    if part != "whole":
        one = repeated(array.dtype, lanes, f"({pointer})[0]")
        return f"(last ? load_{access_name(array.dtype, lanes)}({pointer}, s{k}, {lanes - 1}) : {one})"
    return f"load_{access_name(array.dtype, lanes)}({pointer} + v * {lanes} * s{k}, s{k}, last)"


def store(k, element, row, value):
    array = arrays[operands[k].number]
    pointer = f"p{k} + {place(k, element, row)}"
    condition = "" if every_axis(k) else f"if (m{k} && (!g.at[{k}].spread[{axes - 1}] || (first == 0 && v == 0))) "
    if lanes == 1:
        return f"{condition}({pointer})[0] = {value};"
    if part != "whole":
        whole = f"store_{access_name(array.dtype, lanes)}({value}, {pointer}, s{k}, {lanes - 1})"
        return f"{condition}{{ if (last) {whole}; else ({pointer})[0] = ({value}).s0; }}"
    end = "last" if every_axis(k) else f"(g.at[{k}].spread[{axes - 1}] ? 0 : last)"
    return f"{condition}store_{access_name(array.dtype, lanes)}({value}, {pointer} + v * {lanes} * s{k}, s{k}, {end});"


def keep(a, element, row, value):
    """Store a row of a trace, unless the output has the last rows only. Of a loop that may end early, write the rows
    around: which are the last ones is known when it has ended."""
    if condition is not None:
        place = f"({row} < rows{a} ? ({row}) : ({row}) % rows{a})"
        return f"if (rows{a} > 0) {{ {store(output_of[a], element, place, value)} }}"
    if part == "steps" and lanes > 1:
        # The last chunk has all rows that are kept of an output that lacks the first ones.
        row_is_kept = f"{row} >= lost{a} && (last == 0 || lost{a} == 0)"
        return f"if ({row_is_kept}) {{ {store(output_of[a], element, f'{row} - lost{a}', value)} }}"
    return f"if ({row} >= lost{a}) {{ {store(output_of[a], element, f'{row} - lost{a}', value)} }}"


def zero(dtype):
    return repeated(dtype, lanes, "0")


def clear(a, element, first):
    """Store zeros behind the last row that the loop reaches."""
    return f"for (long row = {first}; row < rows{a}; ++row) {keep(a, element, 'row', zero(arrays[a].dtype))}"


held = [(a, array) for a, array in enumerate(arrays) if array.role not in ("sequence", "output")]
first_held = {"state": 1, "sum": 0, "last": 1, "constant": 0}
last_chunk = "if (is_rest) " if part == "steps" else ""


def initial(a, row, e):
    """Load what a work-item holds of an array before the first step."""
    return load(input_of[a], e, initial_row(a, row))


def initial_row(a, row):
    return {"state": f"{arrays[a].window - row}L", "sum": f"{row}L", "last": ""}[arrays[a].role]


def plane(buffer, number, chunk):
    return f"{buffer} + ({number} * members + member) * g.shape[{axes - 1}] + {chunk}"


FLUSHED_STEPS = 64
if linear is not None:
    smallest = repeated(linear.dtype, lanes, literal(linear.negligible, linear.dtype))
    tolerance, rounding = (literal(value, linear.dtype) for value in (linear.tolerance, linear.rounding))


def put(buffer, number, chunk, value):
    """Store one number of each chunk."""
    if lanes == 1:
        return f"({plane(buffer, number, chunk)})[0] = {value};"
    return f"store_{access_name(linear.dtype, lanes)}({value}, {plane(buffer, number, chunk)}, 1, last);"


def from_plane(i, chunk):
    """Load a state, or its square, before each chunk."""
    pointer = plane("starts", i, chunk)
    return f"({pointer})[0]" if lanes == 1 else f"load_{access_name(linear.dtype, lanes)}({pointer}, 1, last)"


def of_map(i, value):
    return squared(value) if i in linear.roots else value


def held_state(i):
    return "h{}_{}_{}".format(*linear.carried[i])


def largest_before(i):
    """Return the size of a state before the chunk or, unless it is only added up, before the last step."""
    first = f"fabs({from_plane(i, 'at_chunk')})"
    return f"fmax({first}, fabs({of_map(i, f'before{i}')}))" if i in linear.columns else first


def every(condition):
    return f"({condition})" if lanes == 1 else f"all({condition})"


def start(a, row, e):
    """Load what a work-item holds of an array before its first step."""
    if part != "steps":
        return initial(a, row, e)
    i = linear.carried.index((a, row, e))
    value = from_plane(i, "at_chunk")
    if i not in linear.roots:
        return value
    # The initial value has a sign.
    pointer = f"p{input_of[a]} + {place(input_of[a], e, initial_row(a, row))}"
    return f"sqrt({value}); if (begin == 0) h{a}_{row}_{e}{'' if lanes == 1 else '.s0'} = ({pointer})[0]"


def squared(value):
    return f"({value}) * ({value})"


def times(factor, state):
    return f"{factor} * {state}" if factor else state


def next_base(i):
    parts = [times(factor, f"v{k}") for k, factor in linear.terms[i]]
    value = " + ".join([*parts, linear.bases[i]] if linear.bases[i] else parts) or zero(linear.dtype)
    if i not in linear.roots:
        return value
    # Where a square may become negative all steps run in turn, because of what is no number.
    signs = [f"({c} >= {zero(linear.dtype)})" for c in (*(c for _, c in linear.terms[i]), linear.bases[i]) if c]
    return f"({' & '.join(signs)}) ? {value} : {repeated(linear.dtype, lanes, 'NAN')}" if signs else value


def next_entry(i, j):
    return " + ".join(times(factor, f"m{k}_{j}") for k, factor in linear.terms[i] if (k, j) in linear.entries) or "0"
%>\
${geometry.c_typedef(f"{name}_geometry")}

% if schedule == "cpu":
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
% else:
__kernel
% endif
void ${name}(
    ${f"__global const {name}_geometry *g_at" if in_buffer else f"const {name}_geometry g"}
% for k, operand in enumerate(operands):
    , __global ${"" if operand.is_output else "const "}${T(arrays[operand.number].dtype)} *b${k}
% endfor
% if condition is not None:
    , __global long *steps_run
% endif
% if part == "maps":
    , __global ${T(linear.dtype)} *maps, __global ${T(linear.dtype)} *starts
% elif part == "steps":
    , __global const ${T(linear.dtype)} *starts, __global int *in_turn, const int again
% endif
    )
{
% if in_buffer:
    const ${name}_geometry g = *g_at;
% endif
    const long n = g.steps;
    const long units = (g.shape[${axes - 1}] + ${lanes - 1}) / ${lanes};
    const long chunks_in_row = (units + g.vectors - 1) / g.vectors;
    long chunks = chunks_in_row;
% for d in range(axes - 1):
    chunks *= g.shape[${d}];
% endfor
% if part != "whole":
    const long members = chunks / chunks_in_row;
% endif
% if schedule == "cpu":
    const long end = partition_begin(chunks, 1, get_global_id(0) + 1, get_global_size(0));
    for (long chunk = partition_begin(chunks, 1, get_global_id(0), get_global_size(0)); chunk < end; ++chunk) {
% else:
    for (long chunk = get_global_id(0); chunk < chunks; chunk += get_global_size(0)) {
% endif
        long rest = chunk / chunks_in_row;
        const long first = (chunk - rest * chunks_in_row) * g.vectors;
% if part == "whole":
        const int count = (int)min(g.vectors, units - first);
% else:
        const long member = rest;
        const int is_rest = first == chunks_in_row - 1;
        long begin = first * ${lanes} * g.chunk, stop = is_rest ? n : begin + g.chunk;
    % if lanes > 1:
        const int last = is_rest ? 0 : ${lanes - 1};
    % endif
    % if part == "steps":
        long at_chunk = first * ${lanes};
        if (again) {
            if (!is_rest || !in_turn[member])
                continue;
            begin = at_chunk = 0;
        }
    % endif
% endif
% for k, operand in enumerate(operands):
        __global ${"" if operand.is_output else "const "}${T(arrays[operand.number].dtype)} *p${k} =
            b${k} + g.at[${k}].offset + first * ${lanes} * g.at[${k}].axis[${axes - 1}];
        % if lanes > 1 and part == "whole":
        const long s${k} = g.at[${k}].axis[${axes - 1}];
        % elif lanes > 1:
        const long s${k} = last ? g.chunk * g.at[${k}].time : 0;
        % endif
        % if operand.is_output and not every_axis(k):
        int m${k} = 1;
        % endif
% endfor
% for d in reversed(range(axes - 1)):
        {
            const long i = rest % g.shape[${d}];
            rest /= g.shape[${d}];
    % for k, operand in enumerate(operands):
            p${k} += i * g.at[${k}].axis[${d}];
        % if operand.is_output and not every_axis(k):
            m${k} = m${k} && (!g.at[${k}].spread[${d}] || i == 0);
        % endif
    % endfor
        }
% endfor
% if part == "maps":
    % if lanes > 1:
        const int v = 0;
    % endif
        if (is_rest) {
    % for i, state in enumerate(linear.carried):
            ${put("starts", i, 0, squared(initial(*state)) if i in linear.roots else initial(*state))}
    % endfor
            continue;
        }
    % for a, array in enumerate(arrays):
        % for e in E(array) if array.role == "constant" else ():
        const ${V(array.dtype)} x${array.reads[0]}_${e} = ${load(input_of[a], e, "")};
        % endfor
    % endfor
        /* The map of the steps so far: m<state>_<column>, and v<state> without the states. */
    % for i, j in linear.entries:
        ${V(linear.dtype)} m${i}_${j} = ${int(i == j)};
    % endfor
    % for i in range(len(linear.carried)):
        ${V(linear.dtype)} v${i} = 0;
    % endfor
        for (long t = begin, pause = begin; t < stop;) {
            pause = min(stop, pause + ${FLUSHED_STEPS});
            for (; t < pause; ++t) {
    % for a, array in enumerate(arrays):
        % for e in E(array):
            % if array.role == "sequence":
            const ${V(array.dtype)} x${array.reads[0]}_${e} = ${load(input_of[a], e, "t")};
            % elif array.role == "sum":
            const ${V(array.dtype)} l${a}_${e} = ${load(input_of[a], e, f"t + {array.window - 1}")};
                % for k, tap in zip(array.reads, array.taps):
                    % if tap == array.window - 1:
            const ${V(array.dtype)} x${k}_${e} = l${a}_${e};
                    % endif
                % endfor
            % endif
        % endfor
    % endfor
            ${linear.statements}
    % for i in range(len(linear.carried)):
            const ${V(linear.dtype)} next_v${i} = ${next_base(i)};
    % endfor
    % for i, j in linear.entries:
            const ${V(linear.dtype)} next_m${i}_${j} = ${next_entry(i, j)};
    % endfor
    % for i in range(len(linear.carried)):
            v${i} = next_v${i};
    % endfor
    % for i, j in linear.entries:
            m${i}_${j} = next_m${i}_${j};
    % endfor
            }
            /* CPUs compute with subnormal numbers a hundred times slower. */
    % for i, j in linear.entries:
            m${i}_${j} = fabs(m${i}_${j}) < ${smallest} ? ${zero(linear.dtype)} : m${i}_${j};
    % endfor
        }
    % for number, (i, j) in enumerate(linear.entries):
        ${put("maps", number, f"first * {lanes}", f"m{i}_{j}")}
    % endfor
    % for i in range(len(linear.carried)):
        ${put("maps", len(linear.entries) + i, f"first * {lanes}", f"v{i}")}
    % endfor
% else:
        /* What is kept from step to step. h<array>_<row>_<element>: row q of a state was computed q steps ago. */
% for a, array in held:
    % for q in range(array.window):
        ${V(array.dtype)} ${", ".join(f"h{a}_{q + first_held[array.role]}_{e}{extent}" for e in E(array)) or "unused"};
    % endfor
% endfor
% for a, array in enumerate(arrays):
    % if array.role in ("output", "state", "sum"):
        const long lost${a} = g.at[${output_of[a]}].lost, rows${a} = g.at[${output_of[a]}].rows;
    % endif
% endfor
        ${each}
% for a, array in held:
    % for e in E(array):
        % if array.role == "constant":
            h${a}_0_${e}${at} = ${load(input_of[a], e, "")};
        % elif array.role == "last":
            h${a}_1_${e}${at} = ${start(a, 1, e)};
        % elif array.role == "state":
            % for q in range(1, array.window + 1):
<% kept = initial(a, q, e) if part == "steps" else f"h{a}_{q}_{e}{at}" %>\
            h${a}_${q}_${e}${at} = ${start(a, q, e)};
            ${last_chunk}${keep(a, e, f"{array.window - q}L", kept)}
            % endfor
            % if condition is None:
            ${last_chunk}${clear(a, e, f"n + {array.window}")}
            % endif
        % elif array.role == "sum":
            % for q in range(array.window - 1):
            if (${q} < rows${a})
                h${a}_${q}_${e}${at} = ${start(a, q, e)};
            % endfor
            ${last_chunk}for (long row = n + ${array.window - 1}; row < rows${a}; ++row)
                ${keep(a, e, "row", load(input_of[a], e, "row"))}
        % endif
    % endfor
% endfor
% for a, array in enumerate(arrays):
    % if array.role == "output" and condition is None:
        % for e in E(array):
            ${last_chunk}${clear(a, e, "n")}
        % endfor
    % endif
% endfor
        }
% if condition is not None:
        long run = n;
% endif
% for i in linear.columns if part == "steps" else ():
        ${V(linear.dtype)} before${i} = ${held_state(i)};
% endfor
        for (long t = ${"begin" if part == "steps" else "0"}; t < ${"stop" if part == "steps" else "n"}; ++t) {
% for i in linear.columns if part == "steps" else ():
            before${i} = ${held_state(i)};
% endfor
            ${each}
% for a, array in enumerate(arrays):
    % for e in E(array):
        % if array.role == "sequence":
            const ${V(array.dtype)} x${array.reads[0]}_${e} = ${load(input_of[a], e, "t")};
        % elif array.role == "sum":
            h${a}_${array.window - 1}_${e}${at} = ${load(input_of[a], e, f"t + {array.window - 1}")};
        % endif
        % if array.role != "sequence":
            % for k, tap in zip(array.reads, array.taps):
            const ${V(array.dtype)} x${k}_${e} = h${a}_${tap}_${e}${at};
            % endfor
        % endif
        % for k in array.writes:
            ${V(array.dtype)} y${k}_${e};
        % endfor
    % endfor
% endfor
% if condition is not None:
            ${V(condition_dtype)} y${condition}_0;
% endif
            {
                ${statements}
            }
% for a, array in enumerate(arrays):
    % for e in E(array):
        % if array.role == "output":
            ${keep(a, e, "t", f"y{array.writes[0]}_{e}")}
        % elif array.role == "state":
            ${keep(a, e, f"t + {array.window}", f"y{array.writes[0]}_{e}")}
            % for q in range(array.window, 1, -1):
            h${a}_${q}_${e}${at} = h${a}_${q - 1}_${e}${at};
            % endfor
            h${a}_1_${e}${at} = y${array.writes[0]}_${e};
        % elif array.role == "last":
            h${a}_1_${e}${at} = y${array.writes[0]}_${e};
        % elif array.role == "sum":
            % for k, tap in zip(array.writes, array.write_taps):
            h${a}_${tap}_${e}${at} = y${k}_${e};
            % endfor
            ${keep(a, e, "t", f"h{a}_0_{e}{at}")}
            % for q in range(array.window - 1):
            h${a}_${q}_${e}${at} = h${a}_${q + 1}_${e}${at};
            % endfor
        % endif
    % endfor
% endfor
% if condition is not None:
            if (y${condition}_0${".s0" if lanes > 1 else ""} != 0)
                run = t + 1;
% endif
            }
% if condition is not None:
            if (run <= t + 1)
                break;
% endif
        }
% if condition is not None:
        if (chunk == 0)
            *steps_run = run;
% endif
% if part == "steps":
        if (!is_rest) {
            int agrees = 1;
    % for i in range(len(linear.carried)):
            {
                const ${V(linear.dtype)} end = ${of_map(i, held_state(i))}, next = ${from_plane(i, "at_chunk + 1")};
                const ${V(linear.dtype)} size = fmax(fabs(end), fabs(next));
                /* Where a sum cancels, the rounding errors of larger states are left; but not where states decay. */
                const ${V(linear.dtype)} before = fmin(${largest_before(i)}, size / ${tolerance});
                const ${V(linear.dtype)} most = fmax(fmax(${tolerance} * size, ${rounding} * before), ${smallest});
                agrees &= ${every("fabs(end - next) <= most")};
            }
    % endfor
            if (!agrees)
                atomic_or(in_turn + member, 1);
        }
% endif
        ${each}
% if condition is not None:
    % for a, array in enumerate(arrays):
        % if array.role in ("output", "state"):
            % for e in E(array):
            ${clear(a, e, f"run + {array.window}" if array.role == "state" else "run")}
            % endfor
        % endif
    % endfor
% endif
% for a, array in held:
    % for e in E(array):
        % if array.role == "last":
            ${last_chunk}${store(output_of[a], e, "", f"h{a}_1_{e}{at}")}
        % elif array.role == "sum":
            % for q in range(array.window - 1):
            if (${"is_rest && " if part == "steps" else ""}n + ${q} < rows${a})
                ${keep(a, e, f"n + {q}", f"h{a}_{q}_{e}{at}")}
            % endfor
        % endif
    % endfor
% endfor
        }
% endif
    }
}
