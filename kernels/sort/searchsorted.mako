## Algorithm   Where values belong in sorted rows: a binary search without branches. Every search of a row of n elements
##             takes the same steps, so that `lanes` of them run side by side and wait for memory together.
## Operands    values: shape[dims] with steps `in`; output: steps `out`; rows: `length` elements, row_step apart, a row
##             for each value at steps `row`; sorters: positions of the rows' elements in sorted order.
## NDRange     cpu: (work-items), each with a contiguous range of the values; simt: any size, a loop with it as stride.
## Invariants  Values are compared by their keys (kernels/sort/keys.mako). A sorter's entry that is out of range is
##             reported, and taken for 0.
<%page args="name, geometry, row_dtype, value_dtype, sorter_dtype, dtype, key, to_key, side, dims, lanes, schedule,
             in_buffer"/>
<%include file="/common/partition.mako"/>\
<%namespace name="keys" file="/sort/keys.mako"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype
%>
<% T, precedes = ctype(dtype), "<" if side == "left" else "<=" %>
${keys.key_function()}
${geometry.c_typedef(f"{name}_geometry")}

% if sorter_dtype:
static inline long ${name}_checked(const long position, const long n, volatile __global int *error_flag,
    const int error_code)
{
    const int is_inside = position >= 0 && position < n;
    if (!is_inside)
        report_error(error_flag, error_code, 0, position, n);
    return is_inside ? position : 0;
}
% endif

__kernel void ${name}(__global const ${ctype(row_dtype)} *restrict rows,
    __global const ${ctype(value_dtype)} *restrict values,
                      % if sorter_dtype:
                      __global const ${ctype(sorter_dtype)} *restrict sorters, volatile __global int *error_flag,
                          const int error_code,
                      % endif
                      __global long *restrict output,
                      % if in_buffer:
                      __global const ${name}_geometry *given_geometry)
                      % else:
                      const ${name}_geometry g)
                      % endif
{
    % if in_buffer:
    const ${name}_geometry g = *given_geometry;
    % endif
    % if schedule == "cpu":
    const long end = partition_begin(g.size, 1, get_global_id(0) + 1, get_global_size(0));
    const long begin = partition_begin(g.size, 1, get_global_id(0), get_global_size(0));
    for (long first = begin; first < end; first += ${lanes}) {
    % else:
    const long end = g.size;
    for (long first = get_global_id(0); first < end; first += get_global_size(0)) {
    % endif
        const int count = (int)min(${lanes}L, end - first);
        ${key} v[${lanes}];
        long to[${lanes}], row[${lanes}], found[${lanes}];
        ${"long sorter[%d];" % lanes if sorter_dtype else ""}
        for (int k = 0; k < ${lanes}; ++k) {
            long rest = first + min(k, count - 1);
            long in = g.values_at;
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
            const long advance = n - n / 2;  // the part that is searched next has n / 2 elements
            for (int k = 0; k < ${lanes}; ++k) {
                % if sorter_dtype:
                const long position = sorters[sorter[k] + (found[k] + advance - 1) * g.sorter_step];
                const long at = ${name}_checked(position, g.length, error_flag, error_code);
                % else:
                const long at = found[k] + advance - 1;
                % endif
                const ${key} x = ${name}_key(as_${key}((${T})rows[row[k] + at * g.row_step]));
                found[k] += x ${precedes} v[k] ? advance : 0;
            }
            n /= 2;
        }
        for (int k = 0; k < count; ++k)
            output[to[k]] = found[k];
    }
}
