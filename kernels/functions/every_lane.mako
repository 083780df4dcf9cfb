## every_lane(m), some_lane(m): whether a vector of comparisons is true in all lanes, or in one. PoCL 3.0's all() and any() look
## at one lane after the other.
<%page args=""/>\
#ifndef every_lane
#ifdef POCL_DEVICE_ADDRESS_BITS
#define every_lane(m) in_every_lane(m)
#define some_lane(m) in_some_lane(m)
% for scalar in ("char", "short", "int", "long"):
% for lanes in (2, 4, 8, 16):
% for name, meet in (("every", "&"), ("some", "|")):
static inline int __attribute__((overloadable)) in_${name}_lane(const ${scalar}${lanes} m)
{
    return ${f"m.x {meet} m.y" if lanes == 2 else f"in_{name}_lane(m.lo {meet} m.hi)"};
}
% endfor
% endfor
% endfor
#else
#define every_lane(m) all(m)
#define some_lane(m) any(m)
#endif
#endif
