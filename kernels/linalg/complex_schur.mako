## Schur forms A = Z T Z^H of a batch of complex matrices, where T is triangular, and what eigenvectors need of them.
##
## Algorithm  As in schur.mako, with one shift, Wilkinson's, for each QR step, which is a sequence of rotations.
## Operands   As in schur.mako; x has complex vectors.
## Invariant  As in schur.mako.
## NDRange    As in schur.mako.
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
times, conj, over, size_of = (f"linalg_{v}_{Z}" for v in ("times", "conj", "over", "size"))
sum_of_parts = f"{size_of}({{0}})"
is_finite = f"fabs({{0}}.x) <= {greatest} && fabs({{0}}.y) <= {greatest}"
swapped = "s" + "".join("0123456789abcdef"[lane ^ 1] for lane in range(lanes))
alternating = ", ".join(["1, -1"] * (lanes // 2))
%>
${balancing.balance(name, Z, T, one_item_groups, sum_of_parts, "dot({0}, {0})", "!any({0} != 0)", is_finite, schedule)}
/* The square root with a real part that is not negative. */
static ${Z} ${name}_root(const ${Z} a)
{
    const ${T} length = hypot(a.x, a.y);
    if (length == 0)
        return 0;
    const ${T} root = sqrt((length + fabs(a.x)) / 2), other = a.y / (2 * root);
    return a.x >= 0 ? (${Z})(root, other) : (${Z})(fabs(other), copysign(root, a.y));
}

/* A number divided by its size, which is written; one if it is zero. Sizes are exact where squares vanish. */
static ${Z} ${name}_phase(const ${Z} a, ${T} *length)
{
    const int raised = ${name}_raise(${size_of}(a));
    const ${Z} scaled = raised ? a * ldexp((${T})1, raised) : a;
    const ${T} size_of = sqrt(dot(scaled, scaled));
    *length = raised ? ldexp(size_of, -raised) : size_of;
    return size_of > 0 ? scaled / size_of : (${Z})(1, 0);
}

/* The rotation [c s; -conj(s) c] that makes the second of two elements zero; returns the first one. */
static ${Z} ${name}_rotation(${Z} p, ${Z} q, ${T} *cosine, ${Z} *sine)
{
    *cosine = 1;
    *sine = 0;
    if (!any(q != 0))
        return p;
    const int raised = ${name}_raise(fmax(${size_of}(p), ${size_of}(q)));
    if (raised) {
        p *= ldexp((${T})1, raised);
        q *= ldexp((${T})1, raised);
    }
    ${T} size_of;
    const ${Z} phase = ${name}_phase(p, &size_of);
    const ${T} length = sqrt(size_of * size_of + dot(q, q));
    *cosine = size_of / length;
    *sine = ${times}(phase, ${conj}(q)) / length;
    return phase * (raised ? ldexp(length, -raised) : length);
}

/* Turn two elements: of rows by (c, s), of columns by (c, conj(s)). */
static void ${name}_turn(__global ${Z} *p, __global ${Z} *q, const ${T} cosine, const ${Z} sine)
{
    const ${Z} x = *p, y = *q;
    *p = cosine * x + ${times}(sine, y);
    *q = cosine * y - ${times}(${conj}(sine), x);
}
% if is_cpu:

static void ${name}_turn_rows(__global ${Z} *p, __global ${Z} *q, const int n, const ${T} cosine, const ${Z} sine)
{
    const ${V} real = sine.x, imag = sine.y * (${V})(${alternating});
    int i = 0;
    for (; i + ${lanes // 2} <= n; i += ${lanes // 2}) {
        const ${V} x = *(__global linalg_pairs_${V} *)(p + i), y = *(__global linalg_pairs_${V} *)(q + i);
        *(__global linalg_pairs_${V} *)(p + i) = cosine * x + real * y - imag * y.${swapped};
        *(__global linalg_pairs_${V} *)(q + i) = cosine * y - real * x - imag * x.${swapped};
    }
    for (; i < n; ++i)
        ${name}_turn(p + i, q + i, cosine, sine);
}
% endif

__kernel ${groups}
void ${name}_reduce(const linalg_sizes size, __global const int *all_notes, __global ${Z} *matrices,
                    __global ${Z} *reflections, __global ${Z} *spare)
{
    const int n = size.rows;
% if is_cpu:
    const long part = get_global_id(0), parts = get_global_size(0);
    __global ${Z} *sums = spare + n * part;
% else:
    const int item = get_local_id(0);
% endif
    LINALG_UNITS_${schedule}(size.count, b) {
        __global const int *notes = all_notes + b * (n + 3);
        __global ${Z} *h = matrices + b * n * n;
        const int low = notes[0], high = notes[2] ? low - 1 : notes[1];
        for (int k = low; k < high - 1; ++k) {
            __global ${Z} *v = reflections + (b * n + k) * n;
            ${T} extent = 0, squares = 0;
            for (int i = k + 1; i <= high; ++i)
                extent = fmax(extent, ${size_of}(h[i * n + k]));
            const ${T} scale = ldexp((${T})1, ${name}_raise(extent));
            for (int i = k + 2; i <= high; ++i)
                squares += dot(h[i * n + k] * scale, h[i * n + k] * scale);
            const ${Z} head = h[(k + 1) * n + k] * scale;
            /* I - tau v v^H, which makes the column zero; tau is real, so that the head stays complex. */
            ${T} of_head;
            const ${Z} phase = ${name}_phase(head, &of_head);
            const ${Z} target = -phase * sqrt(of_head * of_head + squares);
            const ${Z} inverse = ${over}((${Z})(1, 0), head - target);
            const ${T} tau = squares == 0 ? 0 : 2 / (1 + squares * dot(inverse, inverse));
            ${sync}
            LINALG_SHARE_${schedule}(k, high + 1, i) {
                const ${Z} own = squares == 0 ? (${Z})0 : ${times}(h[i * n + k] * scale, inverse);
                v[i] = i == k ? (${Z})(tau, 0) : i == k + 1 ? (${Z})(1, 0) : own;
                if (i > k)
                    h[i * n + k] = i > k + 1 ? (${Z})0 : (squares == 0 ? head : target) / scale;
            }
            ${sync}
            LINALG_SHARE_${schedule}(0, high + 1, i) {
                __global ${Z} *row = h + i * n;
                ${Z} sum = 0;
                for (int j = k + 1; j <= high; ++j)
                    sum += ${times}(row[j], v[j]);
                sum *= tau;
                for (int j = k + 1; j <= high; ++j)
                    row[j] -= ${times}(sum, ${conj}(v[j]));
            }
            ${sync}
% if is_cpu:
            for (int j = k + 1; j < n; ++j)
                sums[j] = 0;
            for (int i = k + 1; i <= high; ++i)
                linalg_subtract_${Z}(sums + k + 1, tau * ${conj}(v[i]), h + i * n + k + 1, n - k - 1);
            for (int i = k + 1; i <= high; ++i)
                linalg_subtract_${Z}(h + i * n + k + 1, -v[i], sums + k + 1, n - k - 1);
% else:
            LINALG_SHARE_${schedule}(k + 1, n, j) {
                ${Z} sum = 0;
                for (int i = k + 1; i <= high; ++i)
                    sum += ${times}(${conj}(v[i]), h[i * n + j]);
                sum *= tau;
                for (int i = k + 1; i <= high; ++i)
                    h[i * n + j] -= ${times}(sum, v[i]);
            }
% endif
            ${sync}
        }
    }
}

__kernel ${one_item_groups}
void ${name}_form(const linalg_sizes size, __global const int *all_notes, __global const ${T} *all_scales,
                 __global const ${Z} *reflections, __global ${Z} *all_zt)
{
    const int n = size.rows;
    const long part = get_global_id(0), parts = get_global_size(0);
    LINALG_EACH_${schedule}(size.count * n, e) {
        const long b = e / n;
        const int r = e - b * n;
        __global const int *notes = all_notes + b * (n + 3);
        __global ${Z} *row = all_zt + e * n;
        const int low = notes[0], high = notes[1];
        if (notes[2])
            continue;
        for (int i = 0; i < n; ++i)
            row[i] = (${Z})(i == r, 0);
        for (int k = min(high - 2, r - 1); k >= low; --k) {
            __global const ${Z} *v = reflections + (b * n + k) * n;
            ${Z} sum = 0;
            for (int i = k + 1; i <= high; ++i)
                sum += ${times}(${conj}(v[i]), row[i]);
            sum *= v[k].x;
            for (int i = k + 1; i <= high; ++i)
                row[i] -= ${times}(sum, v[i]);
        }
        __global const ${T} *scales = all_scales + b * (n + 1);
        for (int i = low; i <= high; ++i)
            row[i] *= scales[i];
        for (int i = low - 1; i >= 0; --i) {
            const ${Z} value = row[i];
            row[i] = row[notes[3 + i]];
            row[notes[3 + i]] = value;
        }
        for (int i = high + 1; i < n; ++i) {
            const ${Z} value = row[i];
            row[i] = row[notes[3 + i]];
            row[notes[3 + i]] = value;
        }
    }
}

/* The first row, not below `low`, of the block that ends with row `last` and that no element separates. */
static int ${name}_block_begin(__global const ${Z} *h, const int n, const int low, const int high, const int last)
{
    for (int k = last; k > low; --k) {
        const ${T} below = ${size_of}(h[k * n + k - 1]);
        const ${Z} own = h[k * (n + 1)], before = h[(k - 1) * (n + 1)];
        if (below <= ${smallest} * n / ${epsilon})
            return k;
        ${T} near = ${size_of}(before) + ${size_of}(own);
        if (near == 0) {
            near += k - 2 >= low ? ${size_of}(h[(k - 1) * n + k - 2]) : 0;
            near += k + 1 <= high ? ${size_of}(h[(k + 1) * n + k]) : 0;
        }
        if (below <= ${epsilon} / 2 * near) {
            const ${T} above = ${size_of}(h[(k - 1) * n + k]), apart = ${size_of}(before - own);
            const ${T} ab = fmax(below, above), ba = fmin(below, above);
            const ${T} aa = fmax(${size_of}(own), apart), bb = fmin(${size_of}(own), apart), sum = aa + ab;
            if (ba * (ab / sum) <= fmax(${smallest} * n / ${epsilon}, ${epsilon} / 2 * (bb * (aa / sum))))
                return k;
        }
    }
    return low;
}

/* The first column of the shifted matrix, in rows m and m + 1 of the block first..last; returns the row m where it may
   begin, since elements before it are small. `stalled`: steps since a block was found. */
static int ${name}_start(__global const ${Z} *h, const int n, const int first, const int last, const int stalled,
                         ${Z} *column)
{
    ${Z} shift = h[last * (n + 1)];
    if (stalled % 10 == 0 && stalled) {  // other shifts, as in LAPACK
        const int k = stalled % 20 == 0 ? last : first + 1;
        shift = h[(stalled % 20 == 0 ? last : first) * (n + 1)];
        shift.x += (${T})0.75 * ${size_of}(h[k * n + k - 1]);
    } else {
        const ${Z} above = h[(last - 1) * n + last], below = h[last * n + last - 1];
        ${Z} middle = (h[(last - 1) * (n + 1)] - shift) / 2;
        const ${T} scale = fmax(${size_of}(middle), sqrt(${size_of}(above)) * sqrt(${size_of}(below)));
        if (scale > 0) {
            const ${Z} product = ${times}(above / scale, below / scale);
            middle /= scale;
            ${Z} root = ${name}_root(${times}(middle, middle) + product);
            root *= dot(middle, root) < 0 ? -1 : 1;
            shift -= scale * ${over}(product, middle + root);
        }
    }
    int m = last - 1;
    for (;; --m) {
        const ${Z} own = h[m * (n + 1)], next = h[(m + 1) * (n + 1)], below = h[(m + 1) * n + m];
        const ${T} sum = ${size_of}(own - shift) + ${size_of}(below);
        column[0] = (own - shift) / sum;
        column[1] = below / sum;
        if (m == first)
            break;
        const ${T} near = ${size_of}(column[0]) * (${size_of}(own) + ${size_of}(next));
        if (${size_of}(h[m * n + m - 1]) * ${size_of}(column[1]) <= ${epsilon} / 2 * near)
            break;
    }
    return m;
}

__kernel ${groups}
void ${name}_iterate(const linalg_sizes size, __global int *all_notes, __global ${Z} *matrices, __global ${Z} *all_zt)
{
    const int n = size.rows;
% if is_cpu:
    const long part = get_global_id(0), parts = get_global_size(0);
% else:
    const int item = get_local_id(0);
% endif
    LINALG_UNITS_${schedule}(size.count, b) {
        __global int *notes = all_notes + b * (n + 3);
        __global ${Z} *h = matrices + b * n * n, *zt = all_zt + b * n * n;
        const int low = notes[0], high = notes[2] ? low - 1 : notes[1];
        int last = high, stalled = 0, left = 30 * max(10, high - low + 1);
        for (; last >= low && left >= 0; --left) {
            const int first = ${name}_block_begin(h, n, low, high, last), is_found = first == last;
            ${Z} column[2] = {0, 0};
            const int m = is_found ? last : ${name}_start(h, n, first, last, stalled, column);
            ${sync}
            if (first > low)
                h[first * n + first - 1] = 0;
            const int begin = size.whole ? 0 : first, end = size.whole ? n : last + 1;
            for (int k = m; k < last; ++k) {
                __global ${Z} *x = h + k * n, *y = x + n;
                if (k > m) {
                    column[0] = x[k - 1];
                    column[1] = y[k - 1];
                }
                ${T} cosine;
                ${Z} sine;
                const ${Z} head = ${name}_rotation(column[0], column[1], &cosine, &sine);
% if is_cpu:
                ${name}_turn_rows(x + k, y + k, end - k, cosine, sine);
                if (size.whole)
                    ${name}_turn_rows(zt + k * n, zt + (k + 1) * n, n, cosine, ${conj}(sine));
% else:
                LINALG_SHARE_${schedule}(k, end, j)
                    ${name}_turn(x + j, y + j, cosine, sine);
                LINALG_SHARE_${schedule}(0, size.whole ? n : 0, j)
                    ${name}_turn(zt + k * n + j, zt + (k + 1) * n + j, cosine, ${conj}(sine));
                ${sync}
% endif
                LINALG_SHARE_${schedule}(begin, min(k + 2, last) + 1, i)
                    ${name}_turn(h + i * n + k, h + i * n + k + 1, cosine, ${conj}(sine));
                if (k > m${"" if is_cpu else " && item == 0"}) {
                    x[k - 1] = head;
                    y[k - 1] = 0;
                } else if (m > first${"" if is_cpu else " && item == 0"})
                    x[k - 1] *= cosine;
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
                    __global const int *all_notes, __global const ${T} *all_scales, __global const ${Z} *matrices,
                    __global const ${Z} *all_zt, __global ${Z} *t, __global ${Z} *z)
{
    const int n = size.rows;
    const long part = get_global_id(0), parts = get_global_size(0);
    LINALG_EACH_${schedule}(size.count * n, e) {
        const long b = e / n, i = e - b * n;
        const int failed = all_notes[b * (n + 3) + 2];
        const ${T} power = all_scales[b * (n + 1) + n];
        __global const ${Z} *row = matrices + e * n, *zt = all_zt + b * n * n;
        __global ${Z} *of_t = t + t_at.offset + b * t_at.batch + i * t_at.row;
        __global ${Z} *of_z = z + z_at.offset + b * z_at.batch + i * z_at.row;
        for (int j = 0; j < n; ++j) {
            of_t[j * t_at.column] = failed ? (${Z})(NAN, 0) : j < i ? (${Z})0 : power * row[j];
            of_z[j * z_at.column] = failed ? (${Z})(NAN, 0) : zt[j * n + i];
        }
    }
}
<% vector, element = ("n", "1") if is_cpu else ("1", "n") %>
__kernel ${one_item_groups}
void ${name}_vectors(const linalg_sizes size, __global const int *all_notes, __global const ${Z} *matrices,
                     __global ${Z} *x)
{
    const int n = size.rows;
    const long part = get_global_id(0), parts = get_global_size(0);
    LINALG_EACH_${schedule}(size.count * n, e) {
        const long b = e / n;
        const int k = e - b * n;
        __global const ${Z} *t = matrices + b * n * n;
        __global ${Z} *own = x + b * n * n + k * ${vector};
        if (all_notes[b * (n + 3) + 2])
            continue;
        const ${Z} value = t[k * (n + 1)];
        const ${T} least = fmax(${epsilon} / 2 * ${size_of}(value), ${smallest} * n * 2 / ${epsilon});
        for (int i = 0; i < n; ++i)
            own[i * ${element}] = (${Z})(i == k, 0);
        for (int j = k - 1; j >= 0; --j) {
            ${Z} sum = 0, apart = value - t[j * (n + 1)];
            for (int i = j + 1; i <= k; ++i)
                sum += ${times}(t[j * n + i], own[i * ${element}]);
            if (${size_of}(apart) < least)
                apart = (${Z})(-least, 0);
            const ${T} extent = ${size_of}(sum);
            if (extent > ${threshold}) {
                const ${T} scale = ldexp((${T})1, -ilogb(extent));
                for (int i = j + 1; i <= k; ++i)
                    own[i * ${element}] *= scale;
                sum *= scale;
            }
            own[j * ${element}] = ${over}(sum, apart);
        }
        ${T} extent = 0;
        for (int i = 0; i <= k; ++i)
            extent = fmax(extent, ${size_of}(own[i * ${element}]));
        const ${T} scale = ldexp((${T})1, -ilogb(extent));
        for (int i = 0; extent > 0 && i <= k; ++i)
            own[i * ${element}] *= scale;
    }
}

__kernel ${one_item_groups}
void ${name}_normalise(const linalg_sizes size, const linalg_strides v_at, const long values_at,
                       __global const int *all_notes, __global const ${T} *all_scales,
                       __global const ${Z} *matrices, __global const ${Z} *y, __global ${Z} *values, __global ${Z} *v,
                       volatile __global int *error_flag, const int number)
{
    const int n = size.rows;
    const long part = get_global_id(0), parts = get_global_size(0);
    LINALG_EACH_${schedule}(size.count * n, e) {
        const long b = e / n;
        const int k = e - b * n, status = all_notes[b * (n + 3) + 2];
        __global const ${Z} *own = y + b * n * n + k * ${vector};
        __global ${Z} *target = v + v_at.offset + b * v_at.batch + k * v_at.column;
        if (status && k == 0)
            report_error(error_flag, number, status, b, 0);
        values[values_at + e] = status ? (${Z})NAN : all_scales[b * (n + 1) + n] * matrices[b * n * n + k * (n + 1)];
        ${T} squares = 0, largest = 0;
        ${Z} phase = (${Z})(1, 0);
        int top = 0;
        for (int i = 0; size.whole && i < n; ++i) {
            const ${T} square = dot(own[i * ${element}], own[i * ${element}]);
            squares += square;
            if (square > largest) {
                largest = square;
                top = i;
                phase = own[i * ${element}];
            }
        }
        const ${Z} factor = status ? (${Z})NAN : ${conj}(phase) / (sqrt(dot(phase, phase)) * sqrt(squares));
        for (int i = 0; size.whole && i < n; ++i) {
            const ${Z} found = ${times}(own[i * ${element}], factor);
            target[i * v_at.row] = (${Z})(found.x, i == top && !status ? 0 : found.y);
        }
    }
}
