## Indices that are given by the user: counted from the end where they are negative, checked, and reported where they
## are out of range. The kernel has the arguments `error_flag` and `error_code`; see kernels/runtime/error_flag.mako.
<%!
    from pytensor_cl.codegen.dtypes import to_long
%>
## Declares `variable`: the index `given` (of C type `kind`) of `length` elements; `wrong` where it is out of range.
<%def name="decode(variable, kind, given, length, is_checked, detail='0', wrong='0')">
            const long given = ${to_long(kind, given)};
            long ${variable} = given < 0 ? given + ${length} : given;
    % if is_checked:
            if (${variable} < 0 || ${variable} >= ${length}) {
                report_error(error_flag, error_code, ${detail}, given, ${length});
                ${variable} = ${wrong};
            }
    % endif
</%def>

## The fast path: a function <name>_all_in_bounds that returns whether `count` neighbouring indices count from the start
## and are in range. It compares the lowest and the highest of them, with vectors.
<%def name="all_in_bounds(name, index_type, lanes)">
typedef ${index_type}${lanes} ${name}_indices __attribute__((aligned(sizeof(${index_type}))));

__attribute__((noinline)) static int ${name}_all_in_bounds(__global const ${index_type} *i, const long count,
    const long length)
{
    if (count < ${lanes})
        return 0;
    ${index_type}${lanes} low = *(__global const ${name}_indices *)i;
    ${index_type}${lanes} high = low;
    for (long b = 0; b < count; b += ${lanes}) {
        const ${index_type}${lanes} v = *(__global const ${name}_indices *)(i + min(b, count - ${lanes}));
        low = v < low ? v : low;
        high = v > high ? v : high;
    }
    int all_in_bounds = 1;
% for k in range(lanes):
    all_in_bounds &= ${to_long(index_type, f"low.s{k:x}")} >= 0 & ${to_long(index_type, f"high.s{k:x}")} < length;
% endfor
    return all_in_bounds;
}
</%def>
