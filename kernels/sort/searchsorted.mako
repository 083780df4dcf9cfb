## Where values belong in sorted rows. A binary search without branches: every search of a row of n elements takes the same
## steps, so that `lanes` of them run side by side and wait for memory together. Values are compared by their keys.
<%page args="name, row_dtype, value_dtype, sorter_dtype, dtype, key, to_key, side, dims, lanes, schedule, in_buffer"/>
<%namespace name="keys" file="/sort/keys.mako"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype
%>
<% T, precedes = ctype(dtype), "<" if side == "left" else "<=" %>
${keys.key_function()}
typedef struct {  // the values' dimensions from the innermost outwards; steps of the output, the values, the rows, the sorters
    long size, length, row_step, sorter_step, output_at, values_at, rows_at, sorters_at;
    long shape[${dims}], out[${dims}], in[${dims}], row[${dims}], sorter[${dims}];
} ${name}_geometry;

% if sorter_dtype:
static inline long ${name}_checked(const long place, const long n, volatile __global int *alarm, const int number)
{
    const int is_inside = place >= 0 && place < n;
    if (!is_inside)
        raise_alarm(alarm, number, 0, place, n);
    return is_inside ? place : 0;
}
% endif

__kernel void ${name}(__global const ${ctype(row_dtype)} *restrict rows, __global const ${ctype(value_dtype)} *restrict values,
                      % if sorter_dtype:
                      __global const ${ctype(sorter_dtype)} *restrict sorters, volatile __global int *alarm, const int number,
                      % endif
                      __global long *restrict output, ${"__global " if in_buffer else ""}const ${name}_geometry ${"*geometry" if in_buffer else "g"})
{
    % if in_buffer:
    const ${name}_geometry g = *geometry;
    % endif
    % if schedule == "cpu":
    const long end = g.size * (get_global_id(0) + 1) / get_global_size(0);
    for (long first = g.size * get_global_id(0) / get_global_size(0); first < end; first += ${lanes}) {
    % else:
    const long end = g.size;
    for (long first = get_global_id(0); first < end; first += get_global_size(0)) {
    % endif
        const int count = (int)min(${lanes}L, end - first);
        ${key} v[${lanes}];
        long to[${lanes}], row[${lanes}], found[${lanes}];
        ${"long sorter[%d];" % lanes if sorter_dtype else ""}
        for (int k = 0; k < ${lanes}; ++k) {
            long rest = first + min(k, count - 1), in = g.values_at;
            to[k] = g.output_at;
            row[k] = g.rows_at;
            ${"sorter[k] = g.sorters_at;" if sorter_dtype else ""}
            for (int d = 0; rest; ++d) {
                const long i = rest % g.shape[d];
                rest /= g.shape[d];
                in += i * g.in[d];
                to[k] += i * g.out[d];
                row[k] += i * g.row[d];
                ${"sorter[k] += i * g.sorter[d];" if sorter_dtype else ""}
            }
            v[k] = ${name}_key(as_${key}((${T})values[in]));
            found[k] = 0;
        }
        for (long n = g.length; n > 0;) {
            const long reach = n - n / 2;  // the part that is searched next has n / 2 elements
            for (int k = 0; k < ${lanes}; ++k) {
                % if sorter_dtype:
                const long place = sorters[sorter[k] + (found[k] + reach - 1) * g.sorter_step];
                const long at = ${name}_checked(place, g.length, alarm, number);
                % else:
                const long at = found[k] + reach - 1;
                % endif
                const ${key} x = ${name}_key(as_${key}((${T})rows[row[k] + at * g.row_step]));
                found[k] += x ${precedes} v[k] ? reach : 0;
            }
            n /= 2;
        }
        for (int k = 0; k < count; ++k)
            output[to[k]] = found[k];
    }
}
