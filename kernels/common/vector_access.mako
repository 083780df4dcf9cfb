## Load and store `lanes` elements that are `stride` apart, of which those up to `last` exist.
<%page args="dtype, lanes"/>\
<%!
import numpy as np

from pytensor_cl.codegen.dtypes import access_name, ctype, is_complex, part, repeated, vector_type
%>\
<%
T, V, A, top = ctype(dtype), vector_type(dtype, lanes), access_name(dtype, lanes), lanes - 1
%>\
/* A vector that need not be aligned: PoCL's vload and vstore are functions that move chars one by one. */
typedef ${V} any_${A} __attribute__((aligned(${np.dtype(part(dtype)).itemsize})));
#define unit_${A}(p) (*(__global const any_${A} *)(p))
#define put_${A}(value, p) (*(__global any_${A} *)(p) = (value))
static inline ${V} load_${A}(__global const ${T} *p, const long stride, const int last)
{
    if (last == ${top}) {
        if (stride == 1)
            return unit_${A}(p);
        if (stride == 0)
            return ${repeated(dtype, lanes, "*p")};
% if not is_complex(dtype):
        if (stride == -1)
            return unit_${A}(p - ${top}).s${"".join(f"{k:x}" for k in reversed(range(lanes)))};
% endif
        return (${V})(${", ".join(f"p[{k} * stride]" for k in range(lanes))});
    }
    /* Lanes past the last repeat it: no address outside the array is read, and no rare value computed. */
    return (${V})(${", ".join(f"p[min({k}, last) * stride]" for k in range(lanes))});
}

static inline void store_${A}(${V} value, __global ${T} *p, const long stride, const int last)
{
    if (stride == 1 && last == ${top}) {
        put_${A}(value, p);
        return;
    }
    ${T} lane[${lanes}] __attribute__((aligned(sizeof(${V}))));
    *(${V} *)lane = value;
    /* Unrolled, the loop takes a fifth of the compiler's time, in every kernel, and runs no faster. */
    #pragma clang loop vectorize(disable) unroll(disable)
    for (int k = 0; k <= last; ++k)
        p[k * stride] = lane[k];
}
