## Built-ins that the kernels' compiler can put where they are called. PoCL's own are functions of its library, and
## stay calls; vectors wider than a register are then passed in memory.
<%page args="used"/>\
<%!
vectors = ("", 2, 3, 4, 8, 16)
FLOATS = {"float": ("int", "0x80000000", "f"), "double": ("long", "0x8000000000000000L", "")}
ROUNDINGS = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "roundeven"}
# The operands of select(), and its condition.
MASKS = {1: ("char", "uchar"), 2: ("short", "ushort"), 4: ("int", "uint"), 8: ("long", "ulong")}
CHOSEN = {**{t: masks for masks in MASKS.values() for t in masks}, "float": MASKS[4], "double": MASKS[8]}
%>\
#if defined(__AVX2__) && defined(__FMA__) && defined(__has_builtin)
#if __has_builtin(__builtin_elementwise_roundeven) && __has_builtin(__builtin_elementwise_max)
#define INLINED static inline __attribute__((overloadable, always_inline))
% for name in used:
#undef ${name}
#define ${name} inlined_${name}
% endfor
% for scalar, (mask, sign, suffix) in FLOATS.items():
% for lanes in vectors:
<% V, M = f"{scalar}{lanes}", f"{mask}{lanes}" %>\
% if "fma" in used:
/* One rounding: the compiler joins what is one expression. */
INLINED ${V} inlined_fma(const ${V} a, const ${V} b, const ${V} c)
{
    return a * b + c;
}
% endif
% if "fabs" in used:
INLINED ${V} inlined_fabs(const ${V} a)
{
    return as_${V}(as_${M}(a) & (${M})(~${sign}));
}
% endif
% if "copysign" in used:
INLINED ${V} inlined_copysign(const ${V} a, const ${V} b)
{
    return as_${V}((as_${M}(a) & (${M})(~${sign})) | (as_${M}(b) & (${M})(${sign})));
}
% endif
% for name, builtin in ROUNDINGS.items():
% if name in used:
INLINED ${V} inlined_${name}(const ${V} a)
{
    return ${f"__builtin_elementwise_{builtin}" if lanes else f"__builtin_{name}{suffix}"}(a);
}
% endif
% endfor
% for name in ("fmax", "fmin"):
% if name in used:
INLINED ${V} inlined_${name}(const ${V} a, const ${V} b)
{
    return ${f"__builtin_elementwise_{name[1:]}" if lanes else f"__builtin_{name}{suffix}"}(a, b);
}
% if lanes:
INLINED ${V} inlined_${name}(const ${V} a, const ${scalar} b)
{
    return __builtin_elementwise_${name[1:]}(a, (${V})(b));
}
% endif
% endif
% endfor
% endfor
% endfor
% for name, sign in (("max", ">"), ("min", "<")):
% if name in used:
% for scalar in CHOSEN:
% for lanes in vectors:
INLINED ${scalar}${lanes} inlined_${name}(const ${scalar}${lanes} a, const ${scalar}${lanes} b)
{
    return b ${sign} a ? b : a;
}
% if lanes:
INLINED ${scalar}${lanes} inlined_${name}(const ${scalar}${lanes} a, const ${scalar} s)
{
    const ${scalar}${lanes} b = s;
    return b ${sign} a ? b : a;
}
% endif
% endfor
% endfor
% endif
% endfor
% if "select" in used:
% for scalar, masks in CHOSEN.items():
% for lanes in vectors:
% for mask in masks:
INLINED ${scalar}${lanes} inlined_select(const ${scalar}${lanes} a, const ${scalar}${lanes} b, const ${mask}${lanes} c)
{
    return c ? b : a;
}
% endfor
% endfor
% endfor
% endif
#endif
#endif
