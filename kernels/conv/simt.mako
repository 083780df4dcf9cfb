## Convolution as a matrix product, schedule simt: as kernels/gemm/simt.mako, with rows that are channels of y, and columns that are
## positions of y. Where a column, and where a k (a channel and a tap), lies in x, w and y is worked out once, in local memory.
<%page args="name, ctype, wide, group, step, further=(), statements=''"/>
<%namespace name="epilogue" file="/conv/epilogue.mako"/>
<%
    tile, R = 4 * group, range(4)
%>
% if statements:
${epilogue.declarations(1)}
% endif
__kernel __attribute__((reqd_work_group_size(${group}, ${group}, 1)))
void ${name}(conv_plan p, conv_call s, __global const ${ctype} *X, __global const ${ctype} *W, __global ${ctype} *Y,
             __global ${ctype} *scratch${epilogue.parameters() if statements else ""})
{
    __local ${ctype} tile_a[${step}][${tile + 1}], tile_b[${step}][${tile + 1}];
    __local long x_j[${tile}], y_j[${tile}], at_j[3][${tile}];  // at: in the image, along each dimension
    __local long x_k[${step}], w_k[${step}], at_k[3][${step}];
    const int tx = get_local_id(0), ty = get_local_id(1), item = ty * ${group} + tx;
    const long out[3] = {p.out[0], p.out[1], p.out[2]}, taps[3] = {p.taps[0], p.taps[1], p.taps[2]};
    const long n = p.batch * out[0] * out[1] * out[2], depth = p.c * taps[0] * taps[1] * taps[2];
    const long across = (n + ${tile - 1}) / ${tile};
    const long m0 = get_group_id(0) / across * ${tile}, n0 = get_group_id(0) % across * ${tile};
    const int deep = taps[2] > out[2];  // neighbours in x are neighbours along k
    for (int e = item; e < ${tile}; e += ${group * group}) {
        const conv_index q = conv_split(min(n0 + e, n - 1), out);
        at_j[0][e] = q.d * p.stride[0] - p.pad[0];
        at_j[1][e] = q.h * p.stride[1] - p.pad[1];
        at_j[2][e] = q.w * p.stride[2] - p.pad[2];
        x_j[e] = q.outer * p.x[0] + at_j[0][e] * p.x[3] + at_j[1][e] * p.x[4] + at_j[2][e] * p.x[5];
        y_j[e] = q.outer * p.y[0] + conv_at(p.y, q);
    }
    for (long b = get_group_id(1); b < p.groups * p.parts; b += get_num_groups(1)) {
        const long g = b % p.groups, part = b / p.groups;
        const long first = conv_share(depth, ${step}, part, p.parts), last = conv_share(depth, ${step}, part + 1, p.parts);
        __global const ${ctype} *const x = X + s.x + g * p.x[1], *const w = W + s.w + g * p.w[0] + m0 * p.w[1];
        % for i in R:
        ${wide} ${", ".join(f"c{i}_{j} = 0" for j in R)};
        % endfor
        for (long k0 = first; k0 < last; k0 += ${step}) {
            for (int e = item; e < ${step}; e += ${group * group}) {
                const conv_index t = conv_split(k0 + e, taps);
                at_k[0][e] = t.d * p.dilation[0], at_k[1][e] = t.h * p.dilation[1], at_k[2][e] = t.w * p.dilation[2];
                x_k[e] = t.outer * p.x[2] + at_k[0][e] * p.x[3] + at_k[1][e] * p.x[4] + at_k[2][e] * p.x[5];
                w_k[e] = t.outer * p.w[2] + conv_at(p.w, t);
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int e = item; e < ${tile * step}; e += ${group * group}) {
                const int i = e / ${step}, k = e % ${step};
                tile_a[k][i] = m0 + i < p.m && k0 + k < last ? w[i * p.w[1] + w_k[k]] : 0;
            }
            for (int e = item; e < ${tile * step}; e += ${group * group}) {
                const int i = deep ? e / ${step} : e % ${tile}, k = deep ? e % ${step} : e / ${tile};
                int inside = n0 + i < n && k0 + k < last;
                % for r in range(3):
                { const long v = at_j[${r}][i] + at_k[${r}][k]; inside &= v >= 0 && v < p.image[${r}]; }
                % endfor
                tile_b[k][i] = inside ? x[x_j[i] + x_k[k]] : 0;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int k = 0; k < ${step}; k++) {
                const ${wide} ${", ".join(f"b{j} = tile_b[k][tx + {j * group}]" for j in R)};
                % for i in R:
                { const ${wide} a = tile_a[k][ty + ${i * group}]; ${" ".join(f"c{i}_{j} += a * b{j};" for j in R)} }
                % endfor
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        __global ${ctype} *const y = Y + s.y + part * p.y_part + g * p.y[1] + m0 * p.y[2];
        barrier(CLK_LOCAL_MEM_FENCE);  // where the columns lie: with no k there was none yet
        % for i in R:
        % for j in R:
        if (m0 + ty + ${i * group} < p.m && n0 + tx + ${j * group} < n) {
            % if statements:
            ${epilogue.apply(f"c{i}_{j}", "f.", f"g * p.m + m0 + ty + {i * group}", f"(y - Y) + (ty + {i * group}) * p.y[2] + y_j[tx + {j * group}]")}
            % endif
            y[(ty + ${i * group}) * p.y[2] + y_j[tx + ${j * group}]] = c${i}_${j};
        }
        % endfor
        % endfor
    }
}
