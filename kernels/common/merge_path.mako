## Partition of rows with ends: merge_path_row(ends, rows, work) is the first of `rows` rows before which so much work
##     is, where each row counts as one, and each of its entries, too. Row number r ends before entry ends[r].
## Reference   merge-based partition by row (D. Merrill, M. Garland, Merge-based parallel sparse matrix-vector
##             multiplication, SC 2016).
<%page args=""/>\
#ifndef MERGE_PATH_ROW
#define MERGE_PATH_ROW
static inline long merge_path_row(__global const int *ends, const long rows, const long work)
{
    long low = 0;
    long high = rows;
    while (low < high) {
        const long middle = (low + high) / 2;
        if (ends[middle] + middle < work)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
#endif
