## Types, structs and loops of the kernels of this folder; a preamble.
<%page args="typedefs, ctype, lanes, schedule"/>\
<%include file="/common/partition.mako"/>\
% if schedule == "cpu":
<%include file="/common/private.mako"/>\
% endif
<% V = ctype if lanes == 1 else f"{ctype}{lanes}" %>\
#ifndef LINALG_STRUCTS
#define LINALG_STRUCTS
% for typedef in typedefs:
${typedef}
% endfor
#endif
/* A loop over the elements (i, j) of the matrices b of a batch, which work-items share: `part` of `parts`. On schedule
   cpu each has consecutive rows, so that no two write to one cache line again and again. */
#ifndef LINALG_ELEMENTS_${schedule}
% if schedule == "cpu":
#define LINALG_ELEMENTS_cpu(size, b, i, j)                                                                            \
    for (long line = partition_begin((size).count * (size).rows, 1, part, parts),                                     \
              line_end = partition_begin((size).count * (size).rows, 1, part + 1, parts);                             \
         line < line_end; ++line)                                                                                     \
        for (long b = line / (size).rows, i = line - b * (size).rows, j = 0; j < (size).columns; ++j)
% else:
#define LINALG_ELEMENTS_simt(size, b, i, j)                                                                           \
    for (long element = part; element < (size).count * (size).rows * (size).columns; element += parts)                \
        for (long line = element / (size).columns, j = element - line * (size).columns, b = line / (size).rows,       \
                  i = line - b * (size).rows, is_left = 1;                                                            \
             is_left; is_left = 0)
% endif
#endif
#ifndef LINALG_${V}
#define LINALG_${V}
/* Vectors that need no more alignment than their elements. */
typedef ${V} linalg_${V} __attribute__((aligned(sizeof(${ctype}))));
% if schedule == "cpu" and lanes > 1:
<% digits = "0123456789abcdef" %>
/* Elements of `lanes` matrices, `batch` apart, as vectors with one matrix in each lane: values[j * values_step] has
   element j, at `step * j`. Of the last matrices only `valid` exist; the lanes of others repeat the last
   one. Squares of lanes x lanes elements are transposed in registers. */
<%def name="transpose()">
    <% distance = 1 %>
    % while distance < lanes:
        % for i in range(lanes):
            % if not i & distance:
<%
partner = i + distance
columns = [(j, j & distance) for j in range(lanes)]
first = ", ".join(f"x{partner}.s{digits[j - distance]}" if odd else f"x{i}.s{digits[j]}" for j, odd in columns)
second = ", ".join(f"x{partner}.s{digits[j]}" if odd else f"x{i}.s{digits[j + distance]}" for j, odd in columns)
%>
            {
                const ${V} even = (${V})(${first});
                x${partner} = (${V})(${second});
                x${i} = even;
            }
            % endif
        % endfor
        <% distance *= 2 %>
    % endwhile
</%def>
static void linalg_load_${V}(__global const ${ctype} *source, const long batch, const int valid, const long step,
                             const int n, __global ${V} *values, const long values_step)
{
    int j = 0;
    if (step == 1 && valid == ${lanes})
        for (; j + ${lanes} <= n; j += ${lanes}) {
    % for lane in range(lanes):
            ${V} x${lane} = *(__global const linalg_${V} *)(source + ${lane} * batch + j);
    % endfor
            ${transpose()}
    % for lane in range(lanes):
            values[(j + ${lane}) * values_step] = x${lane};
    % endfor
        }
    for (; j < n; ++j)
        for (int lane = 0; lane < ${lanes}; ++lane)
            ((__global ${ctype} *)(values + j * values_step))[lane] = source[min(lane, valid - 1) * batch + j * step];
}

static void linalg_store_${V}(__global ${ctype} *target, const long batch, const int valid, const long step,
                              const int n, __global const ${V} *values, const long values_step)
{
    int j = 0;
    if (step == 1 && valid == ${lanes})
        for (; j + ${lanes} <= n; j += ${lanes}) {
    % for lane in range(lanes):
            ${V} x${lane} = values[(j + ${lane}) * values_step];
    % endfor
            ${transpose()}
    % for lane in range(lanes):
            *(__global linalg_${V} *)(target + ${lane} * batch + j) = x${lane};
    % endfor
        }
    for (; j < n; ++j)
        for (int lane = 0; lane < valid; ++lane)
            target[lane * batch + j * step] = ((__global const ${ctype} *)(values + j * values_step))[lane];
}

/* The same for whole matrices (rows x columns), which are C-contiguous in `values`. */
static void linalg_load_matrices_${V}(__global const ${ctype} *source, const linalg_strides at, const int valid,
                                      const int rows, const int columns, __global ${V} *values)
{
    if (at.column == 1 && at.row == columns)
        linalg_load_${V}(source, at.batch, valid, 1, rows * columns, values, 1);
    else if (at.row == 1)
        for (int j = 0; j < columns; ++j)
            linalg_load_${V}(source + j * at.column, at.batch, valid, 1, rows, values + j, columns);
    else
        for (int i = 0; i < rows; ++i)
            linalg_load_${V}(source + i * at.row, at.batch, valid, at.column, columns, values + i * columns, 1);
}

static void linalg_store_matrices_${V}(__global ${ctype} *target, const linalg_strides at, const int valid,
                                       const int rows, const int columns, __global const ${V} *values)
{
    if (at.column == 1 && at.row == columns)
        linalg_store_${V}(target, at.batch, valid, 1, rows * columns, values, 1);
    else if (at.row == 1)
        for (int j = 0; j < columns; ++j)
            linalg_store_${V}(target + j * at.column, at.batch, valid, 1, rows, values + j, columns);
    else
        for (int i = 0; i < rows; ++i)
            linalg_store_${V}(target + i * at.row, at.batch, valid, at.column, columns, values + i * columns, 1);
}
% endif
#endif
