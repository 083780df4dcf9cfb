## What the sorting kernels share. Values are compared as unsigned integers of the same order, their keys; an element is what
## moves: a key, or a key and the place that it came from, packed into a ulong if both fit (else `wide`). As places differ, no
## two elements with places are equal, and every way to sort them is stable.
## The defs see the arguments of the template that calls them.
<%def name="key_function()">
static inline ${key} ${name}_key(const ${key} x)
{
    return ${to_key};
}
</%def>

<%def name="element()">
${key_function()}
% if not indexed:
#define ${name}_make(key, place) (key)
#define ${name}_key_of(e) (e)
static inline ${key} ${name}_result(const ${key} x)
{
    return ${from_key};
}
% elif wide:
#define ${name}_make(key, place) ((ulong2)(key, place))
#define ${name}_key_of(e) ((e).x)
#define ${name}_result(e) ((long)(e).y)
% else:
#define ${name}_make(key, place) ((ulong)(key) << 32 | (ulong)(place))
#define ${name}_key_of(e) ((${key})((e) >> 32))
#define ${name}_result(e) ((long)((e) & 0xffffffffu))
% endif
</%def>

## The rows, and the offset of a row in the input and in the output. GPUs (`unrolled`) would copy the geometry into private memory
## for indices that are not constants.
<%def name="rows(unrolled=False)">
typedef struct {  // rows lie along the axis; other dimensions from the innermost outwards; lengths and steps in elements
    long rows, length, chunk, chunks, in_step, out_step;
    long kept[${dims}], kept_out[${dims}], kept_in[${dims}];
} ${name}_geometry;
% for array in ("in", "out"):

static inline long ${name}_${array}(const ${name}_geometry *g, long row)
{
    long at = 0;
% if unrolled:
% for d in range(dims - 1):
    if (row) {
        at += row % g->kept[${d}] * g->kept_${array}[${d}];
        row /= g->kept[${d}];
    }
% endfor
    return at + row * g->kept_${array}[${dims - 1}];
% else:
    for (int d = 0; row; ++d) {
        at += row % g->kept[d] * g->kept_${array}[d];
        row /= g->kept[d];
    }
    return at;
% endif
}
% endfor
</%def>
