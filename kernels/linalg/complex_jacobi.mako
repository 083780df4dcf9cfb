## Orthogonalise the complex vectors of a batch of matrices by rotations of pairs (one-sided Jacobi).
##
## Algorithm  `_rotate`: sweeps over all pairs of vectors until no pair is rotated. The vectors are multiplied by a
##            power of two so that their largest element is near one. A rotation is a real one after the phase of the
##            product has been taken from the second vector, and given back to it. Rotations are accumulated in v.
##            `_sort`: the result, sorted by norm. `_shift`: a Hermitian matrix, of which one triangle is read, divided
##            by a scale, plus a multiple of the identity so that it is positive semidefinite (Gershgorin).
## Operands   w: `columns` vectors of `rows` elements for each matrix; v: `columns` vectors of `columns` elements.
##            Vectors are contiguous on schedule cpu. On simt neighbouring vectors are neighbours in memory, so that
##            neighbouring work-items, which have a pair each, read neighbouring elements.
##            norms: of the vectors, with the scale; contiguous.
##            shifts: for each matrix the multiple of the identity, and the scale.
## Invariant  Powers of two and their inverses are normal numbers. A product of two vectors is taken for zero if its
##            root is far below epsilon: rotations would not change the longer one, and squares may not be normal
##            numbers.
## NDRange    `_rotate`: LINALG_UNITS of matrices. `_sort`: work-items loop over the vectors. `_shift`: work-items loop
##            over the matrices.
## Reference  Golub and Van Loan, Matrix Computations, 8.6.3; G. Forsythe and P. Henrici, The cyclic Jacobi method for
##            computing the principal values of a complex matrix, 1960.
<%page args="name, ctype, lanes, block, group, schedule"/>
<%namespace name="workgroup" file="/common/workgroup.mako"/>\
<%
T, Z, is_cpu = ctype, f"{ctype}2", schedule == "cpu"
V = f"{T}{lanes}"
one_item_groups = "__attribute__((reqd_work_group_size(1, 1, 1)))" if is_cpu else ""
epsilon = "FLT_EPSILON" if T == "float" else "DBL_EPSILON"
least = "0x1p-120f" if T == "float" else "0x1p-900"
huge, divisor = ("0x1p90f", "0x1p36f") if T == "float" else ("0x1p980", "0x1p40")
limit = "1e15f" if T == "float" else "1e150"
exponent = 126 if T == "float" else 1022
swapped = "s" + "".join("0123456789abcdef"[lane ^ 1] for lane in range(lanes))
alternating = ", ".join(["1, -1"] * (lanes // 2))
%>
#define SWEEPS 60

/* A power of two near a number that is not negative. */
static ${T} ${name}_power(const ${T} value)
{
    return ldexp((${T})1, clamp(ilogb(value), -${exponent}, ${exponent}));
}

/* The sine of the rotation of two vectors with these products, and the tangent of half the angle: with both, rotations
   keep the length of vectors (H. Rutishauser, The Jacobi method for real symmetric matrices, 1966). The phase is that
   of the mixed product. Returns 0 if the vectors are orthogonal already. */
static int ${name}_angle(const ${T} first, const ${T} second, const ${Z} mixed, const ${T} tolerance, ${T} *sine,
                         ${T} *ratio, ${Z} *phase)
{
    const ${T} square = dot(mixed, mixed);
    if (!(square > tolerance * tolerance * first * second + ${least}))
        return 0;
    const ${T} size_of = sqrt(square), zeta = (second - first) / (2 * size_of), steepness = fabs(zeta);
    const ${T} root = steepness > ${limit} ? steepness : sqrt(1 + zeta * zeta);
    const ${T} tangent = copysign((${T})1, zeta) / (steepness + root);
    const ${T} cosine = 1 / sqrt(1 + tangent * tangent);
    *sine = cosine * tangent;
    *ratio = *sine / (1 + cosine);
    *phase = mixed / size_of;
    return 1;
}

/* Elements of two vectors, and their product divided by its absolute value. */
static void ${name}_turn_elements(__global ${Z} *p, __global ${Z} *q, const ${T} sine, const ${T} ratio,
                                  const ${Z} phase)
{
    const ${Z} x = *p, y = *q;
    *p = x - sine * (linalg_times_${Z}(linalg_conj_${Z}(phase), y) + ratio * x);
    *q = y + sine * (linalg_times_${Z}(phase, x) - ratio * y);
}
% if is_cpu:

static void ${name}_turn(__global ${Z} *p, __global ${Z} *q, const int length, const ${T} sine, const ${T} ratio,
                         const ${Z} phase)
{
    const ${V} real = phase.x, imag = phase.y * (${V})(${alternating});
    int i = 0;
    for (; i + ${lanes // 2} <= length; i += ${lanes // 2}) {
        const ${V} x = *(__global linalg_pairs_${V} *)(p + i), y = *(__global linalg_pairs_${V} *)(q + i);
        *(__global linalg_pairs_${V} *)(p + i) = x - sine * (real * y + imag * y.${swapped} + ratio * x);
        *(__global linalg_pairs_${V} *)(q + i) = y + sine * (real * x - imag * x.${swapped} - ratio * y);
    }
    for (; i < length; ++i)
        ${name}_turn_elements(p + i, q + i, sine, ratio, phase);
}

static ${T} ${name}_sum(${V} value)
{
<% half, term = lanes // 2, "value" %>
% while half > 1:
    const ${T}${half} sum${half} = ${term}.lo + ${term}.hi;
<% term = f"sum{half}"; half //= 2 %>
% endwhile
    return ${term}.lo + ${term}.hi;
}
% endif

__kernel __attribute__((reqd_work_group_size(${1 if is_cpu else group}, 1, 1)))
void ${name}_rotate(const linalg_sizes size, __global ${Z} *w, __global ${Z} *v, __global ${T} *norms)
{
% if is_cpu:
    const long part = get_global_id(0), parts = get_global_size(0);
% else:
    __local ${T} partial[${group}];
    __local int is_turned;
    const int item = get_local_id(0);
% endif
    const int m = size.rows, n = size.columns, slots = n + n % 2;
    const ${T} tolerance = 2 * ${epsilon} * sqrt((${T})(2 * m));
    LINALG_UNITS_${schedule}(size.count, b) {
        __global ${Z} *vectors = w + b * n * m, *turns = v + b * n * n;
        ${T} scale = 0;
% if is_cpu:
        for (int e = 0; e < n * m; ++e)
            scale = fmax(scale, fmax(fabs(vectors[e].x), fabs(vectors[e].y)));
        scale = ${name}_power(scale);
        for (int e = 0; e < n * m; ++e)
            vectors[e] *= 1 / scale;
        for (int e = 0; size.whole && e < n * n; ++e)
            turns[e] = (${Z})(e / n == e % n, 0);
        int is_turned = 1;
        for (int sweep = 0; is_turned && sweep < SWEEPS; ++sweep) {
            is_turned = 0;
            for (int j = 0; j < n - 1; ++j) {
                __global ${Z} *p = vectors + j * m;
                for (int k = j + 1; k < n; ++k) {
                    __global ${Z} *q = vectors + k * m;
                    ${V} first = 0, second = 0, straight = 0, crossed = 0;
                    int i = 0;
                    for (; i + ${lanes // 2} <= m; i += ${lanes // 2}) {
                        const ${V} x = *(__global linalg_pairs_${V} *)(p + i);
                        const ${V} y = *(__global linalg_pairs_${V} *)(q + i);
                        first += x * x;
                        second += y * y;
                        straight += x * y;
                        crossed += x * y.${swapped};
                    }
                    ${T} pp = ${name}_sum(first), qq = ${name}_sum(second), sine, ratio;
                    ${Z} phase, pq = (${Z})(${name}_sum(straight), ${name}_sum(crossed * (${V})(${alternating})));
                    for (; i < m; ++i) {
                        pp += dot(p[i], p[i]);
                        qq += dot(q[i], q[i]);
                        pq += linalg_times_${Z}(linalg_conj_${Z}(p[i]), q[i]);
                    }
                    if (!${name}_angle(pp, qq, pq, tolerance, &sine, &ratio, &phase))
                        continue;
                    is_turned = 1;
                    ${name}_turn(p, q, m, sine, ratio, phase);
                    if (size.whole)
                        ${name}_turn(turns + j * n, turns + k * n, n, sine, ratio, phase);
                }
            }
        }
        for (int j = 0; j < n; ++j) {
            ${T} sum = 0;
            for (int i = 0; i < m; ++i)
                sum += dot(vectors[j * m + i], vectors[j * m + i]);
            norms[b * n + j] = sqrt(sum) * scale;
        }
% else:
        for (int e = item; e < n * m; e += ${group})
            scale = fmax(scale, fmax(fabs(vectors[e].x), fabs(vectors[e].y)));
        partial[item] = scale;
        <%workgroup:tree_reduce group="${group // 2}">
                partial[item] = fmax(partial[item], partial[item + distance]);
        </%workgroup:tree_reduce>
        scale = ${name}_power(partial[0]);
        for (int e = item; e < n * m; e += ${group})
            vectors[e] *= 1 / scale;
        for (int e = item; size.whole && e < n * n; e += ${group})
            turns[e] = (${Z})(e / n == e % n, 0);
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
                    ${T} pp = 0, qq = 0, sine, ratio;
                    ${Z} phase, pq = 0;
                    for (int i = 0; i < m; ++i) {
                        const ${Z} x = vectors[i * n + j], y = vectors[i * n + k];
                        pp += dot(x, x);
                        qq += dot(y, y);
                        pq += linalg_times_${Z}(linalg_conj_${Z}(x), y);
                    }
                    if (!${name}_angle(pp, qq, pq, tolerance, &sine, &ratio, &phase))
                        continue;
                    is_turned = 1;
                    for (int i = 0; i < m; ++i)
                        ${name}_turn_elements(vectors + i * n + j, vectors + i * n + k, sine, ratio, phase);
                    for (int i = 0; size.whole && i < n; ++i)
                        ${name}_turn_elements(turns + i * n + j, turns + i * n + k, sine, ratio, phase);
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
                sum += dot(vectors[i * n + j], vectors[i * n + j]);
            norms[b * n + j] = sqrt(sum) * scale;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
% endif
    }
}

/* values, and the vectors of w and v that are wanted, by descending or ascending norm. `whole` is a sum of flags:
   1: vectors of w; 2: vectors of v; 4: ascending; 8: shifts are subtracted from the norms; 16: the vectors of v are
   conjugated. */
__kernel ${one_item_groups}
void ${name}_sort(const linalg_sizes size, const linalg_strides w_at, const linalg_strides v_at,
                  const long values_at, __global const ${Z} *w, __global const ${Z} *v,
                  __global const ${T} *norms, __global const ${T} *shifts, __global ${T} *values,
                  __global ${Z} *w_sorted, __global ${Z} *v_sorted)
{
    const long m = size.rows, n = size.columns;
    const ${Z} signs_of_parts = (${Z})(1, size.whole & 16 ? -1 : 1);
    for (long e = get_global_id(0); e < size.count * n; e += get_global_size(0)) {
        const long b = e / n, j = e - b * n;
        __global const ${T} *norm = norms + b * n;
        const ${T} own = norm[j];
        long place = isnan(own) ? j : 0;
        for (long k = 0; k < n; ++k)
            place += norm[k] > own || (norm[k] == own && k < j);
        place = size.whole & 4 ? n - 1 - place : place;
        values[values_at + b * n + place] = size.whole & 8 ? (own - shifts[2 * b]) * shifts[2 * b + 1] : own;
<% vector, element = ("m", "1") if is_cpu else ("1", "n") %>
        for (long i = 0; size.whole & 1 && i < m; ++i)
            w_sorted[w_at.offset + b * w_at.batch + i * w_at.row + place * w_at.column] =
                w[b * n * m + j * ${vector} + i * ${element}];
<% vector = "n" if is_cpu else "1" %>
        for (long i = 0; size.whole & 2 && i < n; ++i)
            v_sorted[v_at.offset + b * v_at.batch + i * v_at.row + place * v_at.column] =
                signs_of_parts * v[b * n * n + j * ${vector} + i * ${element}];
    }
}

/* w (rows x rows, contiguous) = a / scale + shift * identity, from the lower triangle of a, or from the upper one if
   `whole`; the shift and the scale are written. The scale is one unless sums of elements are huge. The rows of w are
   the columns of the sum on schedule cpu, the rows on simt. */
__kernel ${one_item_groups}
void ${name}_shift(const linalg_sizes size, const linalg_strides a_at, __global const ${Z} *a,
                   __global ${Z} *w, __global ${T} *shifts)
{
    const long n = size.rows;
    for (long b = get_global_id(0); b < size.count; b += get_global_size(0)) {
        __global const ${Z} *source = a + a_at.offset + b * a_at.batch;
        __global ${Z} *matrix = w + b * n * n;
        ${T} shift, scale = 1;
        for (int is_found = 0; !is_found;) {
            shift = 0;
            for (long i = 0; i < n; ++i) {
                ${T} radius = 0;
                for (long j = 0; j < n; ++j) {
                    const int is_own = size.whole ? i <= j : i >= j;
                    const long at = is_own ? i * a_at.row + j * a_at.column : j * a_at.row + i * a_at.column;
                    const ${Z} value = source[at] / scale;
                    const ${T} sign_of = is_own ${"==" if is_cpu else "!="} 0 ? 1 : -1;
                    matrix[i * n + j] = (${Z})(value.x, i == j ? 0 : sign_of * value.y);
                    radius += i == j ? -value.x : hypot(value.x, value.y);
                }
                shift = fmax(shift, radius);
            }
            is_found = scale != 1 || shift < ${huge};
            scale = is_found ? scale : ${divisor};
        }
        for (long i = 0; i < n; ++i)
            matrix[i * (n + 1)].x += shift;
        shifts[2 * b] = shift;
        shifts[2 * b + 1] = scale;
    }
}
