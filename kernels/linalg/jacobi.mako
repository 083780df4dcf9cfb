## Orthogonalise the vectors of a batch of matrices by rotations of pairs (one-sided Jacobi).
##
## Algorithm  `_rotate`: sweeps over all pairs of vectors until no pair is rotated. The vectors are multiplied by a
##            power of two so that their largest element is near one. Rotations are accumulated in v. `_sort`: the
##            result, sorted by norm. `_shift`: a symmetric matrix, of which one triangle is read, divided by a scale,
##            plus a multiple of the identity so that it is positive semidefinite (Gershgorin). `_values`: the
##            eigenvalues, v . (w - shift v), in place of the norms; the rounding of norms, which contain the shift,
##            would make small ones equal. `_lanes`: as `_rotate`, `lanes` matrices at a time, one in each lane of a
##            vector; lanes that are done turn by nothing.
## Operands   w: `columns` vectors of `rows` elements for each matrix; v: `columns` vectors of `columns` elements.
##            Vectors are contiguous on schedule cpu. On simt neighbouring vectors are neighbours in memory, so that
##            neighbouring work-items, which have a pair each, read neighbouring elements.
##            norms: of the vectors, with the scale; contiguous.
##            shifts: for each matrix the multiple of the identity, and the scale.
## Invariant  Powers of two and their inverses are normal numbers. A product of two vectors is taken for zero if its
##            root is far below epsilon: rotations would not change the longer one, and squares may not be normal
##            numbers.
## NDRange    `_rotate`: schedule cpu: work-items share the matrices evenly; simt: work-groups of `group` loop over
##            the matrices. `_values`: work-items loop over the vectors.
##            `_lanes`: work-items share groups of matrices evenly.
##            `_sort`: work-items loop over the vectors. `_shift`: work-items loop over the matrices.
## Workspace  `_lanes`: columns * (rows + columns) vectors for each work-item.
## Reference  Golub and Van Loan, Matrix Computations, 8.6.3; M. Hestenes, Inversion of matrices by biorthogonalization
##            and related results, 1958.
<%page args="name, ctype, lanes, block, group, schedule"/>
<%namespace name="workgroup" file="/common/workgroup.mako"/>\
<% one_item_groups = "__attribute__((reqd_work_group_size(1, 1, 1)))" if schedule == "cpu" else "" %>
<%
V, T = ctype if lanes == 1 else f"{ctype}{lanes}", ctype
integers = f"{'int' if ctype == 'float' else 'long'}{lanes}"
epsilon = "FLT_EPSILON" if ctype == "float" else "DBL_EPSILON"
least = "0x1p-120f" if ctype == "float" else "0x1p-900"
huge, divisor = ("0x1p90f", "0x1p36f") if ctype == "float" else ("0x1p980", "0x1p40")
exponent = 126 if ctype == "float" else 1022
%>
#define SWEEPS 60

/* A power of two near a number that is not negative. */
static ${T} ${name}_power(const ${T} value)
{
    return ldexp((${T})1, clamp(ilogb(value), -${exponent}, ${exponent}));
}

/* The sine of the rotation of two vectors with these products, and the tangent of half the angle: with both, rotations
   keep the length of vectors (H. Rutishauser, The Jacobi method for real symmetric matrices, 1966). Returns 0 if the
   vectors are orthogonal already. */
static int ${name}_angle(const ${T} first, const ${T} second, const ${T} mixed, const ${T} tolerance, ${T} *sine,
                         ${T} *ratio)
{
    if (!(mixed * mixed > tolerance * tolerance * first * second + ${least}))
        return 0;
    const ${T} zeta = (second - first) / (2 * mixed);
    const ${T} tangent = copysign((${T})1, zeta) / (fabs(zeta) + hypot((${T})1, zeta));
    const ${T} cosine = 1 / sqrt(1 + tangent * tangent);
    *sine = cosine * tangent;
    *ratio = *sine / (1 + cosine);
    return 1;
}

% if schedule == "cpu":
static void ${name}_turn(__global ${T} *p, __global ${T} *q, const int length, const ${T} sine, const ${T} ratio)
{
    int i = 0;
    for (; i + ${lanes} <= length; i += ${lanes}) {
        const ${V} x = *(__global linalg_${V} *)(p + i), y = *(__global linalg_${V} *)(q + i);
        *(__global linalg_${V} *)(p + i) = x - sine * (y + ratio * x);
        *(__global linalg_${V} *)(q + i) = y + sine * (x - ratio * y);
    }
    for (; i < length; ++i) {
        const ${T} x = p[i], y = q[i];
        p[i] = x - sine * (y + ratio * x);
        q[i] = y + sine * (x - ratio * y);
    }
}

static ${T} ${name}_sum(${V} value)
{
    ${T} *element = (${T} *)&value, sum = 0;
    for (int lane = 0; lane < ${lanes}; ++lane)
        sum += element[lane];
    return sum;
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${V})))
void ${name}_rotate(const linalg_sizes size, __global ${T} *w, __global ${T} *v, __global ${T} *norms)
{
    const long part = get_global_id(0), parts = get_global_size(0);
    const int m = size.rows, n = size.columns;
    const ${T} tolerance = 2 * ${epsilon} * sqrt((${T})m);
    const long b_end = partition_begin(size.count, 1, part + 1, parts);
    for (long b = partition_begin(size.count, 1, part, parts); b < b_end; ++b) {
        __global ${T} *vectors = w + b * n * m, *turns = v + b * n * n;
        ${T} scale = 0;
        for (int e = 0; e < n * m; ++e)
            scale = fmax(scale, fabs(vectors[e]));
        scale = ${name}_power(scale);
        for (int e = 0; e < n * m; ++e)
            vectors[e] *= 1 / scale;
        for (int e = 0; size.whole && e < n * n; ++e)
            turns[e] = e / n == e % n;
        int is_turned = 1;
        for (int sweep = 0; is_turned && sweep < SWEEPS; ++sweep) {
            is_turned = 0;
            for (int j = 0; j < n - 1; ++j) {
                __global ${T} *p = vectors + j * m;
                for (int k = j + 1; k < n; ++k) {
                    __global ${T} *q = vectors + k * m;
                    ${V} first = 0, second = 0, mixed = 0;
                    int i = 0;
                    for (; i + ${lanes} <= m; i += ${lanes}) {
                        const ${V} x = *(__global linalg_${V} *)(p + i), y = *(__global linalg_${V} *)(q + i);
                        first += x * x;
                        second += y * y;
                        mixed += x * y;
                    }
                    ${T} pp = ${name}_sum(first), qq = ${name}_sum(second), pq = ${name}_sum(mixed), sine, ratio;
                    for (; i < m; ++i) {
                        pp += p[i] * p[i];
                        qq += q[i] * q[i];
                        pq += p[i] * q[i];
                    }
                    if (!${name}_angle(pp, qq, pq, tolerance, &sine, &ratio))
                        continue;
                    is_turned = 1;
                    ${name}_turn(p, q, m, sine, ratio);
                    if (size.whole)
                        ${name}_turn(turns + j * n, turns + k * n, n, sine, ratio);
                }
            }
        }
        for (int j = 0; j < n; ++j) {
            ${T} sum = 0;
            for (int i = 0; i < m; ++i)
                sum += vectors[j * m + i] * vectors[j * m + i];
            norms[b * n + j] = sqrt(sum) * scale;
        }
    }
}
% if lanes > 1:
<% limit = "1e15f" if ctype == "float" else "1e150" %>
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${V})))
void ${name}_lanes(const linalg_sizes size, __global ${T} *w, __global ${T} *v, __global ${T} *norms,
                   __global ${V} *workspace)
{
    const long part = get_global_id(0), parts = get_global_size(0), groups = (size.count + ${lanes - 1}) / ${lanes};
    const int m = size.rows, n = size.columns;
    const ${T} tolerance = 2 * ${epsilon} * sqrt((${T})m);
    __global ${V} *vectors = workspace + part * (n * m + n * n), *turns = vectors + n * m;
    const long g_end = partition_begin(groups, 1, part + 1, parts);
    for (long g = partition_begin(groups, 1, part, parts); g < g_end; ++g) {
        const long b = g * ${lanes};
        const int valid = min((long)${lanes}, size.count - b);
        linalg_load_${V}(w + b * n * m, n * m, valid, 1, n * m, vectors, 1);
        ${V} scale = 0;
        for (int e = 0; e < n * m; ++e)
            scale = fmax(scale, fabs(vectors[e]));
        for (int lane = 0; lane < ${lanes}; ++lane)
            ((${T} *)&scale)[lane] = ${name}_power(((const ${T} *)&scale)[lane]);
        const ${V} inverse = 1 / scale;
        for (int e = 0; e < n * m; ++e)
            vectors[e] *= inverse;
        for (int e = 0; size.whole && e < n * n; ++e)
            turns[e] = e / n == e % n;
        int is_turned = 1;
        for (int sweep = 0; is_turned && sweep < SWEEPS; ++sweep) {
            is_turned = 0;
            for (int j = 0; j < n - 1; ++j) {
                __global ${V} *p = vectors + j * m;
                for (int k = j + 1; k < n; ++k) {
                    __global ${V} *q = vectors + k * m;
                    ${V} first = 0, second = 0, mixed = 0;
                    for (int i = 0; i < m; ++i) {
                        const ${V} x = p[i], y = q[i];
                        first += x * x;
                        second += y * y;
                        mixed += x * y;
                    }
                    /* As `_angle`; lanes that need no rotation turn by nothing. */
                    const ${integers} needs_turn = mixed * mixed > tolerance * tolerance * first * second + ${least};
                    if (!any(needs_turn))
                        continue;
                    is_turned = 1;
                    const ${V} zeta = (second - first) / (2 * select((${V})1, mixed, needs_turn));
                    const ${V} size_of = fabs(zeta);
                    const ${V} root = select(sqrt(1 + zeta * zeta), size_of, size_of > ${limit});
                    const ${V} tangent = copysign((${V})1, zeta) / (size_of + root);
                    const ${V} cosine = 1 / sqrt(1 + tangent * tangent);
                    const ${V} sine = select((${V})0, cosine * tangent, needs_turn);
                    const ${V} ratio = select((${V})0, cosine * tangent / (1 + cosine), needs_turn);
                    for (int i = 0; i < m; ++i) {
                        const ${V} x = p[i], y = q[i];
                        p[i] = x - sine * (y + ratio * x);
                        q[i] = y + sine * (x - ratio * y);
                    }
                    for (int i = 0; size.whole && i < n; ++i) {
                        const ${V} x = turns[j * n + i], y = turns[k * n + i];
                        turns[j * n + i] = x - sine * (y + ratio * x);
                        turns[k * n + i] = y + sine * (x - ratio * y);
                    }
                }
            }
        }
        for (int j = 0; j < n; ++j) {
            ${V} sum = 0;
            for (int i = 0; i < m; ++i)
                sum += vectors[j * m + i] * vectors[j * m + i];
            const ${V} norm = sqrt(sum) * scale;
            for (int lane = 0; lane < valid; ++lane)
                norms[(b + lane) * n + j] = ((const ${T} *)&norm)[lane];
        }
        linalg_store_${V}(w + b * n * m, n * m, valid, 1, n * m, vectors, 1);
        if (size.whole)
            linalg_store_${V}(v + b * n * n, n * n, valid, 1, n * n, turns, 1);
    }
}
% endif
% else:
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_rotate(const linalg_sizes size, __global ${T} *w, __global ${T} *v, __global ${T} *norms)
{
    __local ${T} partial[${group}];
    __local int is_turned;
    const int m = size.rows, n = size.columns, item = get_local_id(0), slots = n + n % 2;
    const ${T} tolerance = 2 * ${epsilon} * sqrt((${T})m);
    for (long b = get_group_id(0); b < size.count; b += get_num_groups(0)) {
        __global ${T} *vectors = w + b * n * m, *turns = v + b * n * n;
        ${T} scale = 0;
        for (int e = item; e < n * m; e += ${group})
            scale = fmax(scale, fabs(vectors[e]));
        partial[item] = scale;
        <%workgroup:tree_reduce group="${group // 2}">
                partial[item] = fmax(partial[item], partial[item + distance]);
        </%workgroup:tree_reduce>
        scale = ${name}_power(partial[0]);
        for (int e = item; e < n * m; e += ${group})
            vectors[e] *= 1 / scale;
        for (int e = item; size.whole && e < n * n; e += ${group})
            turns[e] = e / n == e % n;
        for (int sweep = 0; sweep < SWEEPS; ++sweep) {
            if (item == 0)
                is_turned = 0;
            barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
            /* In each round every vector is in one pair (circle method of a round-robin; the last slot is fixed). */
            for (int round = 0; round < slots - 1; ++round) {
                for (int pair = item; pair < slots / 2; pair += ${group}) {
                    const int one = pair == 0 ? slots - 1 : (round + pair) % (slots - 1);
                    const int other = (round - pair + slots - 1) % (slots - 1);
                    const int j = min(one, other), k = max(one, other);
                    if (k >= n)
                        continue;
                    ${T} pp = 0, qq = 0, pq = 0, sine, ratio;
                    for (int i = 0; i < m; ++i) {
                        const ${T} x = vectors[i * n + j], y = vectors[i * n + k];
                        pp += x * x;
                        qq += y * y;
                        pq += x * y;
                    }
                    if (!${name}_angle(pp, qq, pq, tolerance, &sine, &ratio))
                        continue;
                    is_turned = 1;
                    for (int i = 0; i < m; ++i) {
                        const ${T} x = vectors[i * n + j], y = vectors[i * n + k];
                        vectors[i * n + j] = x - sine * (y + ratio * x);
                        vectors[i * n + k] = y + sine * (x - ratio * y);
                    }
                    for (int i = 0; size.whole && i < n; ++i) {
                        const ${T} x = turns[i * n + j], y = turns[i * n + k];
                        turns[i * n + j] = x - sine * (y + ratio * x);
                        turns[i * n + k] = y + sine * (x - ratio * y);
                    }
                }
                barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
            }
            const int goes_on = is_turned;
            barrier(CLK_LOCAL_MEM_FENCE);
            if (!goes_on)
                break;
        }
        for (int j = item; j < n; j += ${group}) {
            ${T} sum = 0;
            for (int i = 0; i < m; ++i)
                sum += vectors[i * n + j] * vectors[i * n + j];
            norms[b * n + j] = sqrt(sum) * scale;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
% endif

/* The eigenvalue of each vector of a matrix that `_shift` has written, in place of its norm. */
__kernel ${one_item_groups}
void ${name}_values(const linalg_sizes size, __global const ${T} *w, __global const ${T} *v,
                    __global const ${T} *shifts, __global ${T} *norms)
{
    const long n = size.columns;
    for (long e = get_global_id(0); e < size.count * n; e += get_global_size(0)) {
        const long b = e / n, j = e - b * n;
<% vector, element = ("n", "1") if schedule == "cpu" else ("1", "n") %>
        __global const ${T} *own = w + b * n * n + j * ${vector}, *unit = v + b * n * n + j * ${vector};
        const ${T} norm = norms[e], shift = shifts[2 * b];
        ${T} squares = 0, value = 0;
        for (long i = 0; i < n; ++i)
            squares += own[i * ${element}] * own[i * ${element}];
        /* The power of two by which `_rotate` has divided. */
        const ${T} power = norm > 0 ? ldexp((${T})1, ilogb((${T})1.25 * norm / sqrt(squares))) : 1;
        for (long i = 0; i < n; ++i)
            value += unit[i * ${element}] * (own[i * ${element}] * power - shift * unit[i * ${element}]);
        norms[e] = norm > 0 ? value : norm - shift;
    }
}

/* values, and the vectors of w and v that are wanted, by descending or ascending norm. `whole` is a sum of flags:
   1: vectors of w; 2: vectors of v; 4: ascending; 8: shifts are subtracted from the norms; 32: the norms are
   eigenvalues, but for the scale. */
__kernel ${one_item_groups}
void ${name}_sort(const linalg_sizes size, const linalg_strides w_at, const linalg_strides v_at,
                  const long values_at, __global const ${T} *w, __global const ${T} *v,
                  __global const ${T} *norms, __global const ${T} *shifts, __global ${T} *values,
                  __global ${T} *w_sorted, __global ${T} *v_sorted)
{
    const long m = size.rows, n = size.columns;
    for (long e = get_global_id(0); e < size.count * n; e += get_global_size(0)) {
        const long b = e / n, j = e - b * n;
        __global const ${T} *norm = norms + b * n;
        const ${T} own = norm[j];
        long place = isnan(own) ? j : 0;
        for (long k = 0; k < n; ++k)
            place += norm[k] > own || (norm[k] == own && k < j);
        place = size.whole & 4 ? n - 1 - place : place;
        const ${T} shift = size.whole & 8 ? shifts[2 * b] : 0, scale = size.whole & 40 ? shifts[2 * b + 1] : 1;
        values[values_at + b * n + place] = (own - shift) * scale;
<% vector, element = ("m", "1") if schedule == "cpu" else ("1", "n") %>
        for (long i = 0; size.whole & 1 && i < m; ++i)
            w_sorted[w_at.offset + b * w_at.batch + i * w_at.row + place * w_at.column] =
                w[b * n * m + j * ${vector} + i * ${element}];
<% vector = "n" if schedule == "cpu" else "1" %>
        for (long i = 0; size.whole & 2 && i < n; ++i)
            v_sorted[v_at.offset + b * v_at.batch + i * v_at.row + place * v_at.column] =
                v[b * n * n + j * ${vector} + i * ${element}];
    }
}

/* w (rows x rows, contiguous) = a / scale + shift * identity, from the lower triangle of a, or from the upper one if
   `whole`; the shift and the scale are written. The scale is one unless sums of elements are huge. */
__kernel ${one_item_groups}
void ${name}_shift(const linalg_sizes size, const linalg_strides a_at, __global const ${T} *a,
                   __global ${T} *w, __global ${T} *shifts)
{
    const long n = size.rows;
    for (long b = get_global_id(0); b < size.count; b += get_global_size(0)) {
        __global const ${T} *source = a + a_at.offset + b * a_at.batch;
        __global ${T} *matrix = w + b * n * n;
        ${T} shift, scale = 1;
        for (int is_found = 0; !is_found;) {
            shift = 0;
            for (long i = 0; i < n; ++i) {
                ${T} radius = 0;
                for (long j = 0; j < n; ++j) {
                    const int is_own = size.whole ? i <= j : i >= j;
                    const long at = is_own ? i * a_at.row + j * a_at.column : j * a_at.row + i * a_at.column;
                    const ${T} value = source[at] / scale;
                    matrix[i * n + j] = value;
                    radius += i == j ? -value : fabs(value);
                }
                shift = fmax(shift, radius);
            }
            is_found = scale != 1 || shift < ${huge};
            scale = is_found ? scale : ${divisor};
        }
        for (long i = 0; i < n; ++i)
            matrix[i * (n + 1)] += shift;
        shifts[2 * b] = shift;
        shifts[2 * b + 1] = scale;
    }
}
