## Algorithm   Reports an error if a condition does not hold.
## Operands    A condition: 0-d, bool.
## NDRange     One work-item.
<%page args="name"/>\
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${name}(__global const uchar *holds, const long at, volatile __global int *error_flag,
             const int error_code)
{
    if (!holds[at])
        report_error(error_flag, error_code, 0, 0, 0);
}
