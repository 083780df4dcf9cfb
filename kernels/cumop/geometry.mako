## Text that the kernels of cumulative sums and products share. The defs use the arguments of the template that calls
## them. The struct, or a pointer to it where it is too large for an argument.
<%def name="parameter()" buffered="True" filter="trim">
% if in_buffer:
__global const ${name}_geometry *geometry
% else:
const ${name}_geometry g
% endif
</%def>

<%def name="read_parameter()" filter="trim">${f"const {name}_geometry g = *geometry;" if in_buffer else ""}</%def>

## Moves `in`, `out` and `total` to row number `rest`. GPUs (`unrolled`) would copy the geometry into private memory
## for indices that are not constants.
<%def name="outer_offset(index, unrolled=False)">
% if unrolled:
% for d in range(outer_dims):
        ${"if (rest) " if d else ""}{
% if d < outer_dims - 1:
            const ${index} k = rest % g.outer[${d}];
            rest /= g.outer[${d}];
% else:
            const ${index} k = rest;
% endif
            in += k * g.outer_in[${d}];
            out += k * g.outer_out[${d}];
            total += k * g.outer_total[${d}];
        }
% endfor
% else:
        for (int d = 0; rest; ++d) {
            const ${index} k = rest % g.outer[d];
            rest /= g.outer[d];
            in += k * g.outer_in[d];
            out += k * g.outer_out[d];
            total += k * g.outer_total[d];
        }
% endif
</%def>
