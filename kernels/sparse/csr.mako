## Algorithm   Products with a matrix A of compressed rows (CSR). `_dot`: A @ B (SpMM). `_sampled`: (X @ Y.T) at the
##             places that A has (SDDMM).
## Operands    A: data[entries], indices[entries], indptr[rows + 1]; B[inner][columns], contiguous; output contiguous.
## Tiling      cpu: vectors along the columns of B, TILE of them at a time.
## NDRange     cpu: (work-items), each with rows that have about the same number of entries in all (merge path by row);
##             simt: any size, a loop with it as stride.
## Invariants  Indices and row ends that are out of range are reported, and taken for the nearest one or for 0.
<%page args="name, plan, dtype, lanes, schedule"/>
<%include file="/common/partition.mako"/>\
<%include file="/common/merge_path.mako"/>\
<%!
    from pytensor_cl.codegen.dtypes import ctype, vector_type
    TILE = 4  # vectors of a row that are summed at a time
%>
<% T, V = ctype(dtype), vector_type(dtype, lanes) %>
${plan.c_typedef(f"{name}_plan")}
typedef ${V} ${name}_v __attribute__((aligned(sizeof(${T}))));

static inline long ${name}_column(const int given, const long limit, volatile __global int *error_flag,
    const int error_code)
{
    if (given >= 0 && given < limit)
        return given;
    report_error(error_flag, error_code, 1, given, limit);
    return 0;
}

static inline int ${name}_end(const int given, const long entries, volatile __global int *error_flag,
    const int error_code)
{
    if (given > entries)
        report_error(error_flag, error_code, 0, given, entries);
    return min((long)given, entries);
}

<%def name="arguments(left)">
__global const int *indices, __global const int *indptr,
    ${left} __global const ${T} *right, __global ${T} *output, const ${name}_plan g,
    volatile __global int *error_flag, const int error_code)
{
    indices += g.indices;
    indptr += g.indptr;
    left += g.left;
    right += g.right;
    output += g.output;
</%def>

<%def name="share()">
    const long part = get_global_id(0);
    const long parts = get_global_size(0);
    const long entries = indptr[g.rows] + g.rows;
    const long last = merge_path_row(indptr, g.rows, partition_begin(entries, 1, part + 1, parts));
    for (long row = merge_path_row(indptr, g.rows, partition_begin(entries, 1, part, parts)); row < last; ++row) {
</%def>

<%def name="tile(vectors)">
            ${V} ${", ".join(f"sum{k} = 0" for k in range(vectors))};
            const int end = ${name}_end(indptr[row + 1], g.entries, error_flag, error_code);
            for (int p = max(indptr[row], 0); p < end; ++p) {
                const ${T} a = left[p];
                __global const ${T} *b =
                    right + ${name}_column(indices[p], g.inner, error_flag, error_code) * g.columns + column;
    % for k in range(vectors):
                sum${k} += a * *(__global const ${name}_v *)(b + ${k * lanes});
    % endfor
            }
    % for k in range(vectors):
            *(__global ${name}_v *)(output + row * g.columns + column + ${k * lanes}) = sum${k};
    % endfor
</%def>

% if schedule == "cpu":
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${V})))
void ${name}_dot(${arguments(f"__global const {T} *left,")}
    ${share()}
        long column = 0;
        for (; column + ${TILE * lanes} <= g.columns; column += ${TILE * lanes}) {
            ${tile(TILE)}
        }
        for (; column < g.columns; column += ${lanes}) {
            column = min(column, g.columns - ${lanes}); /* the last vector may reach back */
            ${tile(1)}
        }
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${V})))
void ${name}_sampled(${arguments(f"__global const {T} *left,")}
    ${share()}
        __global const ${T} *x = left + row * g.columns;
        const int end = ${name}_end(indptr[row + 1], g.entries, error_flag, error_code);
        for (int p = max(indptr[row], 0); p < end; ++p) {
            __global const ${T} *y = right + ${name}_column(indices[p], g.inner, error_flag, error_code) * g.columns;
            ${V} sums = 0;
            long c = 0;
            for (; c + ${lanes} <= g.columns; c += ${lanes})
                sums += *(__global const ${name}_v *)(x + c) * *(__global const ${name}_v *)(y + c);
            ${T} lane[${lanes}];
            ${T} sum = 0;
            *(${V} *)lane = sums;
            for (; c < g.columns; ++c)
                sum += x[c] * y[c];
            for (int k = 0; k < ${lanes}; ++k)
                sum += lane[k];
            output[p] = sum;
        }
    }
}
% else:
__kernel void ${name}_dot(${arguments(f"__global const {T} *left,")}
    for (long unit = get_global_id(0); unit < g.rows * g.columns; unit += get_global_size(0)) {
        const long row = unit / g.columns;
        const long column = unit - row * g.columns;
        ${T} sum = 0;
        const int end = ${name}_end(indptr[row + 1], g.entries, error_flag, error_code);
        for (int p = max(indptr[row], 0); p < end; ++p)
            sum += left[p] * right[${name}_column(indices[p], g.inner, error_flag, error_code) * g.columns + column];
        output[unit] = sum;
    }
}

__kernel void ${name}_sampled(${arguments(f"__global const {T} *left,")}
    for (long p = get_global_id(0); p < g.entries; p += get_global_size(0)) {
        /* the last row that starts at p or before */
        long row = 0;
        long high = g.rows;
        while (high - row > 1) {
            const long middle = (row + high) / 2;
            if (indptr[middle] <= p)
                row = middle;
            else
                high = middle;
        }
        __global const ${T} *x = left + row * g.columns;
        __global const ${T} *y = right + ${name}_column(indices[p], g.inner, error_flag, error_code) * g.columns;
        ${T} sum = 0;
        for (long c = 0; c < g.columns; ++c)
            sum += x[c] * y[c];
        output[p] = sum;
    }
}
% endif
