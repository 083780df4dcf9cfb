## Winograd's convolution, schedule simt, for filters of `taps` x `taps` and tiles of `count` x `count` output pixels.
##
## Algorithm   As winograd_filters.mako: U = G w G.T, V = B.T x B, M = U.T V for each of size x size points by the
##             routine's batched product, and y = A.T M A.
##             `is_weights`: the gradient of w, from x and the gradient of y: a sum over tiles of convolutions with
##             `count` x `count` taps, which the same points do for. D is the transformed gradient of y, in place of M;
##             U = D V.T is a product over tiles, for each part of the images; then the output transform of its sum.
## Operands    x, w and y with any strides, images of an element or more; positions and offsets within 32 bits;
##             plan.mako. U[point, g, c, feature], V[point, g, c, tile] and M[point, g, feature, tile]: rows and points
##             of each are u_row and u_point apart, ... <name>_tiles: `images` images from number `first` on, each of
##             `rows` x `cols` tiles. Of weights, U[point, part, g, feature, c].
## Tiling      A work-item transforms one filter, or a tile of one channel, in registers.
## NDRange     dimension 0: features, or tiles; neighbours take neighbours. Dimension 1: channels of all groups.
##             Work-items loop over both, with the NDRange as step.
## Reference   Lavin and Gray 2016; routines/conv/winograd_transforms.py.
<%page args="name, ctype, taps, count, filter_matrix, input_matrix, output_matrix, tiles, is_weights=False,
             further=(), offsets=None, statements=''"/>
<%namespace name="epilogue" file="/conv/epilogue.mako"/>
<%namespace name="winograd" file="/conv/winograd_transforms.mako"/>
<%
    size, vector = taps + count - 1, f"{ctype}{count}"
    S, T, K = range(size), range(taps), range(count)
%>
${tiles.c_typedef(f"{name}_tiles")}
% if statements:
${epilogue.declarations(name, ctype, 1, further, offsets, statements)}
% endif
## Transforms a matrix <source><row>_<column> of `extent` columns to one with `results` rows, down each column, then
## along each row; `store` is the place of element {i} of row r.
<%def name="transform(matrix, source, extent, results, store)">
            % for c in extent:
            ${ctype} ${", ".join(f"t{r}_{c}" for r in results)};
            ${winograd.transform(matrix, ctype, f"{source}{{i}}_{c}", f"t{{i}}_{c}")}
            % endfor
            % for r in results:
            ${winograd.transform(matrix, ctype, f"t{r}_{{i}}", store(r))}
            % endfor
</%def>
% if not is_weights:
__kernel void ${name}_filters(conv_plan p, conv_call s, ${name}_tiles t, __global const ${ctype} *restrict W,
                              __global ${ctype} *restrict U)
{
    const int features = p.m, channels = p.c, units = p.groups * p.c;
    for (int unit = get_global_id(1); unit < units; unit += get_global_size(1))
        for (int feature = get_global_id(0); feature < features; feature += get_global_size(0)) {
            __global const ${ctype} *const w =
                W + s.w + unit / channels * p.w.g + unit % channels * p.w.c + feature * p.w.m;
            % for r in T:
            % for c in T:
            const ${ctype} w${r}_${c} = w[${r} * p.w.h + ${c} * p.w.w];
            % endfor
            % endfor
            __global ${ctype} *const u = U + unit * t.u_row + feature;
            ${transform(filter_matrix, "w", T, S, lambda r: f"u[({size * r} + {{i}}) * t.u_point]")}
        }
}

% endif
__kernel void ${name}_inputs(conv_plan p, conv_call s, ${name}_tiles t, __global const ${ctype} *restrict X,
                             __global ${ctype} *restrict V)
{
    const int rows = t.rows, cols = t.cols, total = t.images * t.rows * t.cols, channels = p.c, units = p.groups * p.c;
    // The loop over tiles is the inner one: what depends on a tile must not take registers throughout a loop.
    for (int unit = get_global_id(1); unit < units; unit += get_global_size(1)) {
        const long channel = s.x + unit / channels * p.x.g + unit % channels * p.x.c;
        for (int tile = get_global_id(0); tile < total; tile += get_global_size(0)) {
            const int image = tile / cols / rows, h = tile / cols % rows * ${count} - (int)p.pad[1];
            const int w = tile % cols * ${count} - (int)p.pad[2];
            __global const ${ctype} *const x = X + channel + (t.first + image) * p.x.n;
            // Elements outside of the image are loaded from its edge, so that no load waits for a branch.
            % for r in S:
            const int is_h${r} = (uint)(h + ${r}) < (uint)p.image[1], is_w${r} = (uint)(w + ${r}) < (uint)p.image[2];
            const int at_h${r} = clamp(h + ${r}, 0, (int)p.image[1] - 1) * (int)p.x.h;
            const int at_w${r} = clamp(w + ${r}, 0, (int)p.image[2] - 1) * (int)p.x.w;
            % endfor
            % for r in S:
            % for c in S:
            ${ctype} x${r}_${c} = x[at_h${r} + at_w${c}];
            % endfor
            % endfor
            % for r in S:
            % for c in S:
            x${r}_${c} = is_h${r} & is_w${c} ? x${r}_${c} : 0;
            % endfor
            % endfor
            __global ${ctype} *const v = V + unit * t.v_row + tile;
            ${transform(input_matrix, "x", S, S, lambda r: f"v[({size * r} + {{i}}) * t.v_point]")}
        }
    }
}

% if is_weights:
__kernel void ${name}_gradients(conv_plan p, conv_call s, ${name}_tiles t, __global const ${ctype} *restrict Y,
                                __global ${ctype} *restrict D)
{
    const int rows = t.rows, cols = t.cols, total = t.images * t.rows * t.cols, channels = p.m, units = p.groups * p.m;
    for (int unit = get_global_id(1); unit < units; unit += get_global_size(1)) {
        const long channel = s.y + unit / channels * p.y.g + unit % channels * p.y.m;
        for (int tile = get_global_id(0); tile < total; tile += get_global_size(0)) {
            const int image = tile / cols / rows, h = tile / cols % rows * ${count}, w = tile % cols * ${count};
            __global const ${ctype} *const y = Y + channel + (t.first + image) * p.y.n;
            % for r in K:
            const int is_h${r} = h + ${r} < (int)p.out[1], is_w${r} = w + ${r} < (int)p.out[2];
            const int at_h${r} = min(h + ${r}, (int)p.out[1] - 1) * (int)p.y.h;
            const int at_w${r} = min(w + ${r}, (int)p.out[2] - 1) * (int)p.y.w;
            % endfor
            % for r in K:
            % for c in K:
            ${ctype} y${r}_${c} = y[at_h${r} + at_w${c}];
            % endfor
            % endfor
            % for r in K:
            % for c in K:
            y${r}_${c} = is_h${r} & is_w${c} ? y${r}_${c} : 0;
            % endfor
            % endfor
            __global ${ctype} *const d = D + unit * t.m_row + tile;
            ${transform(filter_matrix, "y", K, S, lambda r: f"d[({size * r} + {{i}}) * t.m_point]")}
        }
    }
}

__kernel void ${name}_weights(conv_plan p, conv_call s, ${name}_tiles t, __global const ${ctype} *restrict U,
                              __global ${ctype} *restrict W)
{
    const int channels = p.c, features = p.m, units = p.groups * p.m;
    for (int unit = get_global_id(1); unit < units; unit += get_global_size(1))
        for (int channel = get_global_id(0); channel < channels; channel += get_global_size(0)) {
            __global const ${ctype} *u = U + unit * t.u_row + channel;
            % for r in S:
            ${ctype} ${", ".join(f"u{r}_{c} = 0" for c in S)};
            % endfor
            for (int part = 0; part < t.parts; part++, u += t.u_part) {
                % for r in S:
                % for c in S:
                u${r}_${c} += u[${size * r + c} * t.u_point];
                % endfor
                % endfor
            }
            __global ${ctype} *const w =
                W + s.w + unit / features * p.w.g + unit % features * p.w.m + channel * p.w.c;
            ${transform(output_matrix, "u", S, T, lambda r: f"w[{r} * p.w.h + {{i}} * p.w.w]")}
        }
}
% else:
__kernel void ${name}_outputs(conv_plan p, conv_call s, ${name}_tiles t, __global const ${ctype} *restrict M,
                              __global ${ctype} *Y${epilogue.parameters(name, ctype, further) if statements else ""})
{
    const int rows = t.rows, cols = t.cols, total = t.images * t.rows * t.cols, channels = p.m, units = p.groups * p.m;
    for (int tile = get_global_id(0); tile < total; tile += get_global_size(0)) {
        const int image = tile / cols / rows, h = tile / cols % rows * ${count}, w = tile % cols * ${count};
        const int height = (int)p.out[1] - h, width = (int)p.out[2] - w;
        const long start = s.y + (t.first + image) * p.y.n + h * p.y.h + w * p.y.w;
        for (int unit = get_global_id(1); unit < units; unit += get_global_size(1)) {
            __global const ${ctype} *const m = M + unit * t.m_row + tile;
            % for r in S:
            % for c in S:
            const ${ctype} m${r}_${c} = m[${size * r + c} * t.m_point];
            % endfor
            % endfor
            % for r in K:
            ${ctype} ${", ".join(f"y{r}_{c}" for c in K)};
            % endfor
            ${transform(output_matrix, "m", S, K, lambda r: f"y{r}_{{i}}")}
            const long first = start + unit / channels * p.y.g + unit % channels * p.y.m;
            % for r in K:
            if (${r} < height) {
                const long at = first + ${r} * p.y.h;
                % if statements:
                % for c in K:
                if (${c} < width)
                    ${epilogue.apply(name, ctype, further, f"y{r}_{c}", "f.", "unit", f"(at + {c} * p.y.w)")}
                % endfor
                % endif
                if (width >= ${count} && p.y.w == 1 && (size_t)(Y + at) % sizeof(${vector}) == 0) {
                    *(__global ${vector} *)(Y + at) = (${vector})(${", ".join(f"y{r}_{c}" for c in K)});
                } else {
                    % for c in K:
                    if (${c} < width)
                        Y[at + ${c} * p.y.w] = y${r}_${c};
                    % endfor
                }
            }
            % endfor
        }
    }
}
% endif
