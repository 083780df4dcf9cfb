## partition_begin(size, part, parts): where a part begins in an even partition of `size` items; it ends where the
## next one begins. Parts differ by one item at most.
<%page args=""/>\
#ifndef partition_begin
#define partition_begin(size, part, parts) ((size) * (part) / (parts))
#endif
