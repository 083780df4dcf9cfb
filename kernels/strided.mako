## Load and store `lanes` elements that lie `stride` apart, of which those up to `last` exist.
<%page args="dtype, lanes"/>\
<%!
from pytensor_cl.dtypes import ctype, vector_type
%>\
<%
T, V, top = ctype(dtype), vector_type(dtype, lanes), lanes - 1
reverse = ".s" + "".join(f"{k:x}" for k in reversed(range(lanes)))
%>\
static inline ${V} load_${V}(__global const ${T} *p, const long stride, const int last)
{
    if (last == ${top}) {
        if (stride == 1) return vload${lanes}(0, p);
        if (stride == 0) return (${V})(*p);
        if (stride == -1) return vload${lanes}(0, p - ${top})${reverse};
        return (${V})(${", ".join(f"p[{k} * stride]" for k in range(lanes))});
    }
    /* Lanes past the last repeat it: no address outside the array is read, and no rare value computed. */
    return (${V})(${", ".join(f"p[min({k}, last) * stride]" for k in range(lanes))});
}

static inline void store_${V}(${V} value, __global ${T} *p, const long stride, const int last)
{
    if (stride == 1 && last == ${top}) {
        vstore${lanes}(value, 0, p);
        return;
    }
    ${T} lane[${lanes}];
    vstore${lanes}(value, 0, lane);
    for (int k = 0; k <= last; ++k) p[k * stride] = lane[k];
}
