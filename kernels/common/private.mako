## private_as_global(type, p): a pointer to private memory as one to global memory, for functions that take either.
## OpenCL C does not define that. Devices of schedule cpu have one memory; where private memory has addresses of its
## own, the self-check finds it out (-DPRIVATE_MEMORY_APART), kernels of schedule simt run instead, and these do not
## compile.
<%page args=""/>\
#ifndef private_as_global
#ifdef PRIVATE_MEMORY_APART
#define private_as_global(type, p) private_memory_has_addresses_of_its_own
#else
#define private_as_global(type, p) ((__global type *)(ulong)(p))
#endif
#endif
