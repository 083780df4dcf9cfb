## Convolution of float32 as a matrix product, schedule simt, where there are enough large tiles for all compute units: rows are channels
## of y, columns its positions. As kernels/gemm/simt_double_buffered.mako: a work-group of 16 x rows / 8 computes rows x 128 elements, each work-item
## four squares of 4 x 4; what a step along k (a channel and a tap) needs is fetched while the one before is computed. Where each k
## lies in x and in w is worked out 64 at a time, by as many work-items. `deep`: neighbours in x are neighbours along k.
<%page args="name, ctype, wide, rows, deep, volumes, further=(), statements=''"/>
<%namespace name="epilogue" file="/conv/epilogue.mako"/>
<%
    columns, step, known, items = 128, 8, 64, 2 * rows
    R, H, axes = range(8), range(2), range(0 if volumes else 1, 3)
%>
% if statements:
${epilogue.declarations(1)}
% endif
## An index and how it factors: `left` and the axes.
<%def name="split(index, extents)">
            uint left = ${index};
            % for r in reversed(axes):
            const int i${r} = left % (uint)${extents}[${r}];
            left /= (uint)${extents}[${r}];
            % endfor
</%def>
<%def name="offset(strides, first, v)" buffered="True" filter="trim">
(int)left * (int)${strides}[${first}]${"".join(f" + {v}{r} * (int){strides}[{r + 3}]" for r in axes)}
</%def>
## Notes where 64 elements along k lie; those beyond the end are outside of any image.
<%def name="note(begin)">
            if (item < ${known}) {
                const int k = ${begin} + item, slot = (k - first) & ${2 * known - 1};
                ${split("k", "p.taps")}
                % for r in axes:
                const int v${r} = i${r} * (int)p.dilation[${r}];
                % endfor
                x_k[slot] = (int4)(${offset("p.x", 2, "v")}, ${"" if volumes else "0, "}${", ".join(f"v{r}" for r in axes[:-1])}, k < last ? v2 : 1 << 30);
                w_k[slot] = k < last ? ${offset("p.w", 2, "i")} : INT_MIN;
            }
</%def>
<%def name="fetch_w()">
            const int w_at = w_k[next + a_k];
            % for q in range(4):
            const ${ctype} a_${q} = w_at != INT_MIN && a_i + ${q * items // step} < height ? w[(a_i + ${q * items // step}) * (int)p.w[1] + w_at] : 0;
            % endfor
</%def>
<%def name="fetch_x()">
            % if deep:
            const int4 along = x_k[next + b_k];
            % endif
            % for q in range(columns * step // items):
            ${ctype} b_${q} = 0;
            {
                const int4 where = ${f"along + x_j[b_i + {q * items // step}]" if deep else f"mine + x_k[next + b_k + {q * items // columns}]"};
                if (${" && ".join(f"(uint)where.s{r + 1} < (uint)p.image[{r}]" for r in axes)}) b_${q} = x[where.s0];
            }
            % endfor
</%def>
<%def name="put(half)">
            % for q in range(4):
            tile_a[${half}][a_k][a_i + ${q * items // step}] = a_${q};
            % endfor
            % for q in range(columns * step // items):
            tile_b[${half}][b_k + ${0 if deep else q * items // columns}][b_i + ${q * items // step if deep else 0}] = b_${q};
            % endfor
</%def>
<%def name="quad(x, at)" buffered="True" filter="trim">
*(__local const ${ctype}4 *)&tile_${x}[half_now][k][${at}]
</%def>
// Two work-groups of 256 run at a time on a multiprocessor of NVIDIA's if each of their work-items has at most 128 registers.
__kernel __attribute__((reqd_work_group_size(16, ${rows // 8}, 1)))
void ${name}(conv_plan p, conv_call s, __global const ${ctype} *X, __global const ${ctype} *W, __global ${ctype} *Y,
             __global ${ctype} *scratch${epilogue.parameters() if statements else ""})
{
    // Rows of four elements more: those of a block's columns lie in different banks.
    __local ${ctype} tile_a[2][${step}][${rows + 4}] __attribute__((aligned(16))), tile_b[2][${step}][${columns + 4}] __attribute__((aligned(16)));
    __local int4 x_k[${2 * known}]${f", x_j[{columns}]" if deep else ""};  // offsets, and where it is along each axis of the image
    __local int w_k[${2 * known}], y_j[${columns}] __attribute__((aligned(16)));
    const int tx = get_local_id(0), ty = get_local_id(1), item = ty * 16 + tx;
    const int a_i = item / ${step}, a_k = item % ${step};
    const int b_i = item ${f"/ {step}" if deep else f"% {columns}"}, b_k = item ${f"% {step}" if deep else f"/ {columns}"};
    const int n = p.batch * p.out[0] * p.out[1] * p.out[2], depth = p.c * p.taps[0] * p.taps[1] * p.taps[2];
    const int tiles = get_num_groups(0), across = (n + ${columns - 1}) / ${columns};
    // The tile is reckoned in the loop, though it stays the same: what depends on it must not take registers before.
    for (long unit = get_group_id(0) + (long)tiles * get_group_id(1); unit < tiles * p.groups * p.parts; unit += (long)tiles * get_num_groups(1)) {
        const int at_tile = unit % tiles, m0 = at_tile / across * ${rows}, n0 = at_tile % across * ${columns};
        const long g = unit / tiles % p.groups, part = unit / tiles / p.groups;
        const int first = conv_share(depth, ${step}, part, p.parts), last = conv_share(depth, ${step}, part + 1, p.parts);
        const int height = p.m - m0, width = n - n0;
        __global const ${ctype} *const x = X + s.x + g * p.x[1], *const w = W + s.w + g * p.w[0] + m0 * p.w[1];
        barrier(CLK_LOCAL_MEM_FENCE);  // the tables were read
        int4 mine;
        {
            ${split(f"min(n0 + item % {columns}, n - 1)", "p.out")}
            % for r in axes:
            const int v${r} = i${r} * (int)p.stride[${r}] - (int)p.pad[${r}];
            % endfor
            mine = (int4)(${offset("p.x", 0, "v")}, ${"" if volumes else "0, "}${", ".join(f"v{r}" for r in axes)});
            if (item < ${columns}) { y_j[item] = ${offset("p.y", 0, "i")}; ${"x_j[item] = mine;" if deep else ""} }
        }
        ${note("first")}
        barrier(CLK_LOCAL_MEM_FENCE);
        % for i in R:
        ${wide}4 c${i}_0 = 0, c${i}_1 = 0;
        % endfor
        int half_now = 1;
        #pragma unroll 1
        for (int k0 = first - ${step}; k0 < last; k0 += ${step}) {
            const int next = (k0 + ${step} - first) & ${2 * known - 1};
            if (next % ${known} == 0) { ${note(f"k0 + {step + known}")} }
            ${fetch_w()}
            ${fetch_x()}
            if (k0 >= first) {
                // Not all steps at once: what they read early would take registers that the sums need.
                #pragma unroll 2
                for (int k = 0; k < ${step}; k++) {
                    const ${wide}4 a0 = ${quad("a", "4 * ty")}, a1 = ${quad("a", f"{rows // 2} + 4 * ty")};
                    const ${wide}4 b0 = ${quad("b", "4 * tx")}, b1 = ${quad("b", "64 + 4 * tx")};
                    % for i in R:
                    % for h in H:
                    c${i}_${h} += a${i // 4}.s${i % 4} * b${h};
                    % endfor
                    % endfor
                }
            }
            half_now ^= 1;
            ${put("half_now")}
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        __global ${ctype} *const y = Y + s.y + part * p.y_part + g * p.y[1] + m0 * p.y[2];
        // A loop that moves the sums along: unrolled, the addresses of all rows would take the registers of a second work-group.
        #pragma unroll 1
        for (int r = 0; r < ${len(R)}; r++) {
            const int i = ${rows // 2} * (r / 4) + r % 4 + 4 * ty;
            % for h in H:
            % for lane in range(4):
            if (i < height && ${64 * h + lane} + 4 * tx < width) {
                const int at = i * (int)p.y[2] + y_j[${64 * h + lane} + 4 * tx];
                ${wide} sum = c0_${h}.s${lane};
                % if statements:
                ${epilogue.apply("sum", "f.", "g * p.m + m0 + i", "(y - Y) + at")}
                % endif
                y[at] = sum;
            }
            % endfor
            % endfor
            % for i in R[:-1]:
            c${i}_0 = c${i + 1}_0, c${i}_1 = c${i + 1}_1;
            % endfor
        }
    }
}
