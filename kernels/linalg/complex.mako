## Arithmetic of complex numbers, which are pairs of `ctype`, and loops of the kernels of complex matrices; a preamble.
##
## Operands   Vectors of `lanes` elements have real and imaginary parts in turn.
## NDRange    LINALG_UNITS loops over matrices, or parts of them, b: on schedule cpu work-items share them evenly; on
##            simt work-groups of `group` loop over them. LINALG_TILE loops over the elements (i, j) of a matrix that
##            the work-items of a group, whose number is `item`, share, and LINALG_SHARE over numbers that they share.
##            LINALG_EACH loops over what single work-items compute.
<%page args="ctype, lanes, schedule"/>
<%
    T, Z, V = ctype, f"{ctype}2", f"{ctype}{lanes}"
    smallest = "DBL_MIN" if T == "double" else "FLT_MIN"
    swapped = "".join("0123456789abcdef"[lane ^ 1] for lane in range(lanes))
%>\
#ifndef LINALG_TILE_${schedule}
% if schedule == "cpu":
#define LINALG_UNITS_cpu(count, b)                                                                                    \
    for (long b = partition_begin(count, 1, part, parts), b##_end = partition_begin(count, 1, part + 1, parts);       \
         b < b##_end; ++b)
#define LINALG_TILE_cpu(rows, columns, i, j)                                                                          \
    for (int i = 0; i < (rows); ++i)                                                                                  \
        for (int j = 0; j < (columns); ++j)
#define LINALG_EACH_cpu(count, b) LINALG_UNITS_cpu(count, b)
#define LINALG_SHARE_cpu(begin, end, i) for (int i = (begin); i < (end); ++i)
% else:
#define LINALG_UNITS_simt(count, b) for (long b = get_group_id(0); b < (count); b += get_num_groups(0))
#define LINALG_TILE_simt(rows, columns, i, j)                                                                         \
    for (int element = item; element < (rows) * (columns); element += get_local_size(0))                              \
        for (int i = element / (columns), j = element - i * (columns), is_left = 1; is_left; is_left = 0)
#define LINALG_EACH_simt(count, b) for (long b = get_global_id(0); b < (count); b += get_global_size(0))
/* PoCL 3.0 may leave out loops of kernels with barriers whose number of steps differs among work-items. */
#define LINALG_SHARE_simt(begin, end, i)                                                                              \
    for (int i = (begin) + item, i##_left = (end) - (begin); i##_left > 0;                                            \
         i##_left -= get_local_size(0), i += get_local_size(0))                                                       \
        if (i < (end))
% endif
#endif
#ifndef LINALG_${Z}
#define LINALG_${Z}
static ${Z} linalg_conj_${Z}(const ${Z} a)
{
    return (${Z})(a.x, -a.y);
}

static ${Z} linalg_times_${Z}(const ${Z} a, const ${Z} b)
{
    return (${Z})(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

/* R. Smith, Algorithm 116: complex division, 1962. */
static ${Z} linalg_over_${Z}(const ${Z} a, const ${Z} b)
{
    const int is_flat = fabs(b.x) >= fabs(b.y);
    const ${T} ratio = is_flat ? b.y / b.x : b.x / b.y;
    const ${T} divisor = is_flat ? b.x + b.y * ratio : b.y + b.x * ratio;
    return is_flat ? (${Z})((a.x + a.y * ratio) / divisor, (a.y - a.x * ratio) / divisor)
                   : (${Z})((a.x * ratio + a.y) / divisor, (a.y * ratio - a.x) / divisor);
}

/* The size by which LAPACK's izamax compares. */
static ${T} linalg_size_${Z}(const ${Z} a)
{
    return fabs(a.x) + fabs(a.y);
}

/* Whether a product with the inverse is as exact as a quotient. */
static int linalg_has_inverse_${Z}(const ${Z} a)
{
    const ${T} size_of = linalg_size_${Z}(a);
    return size_of >= ${smallest} && size_of <= 1 / ${smallest};
}
% if schedule == "cpu":

/* Vectors that need no more alignment than their elements. */
typedef ${V} linalg_pairs_${V} __attribute__((aligned(sizeof(${T}))));

/* target -= factor * source, of so many neighbours as there are in `length`. */
static void linalg_subtract_${Z}(__global ${Z} *target, const ${Z} factor, __global const ${Z} *source,
                                 const int length)
{
    const ${V} real = factor.x, imag = (${V})(${", ".join(["-factor.y, factor.y"] * (lanes // 2))});
    int i = 0;
    for (; i + ${lanes // 2} <= length; i += ${lanes // 2}) {
        const ${V} x = *(__global const linalg_pairs_${V} *)(source + i);
        *(__global linalg_pairs_${V} *)(target + i) -= real * x + imag * x.s${swapped};
    }
    for (; i < length; ++i)
        target[i] -= linalg_times_${Z}(factor, source[i]);
}
% endif
#endif
