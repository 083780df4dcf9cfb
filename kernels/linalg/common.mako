## Types, structs and loops of the kernels of this folder; a preamble.
<%page args="typedefs, ctype, lanes, schedule"/>\
<%include file="/common/partition.mako"/>\
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
#endif
