## balance: copies the matrices of a batch, and balances them: rows and columns are interchanged so that eigenvalues
## that can be read off the matrix stand at its ends, and with `whole` they are scaled by powers of two so that their
## norms are near each other.
##
## Algorithm  Interchanges: LAPACK's gebal. Powers of two: the ratio of the norms of a column and its row, rounded; they
##            are taken where they make the sum of both norms smaller by a twentieth.
## Operands   a: any strides. h: C-contiguous copies, multiplied by a power of two where the largest element is tiny or
##            huge. notes: n + 3 numbers for each matrix: the first and the last row of the part that is left, the
##            status, and the row with which each other row was interchanged. scales: n + 1 numbers: those of the
##            columns, and the power of two that the matrix was divided by.
##            `kind`: C type of an element, `T` of a real number; `largest`, `square`, `is_zero`, `is_finite`: of an
##            element, {}.
## NDRange    LINALG_EACH of the matrices.
## Invariant  Scales are between 2^-`bound` and 2^`bound`: products with them are normal numbers.
## Reference  B. Parlett and C. Reinsch, Balancing a matrix for calculation of eigenvalues and eigenvectors, 1969; R.
##            James, J. Langou and B. Lowery, On matrix balancing and eigenvector computation, 2014.
<%def name="balance(name, kind, T, one_item_groups, largest, square, is_zero, is_finite, schedule)">\
<%
bound, exponent = (30, 126) if T == "float" else (300, 1022)
tiny, huge, faint = ("0x1p-40f", "0x1p40f", "0x1p-90f") if T == "float" else ("0x1p-300", "0x1p300", "0x1p-900")
faint_root = "0x1p-39f" if T == "float" else "0x1p-450"
%>\
/* The exponent of a power of two that makes numbers so large that their squares are normal numbers. */
static int ${name}_raise(const ${T} extent)
{
    return extent > 0 && extent < ${faint_root} ? min(-ilogb(extent), ${exponent}) : 0;
}

/* Interchange rows and columns j and k. */
static void ${name}_exchange(__global ${kind} *h, const int n, const int j, const int k)
{
    for (int i = 0; j != k && i < n; ++i) {
        const ${kind} value = h[i * n + j];
        h[i * n + j] = h[i * n + k];
        h[i * n + k] = value;
    }
    for (int i = 0; j != k && i < n; ++i) {
        const ${kind} value = h[j * n + i];
        h[j * n + i] = h[k * n + i];
        h[k * n + i] = value;
    }
}

/* Whether the elements of row j, or of column j, in columns or rows first..last are zero but for the diagonal. */
static int ${name}_is_alone(__global const ${kind} *h, const int j, const int step, const int first, const int last)
{
    for (int i = first; i <= last; ++i)
        if (i != j && !(${is_zero.format("h[i * step]")}))
            return 0;
    return 1;
}

/* The norm of elements first..last; the sum of their sizes where squares are too small. */
static ${T} ${name}_norm(__global const ${kind} *h, const int step, const int first, const int last)
{
    ${T} squares = 0, sum = 0;
    for (int i = first; i <= last; ++i)
        squares += ${square.format("h[i * step]")};
    if (squares > ${faint})
        return sqrt(squares);
    for (int i = first; i <= last; ++i)
        sum += ${largest.format("h[i * step]")};
    return sum;
}

__kernel ${one_item_groups}
void ${name}_balance(const linalg_sizes size, const linalg_strides a_at, __global const ${kind} *a,
                     __global ${kind} *matrices, __global int *all_notes, __global ${T} *all_scales)
{
    const int n = size.rows;
    const long part = get_global_id(0), parts = get_global_size(0);
    LINALG_EACH_${schedule}(size.count, b) {
        __global ${kind} *h = matrices + b * n * n;
        __global int *notes = all_notes + b * (n + 3);
        __global ${T} *scales = all_scales + b * (n + 1);
        ${T} extent = 0;
        int is_finite = 1;
        for (int i = 0; i < n; ++i) {
            __global const ${kind} *row = a + a_at.offset + b * a_at.batch + i * a_at.row;
            for (int j = 0; j < n; ++j) {
                const ${kind} value = row[j * a_at.column];
                extent = fmax(extent, ${largest.format("value")});
                is_finite &= ${is_finite.format("value")};
                h[i * n + j] = value;
            }
            scales[i] = 1;
        }
        notes[2] = is_finite ? 0 : 1;
        const int is_extreme = is_finite && extent > 0 && (extent < ${tiny} || extent > ${huge});
        const ${T} power = is_extreme ? ldexp((${T})1, clamp(ilogb(extent), -${exponent}, ${exponent})) : 1;
        scales[n] = power;
        for (int e = 0; power != 1 && e < n * n; ++e)
            h[e] /= power;
        int first = 0, last = n - 1;
        for (int j = last; is_finite && j >= 0; --j)
            if (${name}_is_alone(h + j * n, j, 1, 0, last)) {
                ${name}_exchange(h, n, j, last);
                notes[3 + last] = j;
                if (last == 0)
                    break;
                j = last--;
            }
        for (int j = first; is_finite && j <= last; ++j)
            if (${name}_is_alone(h + j, j, n, first, last)) {
                ${name}_exchange(h, n, j, first);
                notes[3 + first] = j;
                j = first++;
            }
        first = min(first, last);
        notes[0] = first;
        notes[1] = last;
        int goes_on = is_finite && size.whole;
        for (int sweep = 0; goes_on && sweep < 100; ++sweep) {
            goes_on = 0;
            for (int i = first; i <= last; ++i) {
                const ${T} column = ${name}_norm(h + i, n, first, last), row = ${name}_norm(h + i * n, 1, first, last);
                if (!(column > 0 && row > 0))
                    continue;
                const int middle = (ilogb(row) - ilogb(column)) / 2, own = ilogb(scales[i]);
                const int exponent = clamp(own + middle, -${bound}, ${bound}) - own;
                const ${T} factor = ldexp((${T})1, exponent);
                if (exponent == 0 || column * factor + row / factor >= (${T})0.95 * (column + row))
                    continue;
                goes_on = 1;
                scales[i] *= factor;
                for (int j = 0; j < n; ++j)
                    h[i * n + j] /= factor;
                for (int j = 0; j < n; ++j)
                    h[j * n + i] *= factor;
            }
        }
    }
}
</%def>
