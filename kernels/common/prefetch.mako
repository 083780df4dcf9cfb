## Ask for a cache line that is going to be read: prefetch_line(p) into the first-level cache, prefetch_later(p) into
## the second-level cache. Nothing where the compiler does not support it (-DWITHOUT_PREFETCH).
<%page args=""/>\
#ifndef prefetch_line
#if defined(__has_builtin) && !defined(WITHOUT_PREFETCH)
#if __has_builtin(__builtin_prefetch)
#define prefetch_line(p) __builtin_prefetch((const void *)(ulong)(p))
#define prefetch_later(p) __builtin_prefetch((const void *)(ulong)(p), 0, 2)
#endif
#endif
#ifndef prefetch_line
#define prefetch_line(p) ((void)(p))
#define prefetch_later(p) ((void)(p))
#endif
#endif
