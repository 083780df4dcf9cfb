## Types and structs of the kernels of this folder; a preamble.
<%page args="typedefs, ctype, lanes"/>\
<% V = ctype if lanes == 1 else f"{ctype}{lanes}" %>\
#ifndef LINALG_STRUCTS
#define LINALG_STRUCTS
% for typedef in typedefs:
${typedef}
% endfor
#endif
#ifndef LINALG_${V}
#define LINALG_${V}
/* Vectors that need no more alignment than their elements. */
typedef ${V} linalg_${V} __attribute__((aligned(sizeof(${ctype}))));
#endif
