## How a kernel says that its data is wrong; the host reads it where it waits (pytensor_cl/runtime/error_flag.py).
static inline void raise_alarm(volatile __global int *alarm, const int number, const int detail, const long value,
                               const long limit)
{
    /* Who comes first is heard; nobody else writes. */
    if (atomic_cmpxchg(alarm, 0, number) == 0) {
        alarm[1] = detail;
        ((volatile __global long *)alarm)[1] = value;
        ((volatile __global long *)alarm)[2] = limit;
    }
}
