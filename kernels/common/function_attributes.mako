## MIN_VECTOR_WIDTH(bits): a function needs vector registers of this width. Compilers that prefer half of it (LLVM with
## AVX-512) need the attribute. NOINLINE: a function is compiled once, and comes out the same whatever calls it.
<%page args=""/>\
#ifndef MIN_VECTOR_WIDTH
#if defined(__has_attribute)
#if __has_attribute(min_vector_width)
#define MIN_VECTOR_WIDTH(bits) __attribute__((min_vector_width(bits)))
#endif
#endif
#ifndef MIN_VECTOR_WIDTH
#define MIN_VECTOR_WIDTH(bits)
#endif
#define NOINLINE __attribute__((noinline))
#endif
