## The final pass of a reduction in two passes: `total` is combined with the partial results number 0 to parts - 1, in
## this order, so that a result is the same in each call. `combine` is an expression of `{total}` and `{partial}`, and
## `partial` the expression of partial result number `part`. The host side is routines/base/two_pass.py.
<%def name="combine(total, parts, partial, combine='{total} + {partial}')">
        for (long part = 0; part < ${parts}; ++part)
            ${total} = ${combine.format(total=total, partial=partial)};
</%def>
