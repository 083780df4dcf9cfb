## Text that the sorting kernels share. Values are compared as unsigned integers of the same order, their keys. An
## element is what moves: a key, or a key and its source index, packed into a ulong if both fit (else `is_128_bit`, a
## ulong2). As source indices differ, no two elements with them are equal, and every way to sort them is stable. The
## defs use the arguments of the template that calls them.
<%def name="key_function()">
static inline ${key} ${name}_key(const ${key} x)
{
    return ${to_key};
}
</%def>

<%def name="element()">
${key_function()}
% if not indexed:
#define ${name}_make(key, source_index) (key)
#define ${name}_key_of(e) (e)
static inline ${key} ${name}_result(const ${key} x)
{
    return ${from_key};
}
% elif is_128_bit:
#define ${name}_make(key, source_index) ((ulong2)(key, source_index))
#define ${name}_key_of(e) ((e).x)
#define ${name}_result(e) ((long)(e).y)
% else:
#define ${name}_make(key, source_index) ((ulong)(key) << 32 | (ulong)(source_index))
#define ${name}_key_of(e) ((${key})((e) >> 32))
#define ${name}_result(e) ((long)((e) & 0xffffffffu))
% endif
</%def>

## The rows, and the offset of a row in the input and in the output. GPUs (`unrolled`) would copy the geometry into
## private memory for indices that are not constants.
<%def name="rows(unrolled=False)">
${geometry.c_typedef(f"{name}_geometry")}
% for array in ("in", "out"):

static inline long ${name}_${array}(const ${name}_geometry *g, long row)
{
    long at = 0;
% if unrolled:
% for d in range(dims - 1):
    if (row) {
        at += row % g->outer[${d}] * g->outer_${array}[${d}];
        row /= g->outer[${d}];
    }
% endfor
    return at + row * g->outer_${array}[${dims - 1}];
% else:
    for (int d = 0; row; ++d) {
        at += row % g->outer[d] * g->outer_${array}[d];
        row /= g->outer[d];
    }
    return at;
% endif
}
% endfor
</%def>
