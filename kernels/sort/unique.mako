## Algorithm   Distinct values of sorted elements. `<name>_heads` flags the first of each segment of equal values; a
##             prefix sum of the flags numbers the segments; `<name>_starts` notes where each segment starts, and
##             `<name>_results` gathers its value, its first position and its length.
## Operands    x: contiguous; order: positions in sorted order (if `ordered`). NaN, whose key is the greatest, differs
##             from NaN where `has_distinct_nan`.
## NDRange     cpu: (work-items), each with a contiguous range; simt: any size, a loop with it as stride.
<%page args="name, key, to_key, number_type, ordered, inverse, has_distinct_nan, schedule"/>
<%include file="/common/partition.mako"/>\
<%namespace name="elements" file="/common/each_element.mako"/>
<%namespace name="keys" file="/sort/keys.mako"/>
<% value = "x[order[i]]" if ordered else "x[i]" %>
${keys.key_function()}
__kernel void ${name}_heads(__global const ${key} *restrict x, const long x_at, __global const long *restrict order,
    __global ${number_type} *restrict segment_heads, const long n)
{
    x += x_at;
    <%elements:each n="n" schedule="${schedule}">
        const ${key} own = ${value};
        const ${key} before = ${value.replace("i]", "max(i, 1L) - 1]")};
        segment_heads[i] = i == 0 || ${name}_key(own) != ${name}_key(before)
            ${f"|| {name}_key(own) == ({key})~0" if has_distinct_nan else ""};
    </%elements:each>
}

__kernel void ${name}_starts(__global const ${number_type} *restrict segment_number,
    __global const long *restrict order,
    __global long *restrict starts, __global long *restrict inverse, const long n)
{
    <%elements:each n="n" schedule="${schedule}">
        const ${number_type} own = segment_number[i];
        if (own != (i ? segment_number[i - 1] : 0))
            starts[own - 1] = i;
        % if inverse:
        inverse[order[i]] = own - 1;
        % endif
    </%elements:each>
}

__kernel void ${name}_results(__global const ${key} *restrict x, const long x_at, __global const long *restrict order,
    __global const long *restrict starts, __global ${key} *restrict values, __global long *restrict first,
    __global long *restrict counts, const long n, const long found)
{
    x += x_at;
    <%elements:each n="found" schedule="${schedule}">
        const long start = starts[i];
        % if ordered:
        const long from = order[start];
        % else:
        const long from = start;
        % endif
        values[i] = x[from];
        if (first)
            first[i] = from;
        if (counts)
            counts[i] = (i + 1 < found ? starts[i + 1] : n) - start;
    </%elements:each>
}
