## Attention and its gradients, schedule simt.
##
## Algorithm   A work-group computes a tile of its result: `rows` own elements by a chunk of features. Blocks of as many
##             others stream by: their scores are computed in tiles of local memory, become probabilities or the
##             gradient of the scores, and are multiplied by the block of the operand that is added up.
##     forward         own queries: running maximum and sum of each row, and the result, rescaled when they change.
##     query_gradient  own queries, adds keys; probabilities are exp(scores - sums), where sums are the saved logs.
##     key_gradient    own keys, adds queries of all heads that share them.
##     value_gradient  own keys, adds rows of the result's gradient.
## Operands    plan.mako; results contiguous.
## Tiling      A work-group of side x side, rows = 4 side. A work-item has 4 x 4 scores and 4 x 8 sums, a side apart.
## NDRange     Groups of dimension 0 are tiles of own elements times chunks of features; those of dimension 1 loop over
##             the matrices of the batch.
## Invariants  Local memory: own and other operands of a step [step][rows + 1], scores [rows][rows + 1], the added
##             operand [rows][2 rows + 1], results of the work-items of a row [rows][side + 1]. Elements past the end
##             are zero; their scores are -inf. Every barrier is in uniform control flow.
## Reference   FlashAttention-2 (Dao 2023); online softmax (Milakov and Gimelshein 2018).
<%page args="name, kind, ctype, index, rows, step, causal, mask_type, dropout"/>
<%
    side, chunk = rows // 4, 2 * rows
    items = side * side
    owns_queries = kind in ("forward", "query_gradient")
    is_forward = kind == "forward"
    has_gradient = kind in ("query_gradient", "key_gradient")
    R4, C4, C8 = range(4), range(4), range(8)
    own, other = ("q", "k") if owns_queries else ("k", "q")
    own_g, other_g = ("grad", "v") if owns_queries else ("v", "grad")
    added = {"forward": "v", "query_gradient": "k", "key_gradient": "q", "value_gradient": "grad"}[kind]
    features = "p.values" if kind in ("forward", "value_gradient") else "p.features"
%>
## Loads the tile of a step: rows first .. first + rows of an operand, elements e0 .. e0 + step.
<%def name="load_step(tile, pointer, x, first, count, depth)">
                for (int at = item; at < ${rows * step}; at += ${items}) {
                    const int r = at / ${step}, e = at % ${step};
                    const int exists = ${first} + r < ${count} && e0 + e < ${depth};
                    ${tile}[e][r] = exists ? ${pointer}[(${index})(${first} + r) * (${index})p.${x}.row
                                                        + (${index})(e0 + e) * (${index})p.${x}.col] : 0;
                }
</%def>
## Products of rows of two operands, 4 x 4 of them in each work-item.
<%def name="products(sums, own_x, other_x, depth)">
            % for i in R4:
            ${ctype} ${", ".join(f"{sums}{i}_{j} = 0" for j in C4)};
            % endfor
            for (long e0 = 0; e0 < ${depth}; e0 += ${step}) {
                barrier(CLK_LOCAL_MEM_FENCE);
                ${load_step("own_tile", f"own_{own_x}", own_x, "own0", "own_count", depth)}
                ${load_step("other_tile", f"other_{other_x}", other_x, "c0", "other_count", depth)}
                barrier(CLK_LOCAL_MEM_FENCE);
                for (int e = 0; e < ${step}; e++) {
                    % for j in C4:
                    const ${ctype} b${j} = other_tile[e][tx + ${j * side}];
                    % endfor
                    % for i in R4:
                    const ${ctype} a${i} = own_tile[e][ty + ${i * side}];
                    % for j in C4:
                    ${sums}${i}_${j} += a${i} * b${j};
                    % endfor
                    % endfor
                }
            }
</%def>
## Scales and masks a score.
<%def name="mask_score(i, j)">
            {
                const long own_at = own0 + ty + ${i * side}, other_at = c0 + tx + ${j * side};
                const long query = ${"own_at" if owns_queries else "other_at"};
                const long key = ${"other_at" if owns_queries else "own_at"};
                const int exists = query < p.queries && key < p.keys${" && key <= query + p.offset" if causal else ""};
                ${ctype} score = s${i}_${j} * p.scale;
                % if mask_type:
                if (exists) {
                    const ${mask_type} m = mask_head[query * p.mask.row + key * p.mask.col];
                    % if mask_type == "uchar":
                    score = m ? score : -INFINITY;
                    % else:
                    score = m == -INFINITY ? -INFINITY : score + m;
                    % endif
                }
                % endif
                s${i}_${j} = exists ? score : -INFINITY;
            }
</%def>
## Whether the dropout keeps a probability.
<%def name="factor(i, j)" buffered="True" filter="trim">
<%
    own_at, other_at = f"own0 + ty + {i * side}", f"c0 + tx + {j * side}"
    query, key = (own_at, other_at) if owns_queries else (other_at, own_at)
%>
${name}_factor((uint)(n * p.heads + h), (uint)(${query}), (uint)(${key}), seed + c.seed, p.threshold, p.kept)
</%def>
<%def name="start(x, head='h')" buffered="True" filter="trim">c.${x} + n * p.${x}.batch + ${head} * p.${x}.head</%def>
<%def name="head_of(x)" buffered="True" filter="trim">${"g" if x in ("k", "v") else "h"}</%def>
% if dropout:
static ${ctype} ${name}_factor(
    uint head, uint query, uint key, __global const long *seed, uint threshold, ${ctype} kept)
{
    uint low, high;
    attention_row_uint(head, query, seed, &low, &high);
    return attention_hash_uint(low, high, key) >= threshold ? kept : 0;
}
% endif

__kernel __attribute__((reqd_work_group_size(${side}, ${side}, 1)))
void ${name}(attention_plan_${ctype} p, attention_call c, __global const ${ctype} *q, __global const ${ctype} *k,
             __global const ${ctype} *v, __global const ${mask_type or "uchar"} *mask, __global const long *seed,
             __global const ${ctype} *sums, __global const ${ctype} *correction, __global const ${ctype} *grad,
             __global ${ctype} *out, __global ${ctype} *out2)
{
    __local ${ctype} own_tile[${step}][${rows + 1}], other_tile[${step}][${rows + 1}];
    __local ${ctype} scores[${rows}][${rows + 1}], block[${rows}][${chunk + 1}];
    % if is_forward:
    __local ${ctype} parts[2][${rows}][${side + 1}];
    % endif
    const int tx = get_local_id(0), ty = get_local_id(1), item = ty * ${side} + tx;
    const long chunks = (${features} + ${chunk - 1}) / ${chunk};
    const long own0 = get_group_id(0) / chunks * ${rows}, f0 = get_group_id(0) % chunks * ${chunk};
    const long own_count = ${"p.queries" if owns_queries else "p.keys"};
    const long other_count = ${"p.keys" if owns_queries else "p.queries"};
    const long heads = ${"p.heads" if owns_queries else "p.heads / p.group"};
    for (long matrix = get_group_id(1); matrix < p.batch * heads; matrix += get_num_groups(1)) {
        const long n = matrix / heads;
        % if owns_queries:
        const long h = matrix % heads, g = h / p.group;
        % else:
        const long g = matrix % heads;
        % endif
        % for i in R4:
        ${ctype} ${", ".join(f"o{i}_{j} = 0" for j in C8)};
        % if is_forward:
        ${ctype} largest${i} = -INFINITY, sum${i} = 0;
        % endif
        % endfor
        % if owns_queries:
        {
        % else:
        for (long h = g * p.group; h < (g + 1) * p.group; h++) {
        % endif
        __global const ${ctype} *const own_${own} = ${own} + ${start(own, head_of(own))};
        __global const ${ctype} *const other_${other} = ${other} + ${start(other, head_of(other))};
        % if has_gradient:
        __global const ${ctype} *const own_${own_g} = ${own_g} + ${start(own_g, head_of(own_g))};
        __global const ${ctype} *const other_${other_g} = ${other_g} + ${start(other_g, head_of(other_g))};
        % endif
        __global const ${ctype} *const added = ${added} + ${start(added, head_of(added))};
        % if mask_type:
        __global const ${mask_type} *const mask_head = mask + ${start("mask")};
        % endif
        % if not is_forward:
        __global const ${ctype} *const sums_head = sums + ${start("sums")};
        __global const ${ctype} *const correction_head = correction + ${start("correction")};
        % endif
        % if causal and owns_queries:
        const long first = 0, end = clamp(own0 + ${rows} + p.offset, 0L, other_count);
        % elif causal:
        const long first = max(0L, own0 - p.offset) / ${rows} * ${rows}, end = other_count;
        % else:
        const long first = 0, end = other_count;
        % endif
        for (long c0 = first; c0 < end; c0 += ${rows}) {
            ${products("s", own, other, "p.features")}
            % for i in R4:
            % for j in C4:
            ${mask_score(i, j)}
            % endfor
            % endfor
            % if is_forward:
            % for i in R4:
            parts[0][ty + ${i * side}][tx] = fmax(fmax(s${i}_0, s${i}_1), fmax(s${i}_2, s${i}_3));
            % endfor
            barrier(CLK_LOCAL_MEM_FENCE);
            % for i in R4:
            {
                ${ctype} found = largest${i};
                for (int t = 0; t < ${side}; t++)
                    found = fmax(found, parts[0][ty + ${i * side}][t]);
                const ${ctype} shift = found == -INFINITY ? 0 : found;  // no key so far
                const ${ctype} factor = exp(largest${i} - shift);
                largest${i} = found;
                % for j in C4:
                s${i}_${j} = exp(s${i}_${j} - shift);
                % endfor
                parts[1][ty + ${i * side}][tx] = s${i}_0 + s${i}_1 + s${i}_2 + s${i}_3;
                sum${i} *= factor;
                % for j in C8:
                o${i}_${j} *= factor;
                % endfor
            }
            % endfor
            % if dropout:
            % for i in R4:
            % for j in C4:
            s${i}_${j} *= ${factor(i, j)};
            % endfor
            % endfor
            % endif
            % else:
            % if has_gradient:
            ${products("g", own_g, other_g, "p.values")}
            % endif
            % for i in R4:
            % for j in C4:
            if (s${i}_${j} == -INFINITY) {
                s${i}_${j} = 0;
            } else {
                const long query = ${f"own0 + ty + {i * side}" if owns_queries else f"c0 + tx + {j * side}"};
                const ${ctype} part = exp(s${i}_${j} - sums_head[query * p.sums.row]);
                <% kept = f"{factor(i, j)} * " if dropout else "" %>\
                % if has_gradient:
                s${i}_${j} = part * (${kept}g${i}_${j} - correction_head[query * p.correction.row]);
                % else:
                s${i}_${j} = ${kept}part;
                % endif
            }
            % endfor
            % endfor
            % endif
            % for i in R4:
            % for j in C4:
            scores[ty + ${i * side}][tx + ${j * side}] = s${i}_${j};
            % endfor
            % endfor
            for (int at = item; at < ${rows * chunk}; at += ${items}) {
                const int r = at / ${chunk}, f = at % ${chunk};
                const int exists = c0 + r < other_count && f0 + f < ${features};
                block[r][f] = exists ? added[(${index})(c0 + r) * (${index})p.${added}.row
                                             + (${index})(f0 + f) * (${index})p.${added}.col] : 0;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            % if is_forward:
            for (int t = 0; t < ${side}; t++) {
                % for i in R4:
                sum${i} += parts[1][ty + ${i * side}][t];
                % endfor
            }
            % endif
            for (int r = 0; r < ${rows}; r++) {
                % for j in C8:
                const ${ctype} x${j} = block[r][tx + ${j * side}];
                % endfor
                % for i in R4:
                const ${ctype} w${i} = scores[ty + ${i * side}][r];
                % for j in C8:
                o${i}_${j} += w${i} * x${j};
                % endfor
                % endfor
            }
            barrier(CLK_LOCAL_MEM_FENCE);  // the tiles were read
        }
        }
        % for i in R4:
        if (own0 + ty + ${i * side} < own_count) {
            const long row = matrix * own_count + own0 + ty + ${i * side};
            % if is_forward:
            const ${ctype} last_factor = sum${i} == 0 ? 0 : 1 / sum${i};
            if (f0 == 0 && tx == 0)
                out2[row] = sum${i} == 0 ? 0 : largest${i} + log(sum${i});
            % else:
            const ${ctype} last_factor = ${"p.scale" if has_gradient else 1};
            % endif
            % for j in C8:
            if (f0 + tx + ${j * side} < ${features})
                out[row * ${features} + f0 + tx + ${j * side}] = o${i}_${j} * last_factor;
            % endfor
        }
        % endfor
    }
}
