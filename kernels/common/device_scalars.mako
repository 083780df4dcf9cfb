## Scalars of a BLAS kernel (alpha, beta) that are given by value in the struct `s`, or are on the device: then the
## pointer is not null, and s.<name>_at is the offset.
<%def name="parameters(ctype, scalars)">${"".join(f", __global const {ctype} *{x}" for x in scalars)}</%def>
<%def name="load(scalars)">
    % for x in scalars:
    if (${x})
        s.${x} = ${x}[s.${x}_at];
    % endfor
</%def>
