/* The words of libgpuarray's CLUDA in OpenCL C, for kernels that were written with them: options=("-Icluda",). */
#ifndef PYTENSOR_CL_CLUDA_H
#define PYTENSOR_CL_CLUDA_H

#define KERNEL __kernel
#define WITHIN_KERNEL
#define GLOBAL_MEM __global
#define LOCAL_MEM __local
#define LOCAL_MEM_ARG __local
#define REQD_WG_SIZE(x, y, z) __attribute__((reqd_work_group_size(x, y, z)))
#define local_barrier() barrier(CLK_LOCAL_MEM_FENCE)
#define GA_DECL_SHARED_PARAM(type, name) , __local type *name
#define GA_DECL_SHARED_BODY(type, name)

/* Number of the work-item in its work-group, size of the work-group, number of the work-group, number of work-groups */
#define LID_0 get_local_id(0)
#define LID_1 get_local_id(1)
#define LID_2 get_local_id(2)
#define LDIM_0 get_local_size(0)
#define LDIM_1 get_local_size(1)
#define LDIM_2 get_local_size(2)
#define GID_0 get_group_id(0)
#define GID_1 get_group_id(1)
#define GID_2 get_group_id(2)
#define GDIM_0 get_num_groups(0)
#define GDIM_1 get_num_groups(1)
#define GDIM_2 get_num_groups(2)

#define ga_bool uchar
#define ga_byte char
#define ga_ubyte uchar
#define ga_short short
#define ga_ushort ushort
#define ga_int int
#define ga_uint uint
#define ga_long long
#define ga_ulong ulong
#define ga_float float
#define ga_double double
#define ga_half half
#define ga_cfloat float2
#define ga_cdouble double2
#define ga_size ulong
#define ga_ssize long
#define load_half(p) vload_half(0, p)
#define store_half(p, v) vstore_half_rte(v, 0, p)

#endif
