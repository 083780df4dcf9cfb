## Multiplications and additions in registers, as many as the device can do: CHAINS independent sums per work-item.
<%page args="name, wide, ctype, lanes, chains, count"/>
__kernel void ${name}(__global ${ctype} *out, ${ctype} factor, ${ctype} term)
{
    % for k in range(chains):
    ${wide} a${k} = (${wide})(${k} + get_global_id(0));
    % endfor
    const ${wide} x = (${wide})factor;
    const ${wide} y = (${wide})term;
    for (int i = 0; i < ${count}; i++) {
        % for k in range(chains):
        a${k} = a${k} * x + y;
        % endfor
    }
    const ${wide} sum = ${" + ".join(f"a{k}" for k in range(chains))};
    % if lanes > 1:
    out[get_global_id(0)] = sum.s0 + sum.s${"%x" % (lanes - 1)} + sum.s${"%x" % (lanes // 2)};
    % else:
    out[get_global_id(0)] = sum;
    % endif
}
