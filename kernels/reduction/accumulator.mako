## Accumulators of the reduction kernels, and the one place where an element is loaded or stored. The defs use the
## arguments of the template that calls them.
## Reference   Sums: D. E. Knuth's TwoSum with the errors summed apart (T. Ogita, S. M. Rump, S. Oishi, Accurate sum and
##             dot product, SIAM J. Sci. Comput. 26, 2005, Sum2). Products: TwoProduct by fma (S. Graillat, Accurate
##             floating-point product and exponentiation, IEEE Trans. Comput. 58, 2009, CompProd).
<%namespace name="convert" file="/reduction/cast.mako"/>
<%!
    import numpy as np

    from pytensor_cl.codegen.dtypes import ctype, is_complex, repeated, vector_type

    def itemsize(dtype):
        return np.dtype(dtype).itemsize

    def lane(dtype, i):
        """Return the components of a vector that are its element `i`."""
        return "".join(f"{k:x}" for k in ((2 * i, 2 * i + 1) if is_complex(dtype) else (i,)))
%>
## Accumulators of n lanes: ${name}_a<n> and functions on them.
<%def name="accumulator(n)">
<% value, acc = vector_type(acc_dtype, n), f"{name}_a{n}" %>
% if compensation:
typedef struct { ${value} sum, error; } ${acc};  // their sum is the value
% else:
typedef ${value} ${acc};
% endif
## vectors that need not be aligned, unless the kernel says so: a driver may call a function for vloadn, and read chars
## one by one in it
% if n > 1:
<% most = context.get("load_alignment", itemsize(in_dtype)) %>\
typedef ${vector_type(in_dtype, n)} ${name}_v${n} __attribute__((aligned(${min(most, n * itemsize(in_dtype))})));
typedef ${vector_type(out_dtype, n)} ${name}_w${n} __attribute__((aligned(${itemsize(out_dtype)})));
% endif

static ${acc} ${name}_identity${n}(void)
{
% if compensation:
    const ${acc} a = {${repeated(acc_dtype, n, identity)}, (${value})(0.0f)};
% else:
    const ${acc} a = ${repeated(acc_dtype, n, identity)};
% endif
    return a;
}

static ${acc} ${name}_combine${n}(const ${acc} a, const ${acc} b)
{
% if compensation == "add":  # Knuth's TwoSum; the errors are summed apart (Ogita, Rump and Oishi 2005, Sum2)
    const ${value} sum = a.sum + b.sum;
    const ${value} part = sum - a.sum;
    const ${acc} c = {sum, a.error + (b.error + ((a.sum - (sum - part)) + (b.sum - part)))};
    return c;
% elif compensation == "mul":  # TwoProduct by fma (Graillat 2009, CompProd)
    const ${value} product = a.sum * b.sum;
    const ${acc} c = {product, a.error * b.sum + (a.sum * b.error + fma(a.sum, b.sum, -product))};
    return c;
% elif is_complex(acc_dtype) and combine != "a + b":
    ${acc} c;
    c.even = ${convert.part(combine, "even", "a.even * b.even - a.odd * b.odd")};
    c.odd = ${convert.part(combine, "odd", "a.even * b.odd + a.odd * b.even")};
    return c;
% else:
    return ${combine};
% endif
}

## Reading an element is here and nowhere else, so that a producer can be fused into the reduction.
static ${acc} ${name}_load${n}(__global const ${ctype(in_dtype)} *p, const ${index} step, const ${index} error_stride)
{
<%def name="read(p)" buffered="True" filter="trim">
% if n == 1:
*(${p})
% elif unit:
*(__global const ${name}_v${n} *)(${p})
% else:
(${vector_type(in_dtype, n)})(${", ".join(f"({p})[{i} * step]" for i in range(n))})
% endif
</%def>
% if pair_in:
    const ${acc} a = {${read("p")}, ${read("p + error_stride")}};
% elif compensation:
    const ${acc} a = {${convert.cast(read("p"), in_dtype, acc_dtype, n)}, (${value})(0.0f)};
% else:
    const ${acc} a = ${convert.cast(read("p"), in_dtype, acc_dtype, n)};
% endif
    return a;
}

static void ${name}_store${n}(const ${acc} a, __global ${ctype(out_dtype)} *p, const ${index} step,
    const ${index} error_stride)
{
% if pair_out:
    ${write("p", "a.sum", n)}
    ${write("p + error_stride", "a.error", n)}
% elif compensation:  # an infinite sum has no error term
    const ${value} exact = isfinite(a.sum) ? a.sum + a.error : a.sum;
    ${write("p", convert.cast("exact", acc_dtype, out_dtype, n), n)}
% else:
    ${write("p", convert.cast("a", acc_dtype, out_dtype, n), n)}
% endif
}
</%def>

<%def name="write(p, value, n)" buffered="True" filter="trim">
% if n == 1:
*(${p}) = ${value};
% else:
{
        const ${vector_type(out_dtype, n)} value = ${value};
        if (step == 1)
            *(__global ${name}_w${n} *)(${p}) = value;
        else {
        % for i in range(n):
            (${p})[${i} * step] = value.s${lane(out_dtype, i)};
        % endfor
        }
    }
% endif
</%def>

## Combines the lanes of an accumulator in pairs.
<%def name="horizontal_reduce(n)">
static ${name}_a1 ${name}_horizontal_reduce${n}(const ${name}_a${n} a)
{
% if n == 1:
    return a;
% else:
% for half in ("lo", "hi"):
% if compensation:
    const ${name}_a${n // 2} ${half} = {a.sum.${half}, a.error.${half}};
% else:
    const ${name}_a${n // 2} ${half} = a.${half};
% endif
% endfor
    return ${name}_horizontal_reduce${n // 2}(${name}_combine${n // 2}(lo, hi));
% endif
}
</%def>
