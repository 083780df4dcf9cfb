## What the kernels of cumulative sums and products share. The defs see the arguments of the template that calls them.
<%def name="geometry(index)">
typedef struct {  // rows lie along the axis; kept dimensions from the innermost outwards; lengths and steps in elements
    ${index} outputs, length, chunk, chunks, blocks, tiles, in_step, out_step, first_total;
    ${index} kept[${kept_dims}], kept_out[${kept_dims}], kept_in[${kept_dims}], kept_total[${kept_dims}];
} ${name}_geometry;
</%def>

## The struct, or a pointer to it where it is too large for an argument.
<%def name="parameter()" filter="trim">${"__global " if in_buffer else ""}const ${name}_geometry ${"*geometry" if in_buffer else "g"}</%def>

<%def name="read_parameter()" filter="trim">${f"const {name}_geometry g = *geometry;" if in_buffer else ""}</%def>

## Moves `in`, `out` and `total` to row number `rest`. GPUs (`unrolled`) would copy the geometry into private memory for indices
## that are not constants.
<%def name="kept_offset(index, unrolled=False)">
% if unrolled:
% for d in range(kept_dims):
        ${"if (rest) " if d else ""}{
% if d < kept_dims - 1:
            const ${index} k = rest % g.kept[${d}];
            rest /= g.kept[${d}];
% else:
            const ${index} k = rest;
% endif
            in += k * g.kept_in[${d}];
            out += k * g.kept_out[${d}];
            total += k * g.kept_total[${d}];
        }
% endfor
% else:
        for (int d = 0; rest; ++d) {
            const ${index} k = rest % g.kept[d];
            rest /= g.kept[d];
            in += k * g.kept_in[d];
            out += k * g.kept_out[d];
            total += k * g.kept_total[d];
        }
% endif
</%def>
