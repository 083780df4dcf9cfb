## Algorithm   Distinct rows of a matrix: bottom-up merge sort of the rows (`<name>_merge`), flags of the first of equal
##             rows (`<name>_heads`), a copy of those that are found (`<name>_copy`). The rest is in
##             kernels/sort/unique.mako.
## Operands    x[n][columns], contiguous; order: positions of the rows in sorted order. `are_numbers`: rows are complex
##             numbers, and those with NaN come last.
## NDRange     As in kernels/sort/unique.mako; one row each.
<%page args="name, key, to_key, has_distinct_nan, are_numbers, number_type, schedule"/>
<%namespace name="elements" file="/common/each_element.mako"/>
<%include file="/common/partition.mako"/>\
<%namespace name="keys" file="/sort/keys.mako"/>
${keys.key_function()}
// The key of element k of a row.
static inline ${key} ${name}_at(__global const ${key} *row, const long k)
{
    % if are_numbers:
    if (${name}_key(row[0]) == (${key})~0 || ${name}_key(row[1]) == (${key})~0)
        return (${key})~0;
    % endif
    return ${name}_key(row[k]);
}

// Whether row a comes before row b: the first column in which they differ decides; NaN comes last.
static inline int ${name}_precedes(__global const ${key} *a, __global const ${key} *b, const long columns)
{
    for (long k = 0; k < columns; ++k) {
        const ${key} x = ${name}_at(a, k);
        const ${key} y = ${name}_at(b, k);
        if (x != y)
            return x < y;
    }
    return 0;
}

// Merge neighbouring runs of `width` rows. Each row looks up how many rows of the other run come before it. Equal rows
// keep their order: those of the left run come first.
__kernel void ${name}_merge(__global const ${key} *restrict x, const long x_at, __global const long *restrict order,
    __global long *restrict merged, const long n, const long columns, const long width)
{
    x += x_at;
    <%elements:each n="n" schedule="${schedule}">
        const long run = i / width;
        const long other = run ^ 1;
        const long left = (run & ~1L) * width;
        const long own = width > 1 ? order[i] : i;
        __global const ${key} *row = x + own * columns;
        long low = min(other * width, n);
        long high = min(low + width, n);
        const long begin = low;
        while (low < high) {
            const long middle = (low + high) / 2;
            __global const ${key} *rival = x + (width > 1 ? order[middle] : middle) * columns;
            const int goes_first = run & 1 ? !${name}_precedes(row, rival, columns)
                : ${name}_precedes(rival, row, columns);
            low = goes_first ? middle + 1 : low;
            high = goes_first ? high : middle;
        }
        merged[left + (i - run * width) + (low - begin)] = own;
    </%elements:each>
}

// Rows with NaN, whose key is the greatest, are not equal to any other where `has_distinct_nan`.
__kernel void ${name}_heads(__global const ${key} *restrict x, const long x_at, __global const long *restrict order,
    __global ${number_type} *restrict segment_heads, const long n, const long columns)
{
    x += x_at;
    <%elements:each n="n" schedule="${schedule}">
        __global const ${key} *own = x + order[i] * columns;
        __global const ${key} *before = x + order[max(i, 1L) - 1] * columns;
        int is_head = i == 0;
        for (long k = 0; k < columns && !is_head; ++k)
            is_head = ${name}_at(own, k) != ${name}_at(before, k)
                % if has_distinct_nan:
                || ${name}_at(own, k) == (${key})~0
                % endif
                ;
        segment_heads[i] = is_head;
    </%elements:each>
}

__kernel void ${name}_results(__global const ${key} *restrict x, const long x_at, __global const long *restrict order,
    __global const long *restrict starts, __global ${key} *restrict values, __global long *restrict first,
    __global long *restrict counts, const long n, const long found, const long columns)
{
    x += x_at;
    <%elements:each n="found" schedule="${schedule}">
        const long start = starts[i];
        const long from = order[start];
        for (long k = 0; k < columns; ++k)
            values[i * columns + k] = x[from * columns + k];
        if (first)
            first[i] = from;
        if (counts)
            counts[i] = (i + 1 < found ? starts[i + 1] : n) - start;
    </%elements:each>
}
