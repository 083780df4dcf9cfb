## Algorithm   every_lane(m), some_lane(m): whether a vector of comparisons is true in all lanes, or in one. PoCL 3.0's
##             all() and any() test one lane after the other. A whole register of AVX-512 becomes a mask in one
##             instruction.
<%page args=""/>\
#ifndef every_lane
#ifdef POCL_DEVICE_ADDRESS_BITS
#define every_lane(m) in_every_lane(m)
#define some_lane(m) in_some_lane(m)
#if defined(__AVX512DQ__) && defined(__has_builtin)
#if __has_builtin(__builtin_ia32_cvtd2mask512) && __has_builtin(__builtin_ia32_cvtq2mask512)
#define LANES_IN_MASKS
#endif
#endif
% for scalar in ("char", "short", "int", "long"):
% for lanes in (2, 4, 8, 16):
<%
    mask, full = {"int16": ("cvtd2mask512", "0xffff"), "long8": ("cvtq2mask512", "0xff")}.get(
        f"{scalar}{lanes}", ("", "")
    )
%>\
% if mask:
#ifdef LANES_IN_MASKS
static inline int __attribute__((overloadable)) in_every_lane(const ${scalar}${lanes} m)
{
    return __builtin_ia32_${mask}(m) == ${full};
}
static inline int __attribute__((overloadable)) in_some_lane(const ${scalar}${lanes} m)
{
    return __builtin_ia32_${mask}(m) != 0;
}
#else
% endif
% for name, meet in (("every", "&"), ("some", "|")):
static inline int __attribute__((overloadable)) in_${name}_lane(const ${scalar}${lanes} m)
{
    return ${f"m.x {meet} m.y" if lanes == 2 else f"in_{name}_lane(m.lo {meet} m.hi)"};
}
% endfor
% if mask:
#endif
% endif
% endfor
% endfor
#else
#define every_lane(m) all(m)
#define some_lane(m) any(m)
#endif
#endif
