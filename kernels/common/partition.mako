## Even partition of a range: part `index` of `count` parts begins at partition_begin(total, unit, index, count) and
##     ends where part index + 1 begins. Parts are whole units, except for the last one, and differ in size by one unit
##     at most. partition_begin_descending does the same with the larger parts first.
<%page args=""/>\
#ifndef PARTITION_BEGIN
#define PARTITION_BEGIN
static long partition_begin(long total, long unit, long index, long count)
{
    const long units = (total + unit - 1) / unit;
    return min(total, units * index / count * unit);
}

static long partition_begin_descending(long total, long unit, long index, long count)
{
    const long units = (total + unit - 1) / unit;
    return min(total, (units * index + count - 1) / count * unit);
}
#endif
