## every_lane(m): whether a vector of comparisons is true in all lanes. PoCL 3.0's all() looks at one lane after the other.
<%page args=""/>\
#ifndef every_lane
#ifdef POCL_DEVICE_ADDRESS_BITS
#define every_lane(m) each_lane(m)
static inline int __attribute__((overloadable)) each_lane(const int2 m) { return m.x & m.y; }
static inline int __attribute__((overloadable)) each_lane(const long2 m) { return m.x & m.y; }
% for lanes in (4, 8, 16):
static inline int __attribute__((overloadable)) each_lane(const int${lanes} m) { return each_lane(m.lo & m.hi); }
static inline int __attribute__((overloadable)) each_lane(const long${lanes} m) { return each_lane(m.lo & m.hi); }
% endfor
#else
#define every_lane(m) all(m)
#endif
#endif
