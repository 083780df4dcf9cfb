## Asks for the lines of a row that will be read soon from anywhere in memory; for the rest of a long row the processor does so itself.
<%page args=""/>\
<%include file="/common/prefetch.mako"/>\
#define fetch_ahead(p, bytes) for (long at_ = 0; at_ < min((long)(bytes), 256L); at_ += 64) prefetch_line((__global const char *)(p) + at_)
