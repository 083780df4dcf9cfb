## Vectors of the convolutions of schedule cpu, whose lanes are neighbouring positions of x: type, mask, load and store.
##
## Invariants  No address outside of x is read, and none beyond the lanes that count is written.
<%page args="ctype, itemsize, lanes"/>
<%
    vec, index = f"conv_{ctype}{lanes}", "long" if itemsize == 8 else "int"
    lane = f"({index}{lanes})({', '.join(map(str, range(lanes)))})"
    halves = [lanes >> i for i in range(1, lanes.bit_length())]
%>
typedef ${ctype}${lanes} ${vec} __attribute__((aligned(${itemsize})));
% for n in halves:
typedef ${ctype}${n if n > 1 else ""} ${vec}_${n} __attribute__((aligned(${itemsize})));
% endfor
typedef ${index}${lanes} ${vec}_mask;  // all bits of a lane are set, or none

// The lanes `from` <= l < `to`.
static ${vec}_mask ${vec}_between(long from, long to)
{
    return ${lane} >= (${vec}_mask)(max(from, -1L)) && ${lane} < (${vec}_mask)(min(to, ${lanes}L));
}

// The lanes with 0 <= at + l * step < extent.
static ${vec}_mask ${vec}_inside(long at, long step, long extent)
{
    return convert_u${index}${lanes}(${lane} * (${vec}_mask)(step) + (${vec}_mask)(at)) < (u${index}${lanes})(extent);
}

// x[at + l * step] in the lanes that are `ok`, anything in the others; `low` to `high` may be read.
static ${ctype}${lanes} ${vec}_load(__global const ${ctype} *x, long at, long step, ${vec}_mask ok, long low, long high)
{
    if (step == 1 && at >= low && at + ${lanes} <= high)
        return *(__global const ${vec} *)(x + at);
    if (step == 2 && at >= low && at + ${2 * lanes} <= high) {
        const ${ctype}${lanes} a = *(__global const ${vec} *)(x + at);
        const ${ctype}${lanes} b = *(__global const ${vec} *)(x + at + ${lanes});
        return (${ctype}${lanes})(a.even, b.even);
    }
    ${ctype} each[${lanes}] __attribute__((aligned(64))) = {0};
    ${index} wanted[${lanes}] __attribute__((aligned(64)));
    *(${vec}_mask *)wanted = ok;
    for (int l = 0; l < ${lanes}; l++)
        if (wanted[l])
            each[l] = x[at + l * step];
    return *(${vec} *)each;
}

// to[l * step] = x in the first `count` lanes.
static void ${vec}_store(${ctype}${lanes} x, __global ${ctype} *to, long step, long count)
{
    if (count >= ${lanes} && step == 1) {
        *(__global ${vec} *)to = x;
        return;
    }
    ${ctype} each[${lanes}] __attribute__((aligned(64)));
    *(${vec} *)each = x;
    count = max(count, 0L);
    if (step == 1) {
        long l = 0;
        % for n in halves:
        if (count & ${n}) {
            *(__global ${vec}_${n} *)(to + l) = *(const ${vec}_${n} *)(each + l);
            l += ${n};
        }
        % endfor
    } else
        for (long l = 0; l < min(count, ${lanes}L); l++)
            to[l * step] = each[l];
}

static ${ctype} ${vec}_sum(${ctype}${lanes} x${lanes})
{
    % for n in halves[:-1]:
    const ${ctype}${n} x${n} = x${2 * n}.lo + x${2 * n}.hi;
    % endfor
    return x2.x + x2.y;
}
