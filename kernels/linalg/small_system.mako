## small_system_T(matrix, x, n, least): solve a linear system of at most four unknowns in place by elimination with
## complete pivoting. matrix: n x n, by rows, overwritten. Pivots smaller than `least` are replaced by it.
<%page args="ctype"/>
#ifndef SMALL_SYSTEM_${ctype}
#define SMALL_SYSTEM_${ctype}
static void small_system_${ctype}(${ctype} *matrix, ${ctype} *x, const int n, const ${ctype} least)
{
    int order[4];
    if (n == 1) {
        *x /= fabs(*matrix) < least ? least : *matrix;
        return;
    }
    for (int k = 0; k < n; ++k) {
        int row = k, column = k;
        for (int i = k; i < n; ++i)
            for (int j = k; j < n; ++j)
                if (fabs(matrix[i * n + j]) > fabs(matrix[row * n + column])) {
                    row = i;
                    column = j;
                }
        for (int j = 0; row != k && j < n; ++j) {
            const ${ctype} value = matrix[row * n + j];
            matrix[row * n + j] = matrix[k * n + j];
            matrix[k * n + j] = value;
        }
        const ${ctype} own = x[row];
        x[row] = x[k];
        x[k] = own;
        for (int i = 0; column != k && i < n; ++i) {
            const ${ctype} value = matrix[i * n + column];
            matrix[i * n + column] = matrix[i * n + k];
            matrix[i * n + k] = value;
        }
        order[k] = column;
        if (fabs(matrix[k * n + k]) < least)
            matrix[k * n + k] = least;
        for (int i = k + 1; i < n; ++i) {
            const ${ctype} factor = matrix[i * n + k] / matrix[k * n + k];
            for (int j = k + 1; j < n; ++j)
                matrix[i * n + j] -= factor * matrix[k * n + j];
            x[i] -= factor * x[k];
        }
    }
    for (int k = n - 1; k >= 0; --k) {
        for (int j = k + 1; j < n; ++j)
            x[k] -= matrix[k * n + j] * x[j];
        x[k] /= matrix[k * n + k];
    }
    for (int k = n - 1; k >= 0; --k) {
        const ${ctype} own = x[k];
        x[k] = x[order[k]];
        x[order[k]] = own;
    }
}
#endif
