## int_to_long(i): an int as a long.
## ints_to_longs(i, convert_long<n>, as_uint<n>): a vector of n of them.
## A driver is known that compares an int that became a long with a constant as if it had no sign. There
## (-DWITHOUT_LONG_COMPARISONS) the long is made of its two halves.
<%page args=""/>\
#ifndef int_to_long
#ifdef WITHOUT_LONG_COMPARISONS
#define int_to_long(i) upsample((int)(i) >> 31, (uint)(i))
#define ints_to_longs(i, convert, as_unsigned) upsample((i) >> 31, as_unsigned(i))
#else
#define int_to_long(i) ((long)(i))
#define ints_to_longs(i, convert, as_unsigned) convert(i)
#endif
#endif
