## Text that the kernels of the radix sort share: digits, which passes are skipped, and where a pass reads and writes.
## The first pass reads the input and writes `a`. Those between alternate between `a` and `b`, and are skipped if their
## digit is the same in all keys of each row. The last writes the output. The defs use the arguments of the template
## that calls them.
<%def name="digits(E, alone='', clears=True)">
static inline int ${name}_key_digit(const ${key} k, const int pass)
{
    return (int)(k >> (pass * ${bits})) & ${(1 << bits) - 1};
}

static inline int ${name}_digit(const ${E} e, const int pass)
{
    return ${name}_key_digit(${name}_key_of(e), pass);
}

// Which bits differ between keys of a row.
static inline ulong ${name}_differing_bits(__global const uint *difference)
{
    return difference[0] | (ulong)difference[1] << 32;
}

static inline int ${name}_is_skipped(const ulong differing_bits, const int pass)
{
    return (differing_bits >> (pass * ${bits}) & ${(1 << bits) - 1}) == 0;
}

// Whether a pass after the first reads `b`.
static inline int ${name}_reads_b(const ulong differing_bits, const int pass)
{
    int parity = 0;
    for (int k = 1; k < pass; ++k)
        parity ^= !${name}_is_skipped(differing_bits, k);
    return parity;
}

% if clears:
__kernel ${alone}
void ${name}_clear(__global uint *difference)
{
    if (get_global_id(0) == 0)
        difference[0] = difference[1] = 0;
}
% endif
</%def>

## Element number `i` of a pass, and the variables that this needs.
<%def name="begin(first, E)">
        % if first:
        __global const ${key} *x = input + input_at + ${name}_in(&g, row);
        % else:
        __global const ${E} *x = (${name}_reads_b(differing_bits, pass) ? b : a) + row * g.length;
        % endif
</%def>
<%def name="read(first)" buffered="True" filter="trim">
% if first:
${name}_make(${name}_key(x[i * g.in_step]), i)
% else:
x[i]
% endif
</%def>

<%def name="read_key(first, i)" buffered="True" filter="trim">
${f"{name}_key(x[({i}) * g.in_step])" if first else f"{name}_key_of(x[{i}])"}
</%def>

## The target of a pass: `y`.
<%def name="target(first, last, E)">
        % if last:
        __global ${"long" if indexed else key} *y = output + output_at + ${name}_out(&g, row);
        % else:
        __global ${E} *y = ${"a" if first else f"({name}_reads_b(differing_bits, pass) ? a : b)"} + row * g.length;
        % endif
</%def>
