## Stores that go past the cache. Memory that is written as a whole is not read first, which a store through the cache
## does: that saves a third of a copy's traffic. The address must be a multiple of the vector's size.
<%page args=""/>\
#if defined(__has_builtin) && !defined(WITHOUT_NONTEMPORAL_STORES)
#if __has_builtin(__builtin_nontemporal_store)
#define store_non_temporal(value, p) __builtin_nontemporal_store(value, p)
#endif
#endif
#ifndef store_non_temporal
#define store_non_temporal(value, p) (*(p) = (value))
#endif
<%include file="/common/prefetch.mako"/>\
