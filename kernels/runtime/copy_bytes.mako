## Copy bytes from any address to the beginning of a buffer, on all threads of a CPU.
<%page args="name"/>\
<%include file="/common/partition.mako"/>\
typedef ulong8 ${name}_line __attribute__((aligned(1)));

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${name}(__global uchar *target, __global const uchar *source, const long begin, const long count,
    const int is_large)
{
    source += begin;
    const long lines = count / 64;
    const long end = partition_begin(lines, 1, get_global_id(0) + 1, get_global_size(0));
    const long first = partition_begin(lines, 1, get_global_id(0), get_global_size(0));
    if (is_large)
        for (long i = first; i < end; ++i)
            store_non_temporal(*(__global const ${name}_line *)(source + 64 * i), (__global ulong8 *)target + i);
    else
        for (long i = first; i < end; ++i)
            ((__global ulong8 *)target)[i] = *(__global const ${name}_line *)(source + 64 * i);
    if (end == lines)
        for (long i = 64 * lines; i < count; ++i)
            target[i] = source[i];
}
