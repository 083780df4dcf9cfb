## Asks for the lines of a row that will be read soon from anywhere in memory; for the rest of a long row the processor does so itself.
<%page args=""/>\
#if defined(__has_builtin) && !defined(WITHOUT_PREFETCH)  /* Oclgrind does not know it */
#if __has_builtin(__builtin_prefetch)
#define fetch_line(p) __builtin_prefetch((const void *)(ulong)(p))
#endif
#endif
#ifndef fetch_line
#define fetch_line(p) ((void)(p))
#endif
#define fetch_ahead(p, bytes) for (long at_ = 0; at_ < min((long)(bytes), 256L); at_ += 64) fetch_line((__global const char *)(p) + at_)
