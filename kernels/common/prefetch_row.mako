## Asks for the lines of a row that will be read soon from anywhere in memory; for the rest of a long row the
## processor does so itself.
<%page args=""/>\
<%include file="/common/prefetch.mako"/>\
#ifndef fetch_ahead
static inline void prefetch_row(__global const char *p, const long bytes)
{
    for (long at = 0; at < min(bytes, 256L); at += 64)
        prefetch_line(p + at);
}
#define fetch_ahead(p, bytes) prefetch_row((__global const char *)(p), bytes)
#endif
