## Functions of complex numbers for the texts that users write, of pairs of `dtype`. In those texts they have the names
## without "user_". Products and quotients are NumPy's: a quotient is scaled by the larger part of the divisor.
<%page args="dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype
%>\
<%
T = ctype(dtype)
Z = f"{T}2"
function = lambda kind, name: f"static inline {kind} __attribute__((overloadable)) user_{name}"
%>\
${function(T, "creal")}(const ${Z} z) { return z.x; }
${function(T, "cimag")}(const ${Z} z) { return z.y; }
${function(Z, "conj")}(const ${Z} z) { return (${Z})(z.x, -z.y); }
${function(T, "cabs")}(const ${Z} z) { return hypot(z.x, z.y); }
${function(T, "carg")}(const ${Z} z) { return atan2(z.y, z.x); }
${function(Z, "cpolar")}(const ${T} r, const ${T} angle) { return (${Z})(r * cos(angle), r * sin(angle)); }
${function(Z, "cmul")}(const ${Z} a, const ${Z} b)
{
    return (${Z})(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
${function(Z, "cdiv")}(const ${Z} a, const ${Z} b)
{
    if (fabs(b.x) >= fabs(b.y)) {
        if (b.x == 0 && b.y == 0)
            return a / fabs(b.x);
        const ${T} ratio = b.y / b.x, scale = 1 / (b.x + b.y * ratio);
        return (${Z})((a.x + a.y * ratio) * scale, (a.y - a.x * ratio) * scale);
    }
    const ${T} ratio = b.x / b.y, scale = 1 / (b.y + b.x * ratio);
    return (${Z})((a.x * ratio + a.y) * scale, (a.y * ratio - a.x) * scale);
}
${function(Z, "cexp")}(const ${Z} z)
{
    const ${T} r = exp(z.x);
    return z.y == 0 ? (${Z})(r, z.y) : (${Z})(r * cos(z.y), r * sin(z.y));
}
${function(Z, "clog")}(const ${Z} z) { return (${Z})(log(hypot(z.x, z.y)), atan2(z.y, z.x)); }
${function(Z, "csqrt")}(const ${Z} z)
{
    const ${T} size = hypot(z.x, z.y);
    if (size == 0)
        return (${Z})(0, z.y);
    const ${T} half_sum = sqrt((size + fabs(z.x)) / 2);
    const ${T} other = fabs(z.y) / (2 * half_sum);
    return z.x >= 0 ? (${Z})(half_sum, copysign(other, z.y)) : (${Z})(other, copysign(half_sum, z.y));
}
${function(Z, "csin")}(const ${Z} z)
{
    return (${Z})(sin(z.x) * cosh(z.y), cos(z.x) * sinh(z.y));
}
${function(Z, "ccos")}(const ${Z} z)
{
    return (${Z})(cos(z.x) * cosh(z.y), -sin(z.x) * sinh(z.y));
}
${function(Z, "cpow")}(const ${Z} a, const ${Z} b)
{
    if (a.x == 0 && a.y == 0)
        return (${Z})(b.x == 0 && b.y == 0, 0);
    return user_cexp(user_cmul(b, user_clog(a)));
}
