## Error record of a kernel for invalid data; the host reads it when it waits (pytensor_cl/runtime/error_flag.py).
static inline void report_error(volatile __global int *error_flag, const int error_code, const int detail,
    const long value,
    const long limit)
{
    /* The first error is kept; later ones are dropped. */
    if (atomic_cmpxchg(error_flag, 0, error_code) == 0) {
        error_flag[1] = detail;
        ((volatile __global long *)error_flag)[1] = value;
        ((volatile __global long *)error_flag)[2] = limit;
    }
}
