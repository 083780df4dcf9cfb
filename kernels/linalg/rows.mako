## linalg_dot_T(x, y, n), and linalg_add_T(y, factor, x, n), which is y += factor * x, of n neighbours; schedule cpu.
## After common.mako.
<%page args="ctype, lanes"/>
<% V = f"{ctype}{lanes}" %>\
#ifndef LINALG_DOT_${ctype}
#define LINALG_DOT_${ctype}
static ${ctype} linalg_dot_${ctype}(__global const ${ctype} *x, __global const ${ctype} *y, const int n)
{
    ${ctype} sum = 0;
    int i = 0;
    if (n >= ${lanes}) {
        ${V} sums = 0;
        for (; i + ${lanes} <= n; i += ${lanes})
            sums += *(__global const linalg_${V} *)(x + i) * *(__global const linalg_${V} *)(y + i);
<% width, term = lanes // 2, "sums" %>\
% while width > 1:
        const ${ctype}${width} sum${width} = ${term}.lo + ${term}.hi;
<% term = f"sum{width}"; width //= 2 %>\
% endwhile
        sum = ${term}.lo + ${term}.hi;
    }
    for (; i < n; ++i)
        sum += x[i] * y[i];
    return sum;
}

static void linalg_add_${ctype}(__global ${ctype} *y, const ${ctype} factor, __global const ${ctype} *x, const int n)
{
    int i = 0;
    for (; i + ${lanes} <= n; i += ${lanes})
        *(__global linalg_${V} *)(y + i) += factor * *(__global const linalg_${V} *)(x + i);
    for (; i < n; ++i)
        y[i] += factor * x[i];
}
#endif
