## Schur forms A = Z T Z^T of a batch of real matrices, where T is block triangular, and what eigenvectors need of them.
##
## Algorithm  `_balance`: see balance.mako. `_reduce`: to Hessenberg form by reflections. `_form`: their product.
##            `_iterate`: QR steps with two shifts at once, until all blocks of the diagonal have one row or two; those
##            of two rows get equal elements on the diagonal, or become triangular. Elements below the diagonal are
##            taken for zero by the criterion of Ahues and Tisseur, as in LAPACK's lahqr. `_finish`: T, multiplied by
##            the power of two, and Z; NaN where the status is not zero. `_vectors`: the eigenvectors of T by
##            substitution.
##            `_normalise`: eigenvalues and eigenvectors of length one, as complex numbers; of a complex vector the
##            largest element is real, as in LAPACK's geev.
## Operands   h, zt: C-contiguous; T and the transpose of Z, which is P D Q: the permutation P and the scales D of
##            `_balance` are in it. notes, scales: of `_balance`. reflections: row k has the vector of step k after its
##            element k, which is the factor. spare: n numbers for each work-item. x: real parts of the vectors, then
##            imaginary parts; vectors are rows on schedule cpu, columns on simt. `whole`: whether T is whole and there
##            is Z, for `_iterate`; whether there are vectors, for `_normalise`.
## Invariant  The status is 1 if an element of A is not finite, 2 if `_iterate` has not converged after 30 steps for
##            each row. Later kernels leave such matrices alone.
## NDRange    `_reduce`, `_iterate`: LINALG_UNITS of matrices. The work-items of a group share columns or rows; all of
##            them decide the same from what is in global memory. `_balance`: LINALG_EACH of matrices; `_form`,
##            `_finish`, `_vectors`, `_normalise`: LINALG_EACH of rows or vectors.
## Reference  Golub and Van Loan, Matrix Computations, 7.4 and 7.5; M. Ahues and F. Tisseur, A new deflation criterion
##            for the QR algorithm, 1997.
<%page args="name, ctype, lanes, block, group, schedule"/>
<%namespace name="balancing" file="/linalg/balance.mako"/>\
<%
T, Z, is_cpu = ctype, f"{ctype}2", schedule == "cpu"
V = f"{T}{lanes}"
one_item_groups = "__attribute__((reqd_work_group_size(1, 1, 1)))" if is_cpu else ""
groups = f"__attribute__((reqd_work_group_size({1 if is_cpu else group}, 1, 1)))"
sync = "" if is_cpu else "barrier(CLK_GLOBAL_MEM_FENCE);"
epsilon, smallest, greatest = (f"{'FLT' if T == 'float' else 'DBL'}_{v}" for v in ("EPSILON", "MIN", "MAX"))
threshold = "0x1p10f" if T == "float" else "0x1p40"
is_finite = f"fabs({{0}}) <= {greatest}"
%>
${balancing.balance(name, T, T, one_item_groups, "fabs({0})", "{0} * {0}", "{0} == 0", is_finite, schedule)}
/* The reflection I - tau (1, u, v)^T (1, u, v) that makes two elements below `head` zero; returns the new head. */
static ${T} ${name}_reflection(${T} head, ${T} u, ${T} v, ${T} *tau, ${T} *first, ${T} *second)
{
    *tau = *first = *second = 0;
    if (u == 0 && v == 0)
        return head;
    const int raised = ${name}_raise(fmax(fabs(head), fmax(fabs(u), fabs(v))));
    if (raised) {
        head = ldexp(head, raised);
        u = ldexp(u, raised);
        v = ldexp(v, raised);
    }
    const ${T} target = -copysign(sqrt(head * head + (u * u + v * v)), head), inverse = 1 / (head - target);
    *tau = (target - head) / target;
    *first = u * inverse;
    *second = v * inverse;
    return raised ? ldexp(target, -raised) : target;
}

/* The rotation (c, s) that makes [p q; r s] a standard block, and the block: r is zero, or the diagonal has equal
   elements and q, r have different signs. */
static void ${name}_standardise(${T} *p, ${T} *q, ${T} *r, ${T} *s, ${T} *cosine, ${T} *sine)
{
    ${T} a = *p, b = *q, c = *r, d = *s, cs = 1, sn = 0;
    if (c != 0 && b == 0) {
        cs = 0;
        sn = 1;
        const ${T} other = d;
        d = a;
        a = other;
        b = -c;
        c = 0;
    } else if (c != 0 && !(a == d && signbit(b) != signbit(c))) {
        const ${T} middle = (a - d) / 2, larger = fmax(fabs(b), fabs(c));
        const ${T} other = fmin(fabs(b), fabs(c)) * (signbit(b) == signbit(c) ? 1 : -1);
        const ${T} scale = fmax(fabs(middle), larger), square = middle / scale * middle + larger / scale * other;
        if (square >= 4 * ${epsilon}) {
            const ${T} root = middle + copysign(sqrt(scale) * sqrt(square), middle), length = hypot(c, root);
            a = d + root;
            d -= larger / root * other;
            cs = root / length;
            sn = c / length;
            b -= c;
            c = 0;
        } else {
            const ${T} sum = b + c, length = hypot(sum, a - d);
            if (length > 4 * ${smallest}) {  // smaller ones are equal elements, also where they are taken for zero
                cs = sqrt((1 + fabs(sum) / length) / 2);
                sn = -(middle / (length * cs)) * copysign((${T})1, sum);
            }
            const ${T} aa = a * cs + b * sn, bb = b * cs - a * sn, cc = c * cs + d * sn, dd = d * cs - c * sn;
            b = bb * cs + dd * sn;
            c = cc * cs - aa * sn;
            a = d = (aa * cs + cc * sn + dd * cs - bb * sn) / 2;
            if (c != 0 && b == 0) {
                const ${T} old = cs;
                b = -c;
                c = 0;
                cs = -sn;
                sn = old;
            } else if (c != 0 && signbit(b) == signbit(c)) {
                const ${T} of_b = sqrt(fabs(b)), of_c = sqrt(fabs(c)), inverse = 1 / sqrt(fabs(b + c));
                const ${T} root = copysign(of_b * of_c, c), x = of_b * inverse, y = of_c * inverse, old = cs;
                d = a - root;
                a += root;
                b -= c;
                c = 0;
                cs = old * x - sn * y;
                sn = old * y + sn * x;
            }
        }
    }
    *p = a;
    *q = b;
    *r = c;
    *s = d;
    *cosine = cs;
    *sine = sn;
}

__kernel ${groups}
void ${name}_reduce(const linalg_sizes size, __global const int *all_notes, __global ${T} *matrices,
                    __global ${T} *reflections, __global ${T} *spare)
{
    const int n = size.rows;
% if is_cpu:
    const long part = get_global_id(0), parts = get_global_size(0);
    __global ${T} *sums = spare + n * part;
% else:
    const int item = get_local_id(0);
% endif
    LINALG_UNITS_${schedule}(size.count, b) {
        __global const int *notes = all_notes + b * (n + 3);
        __global ${T} *h = matrices + b * n * n;
        const int low = notes[0], high = notes[2] ? low - 1 : notes[1];
        for (int k = low; k < high - 1; ++k) {
            __global ${T} *v = reflections + (b * n + k) * n;
            ${T} extent = 0, squares = 0;
            for (int i = k + 1; i <= high; ++i)
                extent = fmax(extent, fabs(h[i * n + k]));
            const ${T} scale = ldexp((${T})1, ${name}_raise(extent));
            for (int i = k + 2; i <= high; ++i)
                squares += h[i * n + k] * scale * (h[i * n + k] * scale);
            const ${T} head = h[(k + 1) * n + k] * scale;
            const ${T} target = -copysign(sqrt(head * head + squares), head);
            const ${T} tau = squares == 0 ? 0 : (target - head) / target;
            ${sync}
            LINALG_SHARE_${schedule}(k, high + 1, i) {
                const ${T} own = squares == 0 ? 0 : h[i * n + k] * scale / (head - target);
                v[i] = i == k ? tau : i == k + 1 ? 1 : own;
                if (i > k)
                    h[i * n + k] = i > k + 1 ? 0 : (squares == 0 ? head : target) / scale;
            }
            ${sync}
            LINALG_SHARE_${schedule}(0, high + 1, i) {
                __global ${T} *row = h + i * n;
% if is_cpu:
                const ${T} sum = linalg_dot_${T}(row + k + 1, v + k + 1, high - k);
                linalg_add_${T}(row + k + 1, -tau * sum, v + k + 1, high - k);
% else:
                ${T} sum = 0;
                for (int j = k + 1; j <= high; ++j)
                    sum += row[j] * v[j];
                for (int j = k + 1; j <= high; ++j)
                    row[j] -= tau * sum * v[j];
% endif
            }
            ${sync}
% if is_cpu:
            for (int j = k + 1; j < n; ++j)
                sums[j] = 0;
            for (int i = k + 1; i <= high; ++i)
                linalg_add_${T}(sums + k + 1, v[i], h + i * n + k + 1, n - k - 1);
            for (int i = k + 1; i <= high; ++i)
                linalg_add_${T}(h + i * n + k + 1, -tau * v[i], sums + k + 1, n - k - 1);
% else:
            LINALG_SHARE_${schedule}(k + 1, n, j) {
                ${T} sum = 0;
                for (int i = k + 1; i <= high; ++i)
                    sum += v[i] * h[i * n + j];
                for (int i = k + 1; i <= high; ++i)
                    h[i * n + j] -= tau * sum * v[i];
            }
% endif
            ${sync}
        }
    }
}

__kernel ${one_item_groups}
void ${name}_form(const linalg_sizes size, __global const int *all_notes, __global const ${T} *all_scales,
                 __global const ${T} *reflections, __global ${T} *all_zt)
{
    const int n = size.rows;
    const long part = get_global_id(0), parts = get_global_size(0);
    LINALG_EACH_${schedule}(size.count * n, e) {
        const long b = e / n;
        const int r = e - b * n;
        __global const int *notes = all_notes + b * (n + 3);
        __global ${T} *row = all_zt + e * n;
        const int low = notes[0], high = notes[1];
        if (notes[2])
            continue;
        for (int i = 0; i < n; ++i)
            row[i] = i == r;
        for (int k = min(high - 2, r - 1); k >= low; --k) {
            __global const ${T} *v = reflections + (b * n + k) * n;
% if is_cpu:
            const int length = high - k;
            linalg_add_${T}(row + k + 1, -v[k] * linalg_dot_${T}(row + k + 1, v + k + 1, length), v + k + 1, length);
% else:
            ${T} sum = 0;
            for (int i = k + 1; i <= high; ++i)
                sum += v[i] * row[i];
            for (int i = k + 1; i <= high; ++i)
                row[i] -= v[k] * sum * v[i];
% endif
        }
        __global const ${T} *scales = all_scales + b * (n + 1);
        for (int i = low; i <= high; ++i)
            row[i] *= scales[i];
        for (int i = low - 1; i >= 0; --i) {
            const ${T} value = row[i];
            row[i] = row[notes[3 + i]];
            row[notes[3 + i]] = value;
        }
        for (int i = high + 1; i < n; ++i) {
            const ${T} value = row[i];
            row[i] = row[notes[3 + i]];
            row[notes[3 + i]] = value;
        }
    }
}
% if is_cpu:

/* The reflection of two or three rows by tau (1, u, v). */
static void ${name}_reflect_rows(__global ${T} *p, __global ${T} *q, __global ${T} *r, const int n, const ${T} tau,
                                 const ${T} u, const ${T} v)
{
    const ${T} of_q = tau * u, of_r = tau * v;
    int i = 0;
    if (r) {
        for (; i + ${lanes} <= n; i += ${lanes}) {
            __global linalg_${V} *x = (__global linalg_${V} *)(p + i), *y = (__global linalg_${V} *)(q + i);
            __global linalg_${V} *z = (__global linalg_${V} *)(r + i);
            const ${V} sum = *x + u * *y + v * *z;
            *x -= tau * sum;
            *y -= of_q * sum;
            *z -= of_r * sum;
        }
        for (; i < n; ++i) {
            const ${T} sum = p[i] + u * q[i] + v * r[i];
            p[i] -= tau * sum;
            q[i] -= of_q * sum;
            r[i] -= of_r * sum;
        }
        return;
    }
    for (; i + ${lanes} <= n; i += ${lanes}) {
        __global linalg_${V} *x = (__global linalg_${V} *)(p + i), *y = (__global linalg_${V} *)(q + i);
        const ${V} sum = *x + u * *y;
        *x -= tau * sum;
        *y -= of_q * sum;
    }
    for (; i < n; ++i) {
        const ${T} sum = p[i] + u * q[i];
        p[i] -= tau * sum;
        q[i] -= of_q * sum;
    }
}
% endif

/* The first row, not below `low`, of the block that ends with row `last` and that no element separates. */
static int ${name}_block_begin(__global const ${T} *h, const int n, const int low, const int high, const int last)
{
    for (int k = last; k > low; --k) {
        const ${T} below = fabs(h[k * n + k - 1]), own = h[k * (n + 1)], before = h[(k - 1) * (n + 1)];
        if (below <= ${smallest} * n / ${epsilon})
            return k;
        ${T} near = fabs(before) + fabs(own);
        if (near == 0) {
            near += k - 2 >= low ? fabs(h[(k - 1) * n + k - 2]) : 0;
            near += k + 1 <= high ? fabs(h[(k + 1) * n + k]) : 0;
        }
        if (below <= ${epsilon} / 2 * near) {
            const ${T} above = fabs(h[(k - 1) * n + k]), apart = fabs(before - own);
            const ${T} ab = fmax(below, above), ba = fmin(below, above);
            const ${T} aa = fmax(fabs(own), apart), bb = fmin(fabs(own), apart), sum = aa + ab;
            if (ba * (ab / sum) <= fmax(${smallest} * n / ${epsilon}, ${epsilon} / 2 * (bb * (aa / sum))))
                return k;
        }
    }
    return low;
}

/* The first column of the product of the two shifted matrices, in rows m..m + 2 of the block first..last; returns the
   row m where it may begin, since elements before it are small. `stalled`: steps since a block was found. */
static int ${name}_start(__global const ${T} *h, const int n, const int first, const int last, const int stalled,
                         ${T} *column)
{
    ${T} a = h[(last - 1) * (n + 1)], b = h[(last - 1) * n + last], c = h[last * n + last - 1], d = h[last * (n + 1)];
    if (stalled % 10 == 0 && stalled) {  // other shifts, as in LAPACK
        const int is_end = stalled % 20 == 0, k = is_end ? last : first + 2;
        const ${T} size_of = fabs(h[k * n + k - 1]) + fabs(h[(k - 1) * n + k - 2]);
        a = d = (${T})0.75 * size_of + h[(is_end ? last : first) * (n + 1)];
        b = (${T})-0.4375 * size_of;
        c = size_of;
    }
    const ${T} scale = fabs(a) + fabs(b) + fabs(c) + fabs(d);
    ${T} real1 = 0, real2 = 0, imag = 0;
    if (scale != 0) {
        a /= scale;
        b /= scale;
        c /= scale;
        d /= scale;
        const ${T} middle = (a + d) / 2, negative = (a - middle) * (d - middle) - b * c, root = sqrt(fabs(negative));
        const ${T} upper = middle + root, lower = middle - root;
        if (negative >= 0) {
            real1 = real2 = middle * scale;
            imag = root * scale;
        } else
            real1 = real2 = (fabs(upper - d) <= fabs(lower - d) ? upper : lower) * scale;
    }
    int m = last - 2;
    for (;; --m) {
        const ${T} own = h[m * (n + 1)], next = h[(m + 1) * (n + 1)], below = h[(m + 1) * n + m];
        const ${T} size_of = fabs(own - real2) + fabs(imag) + fabs(below), ratio = below / size_of;
        const ${T} x = ratio * h[m * n + m + 1] + (own - real1) * ((own - real2) / size_of) + imag * (imag / size_of);
        const ${T} y = ratio * (own + next - real1 - real2), z = ratio * h[(m + 2) * n + m + 1];
        const ${T} sum = fabs(x) + fabs(y) + fabs(z);
        column[0] = x / sum;
        column[1] = y / sum;
        column[2] = z / sum;
        if (m == first)
            break;
        const ${T} near = fabs(h[(m - 1) * (n + 1)]) + fabs(own) + fabs(next);
        if (fabs(h[m * n + m - 1]) * (fabs(column[1]) + fabs(column[2])) <= ${epsilon} / 2 * fabs(column[0]) * near)
            break;
    }
    return m;
}

__kernel ${groups}
void ${name}_iterate(const linalg_sizes size, __global int *all_notes, __global ${T} *matrices, __global ${T} *all_zt)
{
    const int n = size.rows;
% if is_cpu:
    const long part = get_global_id(0), parts = get_global_size(0);
% else:
    const int item = get_local_id(0);
% endif
    LINALG_UNITS_${schedule}(size.count, b) {
        __global int *notes = all_notes + b * (n + 3);
        __global ${T} *h = matrices + b * n * n, *zt = all_zt + b * n * n;
        const int low = notes[0], high = notes[2] ? low - 1 : notes[1];
        int last = high, stalled = 0, left = 30 * max(10, high - low + 1);
        for (; last >= low && left >= 0; --left) {
            const int first = ${name}_block_begin(h, n, low, high, last);
            const int is_pair = first == last - 1, is_found = first >= last - 1;
            ${T} column[3] = {0, 0, 0}, cosine = 1, sine = 0;
            __global ${T} *own = h + last * (n + 1) - (is_pair ? n + 1 : 0);
            ${T} p = own[0], q = is_pair ? own[1] : 0, r = is_pair ? own[n] : 0, s = is_pair ? own[n + 1] : 0;
            int m = first;
            if (is_pair)
                ${name}_standardise(&p, &q, &r, &s, &cosine, &sine);
            else if (!is_found)
                m = ${name}_start(h, n, first, last, stalled, column);
            ${sync}
            if (first > low)
                h[first * n + first - 1] = 0;
            const int begin = size.whole ? 0 : first, end = size.whole ? n : last + 1;
            if (is_pair) {
                __global ${T} *x = h + first * n, *y = x + n;
                LINALG_SHARE_${schedule}(last + 1, end, j) {
                    const ${T} value = x[j];
                    x[j] = cosine * value + sine * y[j];
                    y[j] = cosine * y[j] - sine * value;
                }
                LINALG_SHARE_${schedule}(begin, first, i) {
                    __global ${T} *pair = h + i * n + first;
                    const ${T} value = pair[0];
                    pair[0] = cosine * value + sine * pair[1];
                    pair[1] = cosine * pair[1] - sine * value;
                }
                LINALG_SHARE_${schedule}(0, size.whole ? n : 0, i) {
                    __global ${T} *x = zt + first * n + i, *y = x + n;
                    const ${T} value = *x;
                    *x = cosine * value + sine * *y;
                    *y = cosine * *y - sine * value;
                }
                own[0] = p;
                own[1] = q;
                own[n] = r;
                own[n + 1] = s;
            }
            for (int k = m; !is_found && k < last; ++k) {
                const int is_triple = k < last - 1;
                __global ${T} *x = h + k * n, *y = x + n, *z = y + n;
                ${T} tau, u, v;
                if (k > m) {
                    column[0] = x[k - 1];
                    column[1] = y[k - 1];
                    column[2] = is_triple ? z[k - 1] : 0;
                }
                const ${T} head = ${name}_reflection(column[0], column[1], is_triple ? column[2] : 0, &tau, &u, &v);
% if is_cpu:
                ${name}_reflect_rows(x + k, y + k, is_triple ? z + k : 0, end - k, tau, u, v);
                if (size.whole)
                    ${name}_reflect_rows(zt + k * n, zt + (k + 1) * n, is_triple ? zt + (k + 2) * n : 0, n, tau, u, v);
% else:
                LINALG_SHARE_${schedule}(k, end, j) {
                    const ${T} sum = tau * (x[j] + u * y[j] + (is_triple ? v * z[j] : 0));
                    x[j] -= sum;
                    y[j] -= u * sum;
                    if (is_triple)
                        z[j] -= v * sum;
                }
                LINALG_SHARE_${schedule}(0, size.whole ? n : 0, j) {
                    __global ${T} *at = zt + k * n + j;
                    const ${T} sum = tau * (at[0] + u * at[n] + (is_triple ? v * at[2 * n] : 0));
                    at[0] -= sum;
                    at[n] -= u * sum;
                    if (is_triple)
                        at[2 * n] -= v * sum;
                }
                ${sync}
% endif
                LINALG_SHARE_${schedule}(begin, min(k + 3, last) + 1, i) {
                    __global ${T} *at = h + i * n + k;
                    const ${T} sum = tau * (at[0] + u * at[1] + (is_triple ? v * at[2] : 0));
                    at[0] -= sum;
                    at[1] -= u * sum;
                    if (is_triple)
                        at[2] -= v * sum;
                }
                if (k > m${"" if is_cpu else " && item == 0"}) {
                    x[k - 1] = head;
                    y[k - 1] = 0;
                    if (is_triple)
                        z[k - 1] = 0;
                } else if (m > first${"" if is_cpu else " && item == 0"})
                    x[k - 1] *= 1 - tau;
                ${sync}
            }
            stalled = is_found ? 0 : stalled + 1;
            last = is_found ? first - 1 : last;
            ${sync}
        }
        if (last >= low${"" if is_cpu else " && item == 0"})
            notes[2] = 2;
        ${sync}
    }
}

__kernel ${one_item_groups}
void ${name}_finish(const linalg_sizes size, const linalg_strides t_at, const linalg_strides z_at,
                    __global const int *all_notes, __global const ${T} *all_scales, __global const ${T} *matrices,
                    __global const ${T} *all_zt, __global ${T} *t, __global ${T} *z)
{
    const int n = size.rows;
    const long part = get_global_id(0), parts = get_global_size(0);
    LINALG_EACH_${schedule}(size.count * n, e) {
        const long b = e / n, i = e - b * n;
        const int failed = all_notes[b * (n + 3) + 2];
        const ${T} power = all_scales[b * (n + 1) + n];
        __global const ${T} *row = matrices + e * n, *zt = all_zt + b * n * n;
        __global ${T} *of_t = t + t_at.offset + b * t_at.batch + i * t_at.row;
        __global ${T} *of_z = z + z_at.offset + b * z_at.batch + i * z_at.row;
        for (int j = 0; j < n; ++j) {
            of_t[j * t_at.column] = failed ? (${T})NAN : power * row[j];
            of_z[j * z_at.column] = failed ? (${T})NAN : zt[j * n + i];
        }
    }
}
<% vector, element = ("n", "1") if is_cpu else ("1", "2 * n") %>
/* What a row of T contributes: the product of elements after column `after` with a vector. */
static ${T} ${name}_rest(__global const ${T} *row, __global const ${T} *x, const int n, const int after, const int last)
{
% if is_cpu:
    return linalg_dot_${T}(row + after + 1, x + after + 1, last - after);
% else:
    ${T} sum = 0;
    for (int j = after + 1; j <= last; ++j)
        sum += row[j] * x[j * ${element}];
    return sum;
% endif
}

__kernel ${one_item_groups}
void ${name}_vectors(const linalg_sizes size, __global const int *all_notes, __global const ${T} *matrices,
                     __global ${T} *x)
{
    const int n = size.rows;
    const long part = get_global_id(0), parts = get_global_size(0);
    LINALG_EACH_${schedule}(size.count * n, e) {
        const long b = e / n;
        const int k = e - b * n;
        __global const ${T} *t = matrices + b * n * n;
        __global ${T} *real = x + 2 * b * n * n + k * ${vector}, *imag = real + n * ${vector};
        if (all_notes[b * (n + 3) + 2] || (k > 0 && t[k * n + k - 1] != 0))
            continue;
        const int is_pair = k < n - 1 && t[(k + 1) * n + k] != 0, last = k + is_pair;
        const ${T} own = t[k * (n + 1)], above = is_pair ? t[k * n + k + 1] : 0, below = is_pair ? t[last * n + k] : 0;
        const ${T} turn = sqrt(fabs(above)) * sqrt(fabs(below));
        const ${T} least = fmax(${epsilon} / 2 * (fabs(own) + turn), ${smallest} * n * 2 / ${epsilon});
        for (int i = 0; i < n; ++i) {
            real[i * ${element}] = i == k;
            imag[i * ${element}] = 0;
        }
        if (is_pair) {
            const int is_upper = fabs(above) >= fabs(below);
            real[k * ${element}] = is_upper ? 1 : -turn / below;
            imag[last * ${element}] = is_upper ? turn / above : 1;
        }
        for (int j = k - 1; j >= 0; --j) {
            const int is_block = j > 0 && t[j * n + j - 1] != 0, count = 1 + is_block;
            const int first = j - is_block, unknowns = count * (1 + is_pair);
            ${T} system[16], solution[4], extent = 0;
            for (int i = 0; i < count; ++i) {
                __global const ${T} *row = t + (first + i) * n;
                solution[i] = -${name}_rest(row, real, n, j, last);
                solution[count + i] = is_pair ? -${name}_rest(row, imag, n, j, last) : 0;
                for (int l = 0; l < count; ++l) {
                    const ${T} value = row[first + l] - (i == l ? own : 0);
                    system[i * unknowns + l] = value;
                    if (is_pair) {
                        system[i * unknowns + count + l] = i == l ? turn : 0;
                        system[(count + i) * unknowns + l] = i == l ? -turn : 0;
                        system[(count + i) * unknowns + count + l] = value;
                    }
                }
            }
            for (int i = 0; i < unknowns; ++i)
                extent = fmax(extent, fabs(solution[i]));
            if (extent > ${threshold}) {
                const ${T} scale = ldexp((${T})1, -ilogb(extent));
                for (int i = j + 1; i <= last; ++i) {
                    real[i * ${element}] *= scale;
                    imag[i * ${element}] *= scale;
                }
                for (int i = 0; i < unknowns; ++i)
                    solution[i] *= scale;
            }
            small_system_${T}(system, solution, unknowns, least);
            for (int i = 0; i < count; ++i) {
                real[(first + i) * ${element}] = solution[i];
                imag[(first + i) * ${element}] = is_pair ? solution[count + i] : 0;
            }
            j = first;
        }
        ${T} extent = 0;
        for (int i = 0; i <= last; ++i)
            extent = fmax(extent, fmax(fabs(real[i * ${element}]), fabs(imag[i * ${element}])));
        const ${T} scale = ldexp((${T})1, -ilogb(extent));
        for (int i = 0; extent > 0 && i <= last; ++i) {
            real[i * ${element}] *= scale;
            imag[i * ${element}] *= scale;
        }
    }
}

__kernel ${one_item_groups}
void ${name}_normalise(const linalg_sizes size, const linalg_strides v_at, const long values_at,
                       __global const int *all_notes, __global const ${T} *all_scales,
                       __global const ${T} *matrices, __global const ${T} *y, __global ${Z} *values, __global ${Z} *v,
                       volatile __global int *error_flag, const int number)
{
    const int n = size.rows;
    const long part = get_global_id(0), parts = get_global_size(0);
    LINALG_EACH_${schedule}(size.count * n, e) {
        const long b = e / n;
        const int k = e - b * n, status = all_notes[b * (n + 3) + 2];
        const ${T} power = all_scales[b * (n + 1) + n];
        __global const ${T} *t = matrices + b * n * n;
        __global ${Z} *target = v + v_at.offset + b * v_at.batch + k * v_at.column, *value = values + values_at + e;
        if (status) {
            if (k == 0)
                report_error(error_flag, number, status, b, 0);
            *value = (${Z})NAN;
            for (int i = 0; size.whole && i < n; ++i)
                target[i * v_at.row] = (${Z})NAN;
            continue;
        }
        if (k > 0 && t[k * n + k - 1] != 0)
            continue;
        const int is_pair = k < n - 1 && t[(k + 1) * n + k] != 0;
        const ${T} turn = is_pair ? sqrt(fabs(t[k * n + k + 1])) * sqrt(fabs(t[(k + 1) * n + k])) : 0;
        value[0] = power * (${Z})(t[k * (n + 1)], turn);
        if (is_pair)
            value[1] = power * (${Z})(t[k * (n + 1)], -turn);
        if (!size.whole)
            continue;
        __global const ${T} *real = y + 2 * b * n * n + k * ${vector}, *imag = real + n * ${vector};
        ${T} squares = 0, largest = 0;
        ${Z} phase = (${Z})(1, 0);
        int top = 0;
        for (int i = 0; i < n; ++i) {
            const ${Z} found = (${Z})(real[i * ${element}], is_pair ? imag[i * ${element}] : 0);
            const ${T} square = dot(found, found);
            squares += square;
            if (is_pair && square > largest) {
                largest = square;
                top = i;
                phase = found;
            }
        }
        const ${Z} factor = linalg_conj_${Z}(phase) / (sqrt(dot(phase, phase)) * sqrt(squares));
        for (int i = 0; i < n; ++i) {
            ${Z} found = (${Z})(real[i * ${element}], is_pair ? imag[i * ${element}] : 0);
            found = linalg_times_${Z}(found, factor);
            found.y = is_pair && i != top ? found.y : 0;
            target[i * v_at.row] = found;
            if (is_pair)
                target[i * v_at.row + v_at.column] = linalg_conj_${Z}(found);
        }
    }
}
