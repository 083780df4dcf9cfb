## What the kernels of the radix sort share: digits, which passes there are, and where a pass reads and writes.
## The first pass reads the input and writes `a`; those between go to and fro between `a` and `b`, and do nothing if their
## digit is the same in all keys of each row; the last writes the output. The defs see the arguments of the caller.
<%def name="digits(E, alone='')">
static inline int ${name}_digit(const ${E} e, const int pass)
{
    return (int)(${name}_key_of(e) >> (pass * ${bits})) & ${(1 << bits) - 1};
}

// Which bits differ between keys of a row.
static inline ulong ${name}_varied(__global const uint *diff)
{
    return diff[0] | (ulong)diff[1] << 32;
}

static inline int ${name}_skips(const ulong varied, const int pass)
{
    return (varied >> (pass * ${bits}) & ${(1 << bits) - 1}) == 0;
}

// Whether a pass after the first reads `b`.
static inline int ${name}_turn(const ulong varied, const int pass)
{
    int turn = 0;
    for (int k = 1; k < pass; ++k)
        turn ^= !${name}_skips(varied, k);
    return turn;
}

__kernel ${alone}
void ${name}_clear(__global uint *diff)
{
    if (get_global_id(0) == 0)
        diff[0] = diff[1] = 0;
}
</%def>

## Element number `i` of a pass, and the variables that this needs.
<%def name="begin(first, E)">
        % if first:
        __global const ${key} *x = input + input_at + ${name}_in(&g, row);
        % else:
        __global const ${E} *x = (${name}_turn(varied, pass) ? b : a) + row * g.length;
        % endif
</%def>
<%def name="read(first)" buffered="True" filter="trim">${f"{name}_make({name}_key(x[i * g.in_step]), i)" if first else "x[i]"}</%def>
