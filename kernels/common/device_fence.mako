## Order between what work-groups write: for kernels in which the work-group that comes last reads what the others have
## written. The feature `last_group` says whether it works: OpenCL C 1.2 orders memory within a work-group only.
## Reference   PTX ISA, membar.gl.
<%page args=""/>\
/* What the work-item wrote to global memory before is seen by other work-groups before what it writes afterwards. */
static inline void device_fence(void)
{
#ifdef cl_nv_pragma_unroll
    asm volatile("membar.gl;" : : : "memory");
#else
    mem_fence(CLK_GLOBAL_MEM_FENCE);
#endif
}
