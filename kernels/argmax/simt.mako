## Algorithm   Argmax, or argmin where `is_least`, for GPUs. The work-items of an output each search a part of the
##             range; then they put values and positions together.
## Operands    As in kernels/argmax/cpu.mako. With `lanes` above 1 the reduced range is one contiguous dimension of
##             aligned vectors, and g.total and g.chunk count these.
## Tiling      As in kernels/reduction/simt.mako.
## NDRange     (groups * group, chunks), as in kernels/reduction/simt.mako.
## Workspace   values and positions in local memory (kernels/common/workgroup.mako); found[chunks][outputs] of several
##             chunks.
## Invariants  NaN is preferred to every number; of equal elements the first is taken. Barriers are uniform.
<%page args="name, is_least, geometry, dtype, index, outer_dims, reduced_dims, group, lanes, along, is_run,
    load_alignment"/>
<%namespace name="traversal" file="/reduction/traversal.mako"/>
<%namespace name="order" file="/argmax/order.mako"/>
<%namespace name="workgroup" file="/common/workgroup.mako"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype

    INDEX = {"int": "int32", "long": "int64"}
%>
<%
    T, found = ctype(dtype), f"{name}_found"
    unroll = 4 if lanes > 1 else 8  # loads in flight at once
%>
${geometry.c_typedef(f"{name}_geometry")}
${order.position(traversal.reduced_offset)}
typedef struct { ${T} value; ${index} place; } ${found};
static ${found} ${name}_better(const ${found} a, const ${found} b)
{
    const int sooner = ${order.same("b.value", "a.value")} & (b.place < a.place);
    return ${order.beats("b.value", "a.value")} | sooner ? b : a;
}

## Several loads; past the end (guarded) the last one is repeated, which changes nothing, so that all are in flight.
<%def name="several(guarded)">
        % for q in range(unroll):
<% place = f"i + lane + {q} * threads" %>\
        const ${index} i${q} = ${f"min({place}, last - 1)" if guarded else place};
        % if lanes > 1:
        const ${name}_v e${q} = *(__global const ${name}_v *)(x + i${q} * ${lanes});
        % else:
        const ${T} e${q} = x[${name}_at(&g, i${q})];
        % endif
        % endfor
        % for q in range(unroll):
        % for k in range(lanes):
<% value = f"e{q}.s{k}" if lanes > 1 else f"e{q}" %>\
        if (${order.beats(value, "best.value")}) {
            best.value = ${value};
            best.place = i${q}${f" * {lanes} + {k}" if lanes > 1 else ""};
        }
        % endfor
        % endfor
</%def>

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}(__global const ${T} *restrict input, const long input_at, __global long *restrict output,
    const long output_at, const ${name}_geometry g)
{
    ${workgroup.row_scratch(found, "scratch", group)}
    ${traversal.simt_task(along)}
    __global const ${T} *const x = input + input_at + in;
    const ${index} start = min(first + lane, last - 1) * ${lanes};
    ${found} best = {x[${"start" if lanes > 1 else f"{name}_at(&g, start)"}], start};
    ${index} i = first;
    for (; last - i >= ${unroll} * threads; i += ${unroll} * threads) {
        ${several(guarded=False)}
    }
    if (i < last) {
        ${several(guarded=True)}
    }
    ${workgroup.row_reduce("best", found, [(".value", dtype), (".place", INDEX[index])],
        f"{name}_better({{a}}, {{b}})", group, along=along, stride="1" if along else "slots", everyone=False)}
    if (lane == 0 && output_index < g.outputs)
        output[output_at + out] = best.place;
}
${order.finish(traversal.outer_offset, unrolled=True)}
