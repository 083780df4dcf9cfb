## Attention and its gradients, schedule simt.
##
## Algorithm   A work-group computes a tile of its result: `own` own elements by a chunk of features. Blocks of `other`
##             others stream by: their scores are computed in registers, become probabilities or the gradient of the
##             scores, pass through local memory, and are multiplied by the block of the operand that is added up.
##     forward         own queries: running maximum and sum of each row, and the result, rescaled when they change.
##     query_gradient  own queries, adds keys; probabilities are exp(scores - sums), where sums are the saved logs.
##     key_gradient    own keys, adds queries of all heads that share them.
##     value_gradient  own keys, adds rows of the result's gradient.
## Operands    plan.mako; results contiguous. Vectors of four are loaded where rows are contiguous and aligned.
## Tiling      A work-item has `height` x 4 scores and `height` x 4 * vectors sums: rows in runs of four that are
##             own / height * 4 apart, and columns 4 * tx + 0..3 (+ other). 32 neighbours compute 4 x 8 of these.
## NDRange     Groups of dimension 0 are tiles of own elements times chunks of features; those of dimension 1 loop over
##             the matrices of the batch.
## Invariants  Local memory: scores [other][own + 4]; `tiles` has in turn own and other operands of a step along the
##             features, [step][own + 4] and [step][other + 4]; largest scores or sums of the work-items of a row,
##             [other / 4][own + 4]; and `run` rows of the added operand, [run][chunk + 4]. Elements past the end are
##             zero; their scores are -inf. Every barrier is in uniform control flow.
## Reference   FlashAttention-2 (Dao 2023); online softmax (Milakov and Gimelshein 2018).
<%page args="name, kind, ctype, index, own, other, height, vectors, step, causal, mask_type, dropout"/>
<%
    columns, lines = other // 4, own // height  # work-items along others and along own elements
    items, chunk, apart = columns * lines, other * vectors, own * 4 // height
    across, down = min(8, columns), min(4, lines)  # of neighbours
    own_row, other_row, chunk_row = own + 4, other + 4, chunk + 4
    run = min(step, other)  # rows of the added operand that are in local memory at a time
    size = max(step * (own_row + other_row), columns * own_row, run * chunk_row)
    owns_queries = kind in ("forward", "query_gradient")
    is_forward = kind == "forward"
    has_gradient = kind in ("query_gradient", "key_gradient")
    R, H, C, N = range(height), range(height // 4), range(4), range(vectors)
    at_row = [f"4 * ty + {i // 4 * apart + i % 4}" for i in R]
    own_x, other_x = ("q", "k") if owns_queries else ("k", "q")
    own_g, other_g = ("grad", "v") if owns_queries else ("v", "grad")
    added = {"forward": "v", "query_gradient": "k", "key_gradient": "q", "value_gradient": "grad"}[kind]
    features = "values" if kind in ("forward", "value_gradient") else "features"
    T4 = f"{ctype}4"
    # GPUs have an instruction for powers of two; where the argument's rounding counts, the result is near zero.
    power = lambda x: f"exp2(1.44269504f * ({x}))" if ctype == "float" else f"exp({x})"
    bound = lambda total: f" && at < {total}" if total % items else ""
    own_loads, other_loads, added_loads = (-(-n // 4 // items) for n in (own * step, other * step, chunk * run))
%>
## Whether vectors of four can be loaded from the rows of a matrix.
<%def name="has_vectors(pointer, x)" buffered="True" filter="trim">
p.${x}.col == 1 && p.${x}.row % 4 == 0 && (size_t)${pointer} % sizeof(${T4}) == 0
</%def>
## Loads elements e .. e + 3 of row r, which may be beyond the end, from `pointer`: the row's first element.
<%def name="load_four(value, pointer, x, is_vector, row_exists, e, depth)">
                ${T4} ${value} = 0;
                if (${row_exists}) {
                    __global const ${ctype} *const from = ${pointer};
                    if (${is_vector} && ${e} + 4 <= ${depth}) {
                        ${value} = *(__global const ${T4} *)(from + ${e});
                    } else {
                        % for l in C:
                        if (${e} + ${l} < ${depth})
                            ${value}.s${l} = from[(${index})(${e} + ${l}) * (${index})p.${x}.col];
                        % endfor
                    }
                }
</%def>
## Rows first .. first + rows of an operand, elements e0 .. e0 + step, to registers, and from there to local memory:
## neighbours take neighbouring rows.
<%def name="load_step(value, loads, rows, pointer, x, is_vector, first, count, depth)">
            % for l in range(loads):
            {
                const int at = item + ${l * items}, r = at % ${rows};
                const ${index} e = e0 + at / ${rows} * 4;
                ${load_four("four", f"{pointer} + ({index})({first} + r) * ({index})p.{x}.row", x, is_vector,
                            f"{first} + r < {count}{bound(rows * step // 4)}", "e", depth)}
                ${value}${l} = four;
            }
            % endfor
</%def>
<%def name="store_step(value, loads, rows, tile, row)">
            % for l in range(loads):
            {
                const int at = item + ${l * items}, r = at % ${rows}, e = at / ${rows} * 4;
                % if (rows * step // 4) % items:
                if (at < ${rows * step // 4})
                % endif
                {
                    % for k in C:
                    (${tile})[(e + ${k}) * ${row} + r] = ${value}${l}.s${k};
                    % endfor
                }
            }
            % endfor
</%def>
<%def name="declare(value, loads)">
            ${T4} ${", ".join(f"{value}{l}" for l in range(loads))};
</%def>
## Products of rows of two operands, height x 4 of them in each work-item: vectors <sums><row>.
<%def name="products(sums, mine, others, depth)">
            % for i in R:
            ${T4} ${sums}${i} = 0;
            % endfor
            {
            ${declare("u", own_loads)}
            ${declare("v", other_loads)}
            ${index} e0 = 0;
<%def name="load_both()">
            ${load_step("u", own_loads, own, f"own_{mine}", mine, f"own_{mine}_vectors", "own0", "own_count", depth)}
            ${load_step("v", other_loads, other, f"other_{others}", others, f"other_{others}_vectors", "c0",
                        "other_count", depth)}
</%def>
            while (e0 < ${depth}) {
                ${load_both()}
                barrier(CLK_LOCAL_MEM_FENCE);
                ${store_step("u", own_loads, own, "tiles", own_row)}
                ${store_step("v", other_loads, other, f"tiles + {step * own_row}", other_row)}
                barrier(CLK_LOCAL_MEM_FENCE);
                e0 += ${step};
                #pragma unroll 1
                for (int e = 0; e < ${step}; e++) {
                    const ${T4} b = *(__local const ${T4} *)(tiles + ${step * own_row} + e * ${other_row} + 4 * tx);
                    % for h in H:
                    const ${T4} a${h} = *(__local const ${T4} *)(tiles + e * ${own_row} + ${h * apart} + 4 * ty);
                    % endfor
                    % for i in R:
                    ${sums}${i} += a${i // 4}.s${i % 4} * b;
                    % endfor
                }
            }
            }
</%def>
## Scales and masks a score.
<%def name="mask_score(i, j)">
            {
                const ${index} own_at = own0 + ${at_row[i]}, other_at = c0 + 4 * tx + ${j};
                const ${index} query = ${"own_at" if owns_queries else "other_at"};
                const ${index} key = ${"other_at" if owns_queries else "own_at"};
                const int exists = query < queries && key < keys${" && key <= query + p.offset" if causal else ""};
                ${ctype} score = s${i}.s${j} * p.scale;
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
                s${i}.s${j} = exists ? score : -INFINITY;
            }
</%def>
## Whether the dropout keeps a probability.
<%def name="factor(i, j)" buffered="True" filter="trim">
<%
    own_at, other_at = f"own0 + {at_row[i]}", f"c0 + 4 * tx + {j}"
    query, key = (own_at, other_at) if owns_queries else (other_at, own_at)
%>
${name}_factor((uint)(n * p.heads + h), (uint)(${query}), (uint)(${key}), seed + c.seed, p.threshold, p.kept)
</%def>
<%def name="start(x, head='h')" buffered="True" filter="trim">c.${x} + n * p.${x}.batch + ${head} * p.${x}.head</%def>
<%def name="head_of(x)" buffered="True" filter="trim">${"g" if x in ("k", "v") else "h"}</%def>
<%def name="operand(role, x)">
        __global const ${ctype} *const ${role}_${x} = ${x} + ${start(x, head_of(x))};
        const int ${role}_${x}_vectors = ${has_vectors(f"{role}_{x}", x)};
</%def>
## A value of each row, from all work-items of a row: `value` of each to tiles[tx][row]; then the body for all of them,
## with `part`, four rows of one work-item, and h.
<%def name="share(value)">
            barrier(CLK_LOCAL_MEM_FENCE);
            % for h in H:
            *(__local ${T4} *)(tiles + tx * ${own_row} + ${h * apart} + 4 * ty) =
                (${T4})(${", ".join(value(4 * h + i) for i in C)});
            % endfor
            barrier(CLK_LOCAL_MEM_FENCE);
            #pragma unroll 1
            for (int t = 0; t < ${columns}; t++) {
                % for h in H:
                {
                    const ${T4} part = *(__local const ${T4} *)(tiles + t * ${own_row} + ${h * apart} + 4 * ty);
                    ${caller.body(h)}
                }
                % endfor
            }
</%def>
% if dropout:
static ${ctype} ${name}_factor(
    uint head, uint query, uint key, __global const long *seed, uint threshold, ${ctype} kept)
{
    uint low, high;
    attention_row_uint(head, query, seed, &low, &high);
    return attention_hash_uint(low, high, key) >= threshold ? kept : 0;
}
% endif



__kernel __attribute__((reqd_work_group_size(${items}, 1, 1)))
void ${name}(attention_plan_${ctype} p, attention_call c, __global const ${ctype} *q, __global const ${ctype} *k,
             __global const ${ctype} *v, __global const ${mask_type or "uchar"} *mask, __global const long *seed,
             __global const ${ctype} *sums, __global const ${ctype} *correction, __global const ${ctype} *grad,
             __global ${ctype} *out, __global ${ctype} *out2)
{
    __local ${ctype} tiles[${size}] __attribute__((aligned(32)));
    __local ${ctype} scores[${other * own_row}] __attribute__((aligned(32)));
    const int item = get_local_id(0);
    const int tx = item % ${across} + item / ${across * down} % ${columns // across} * ${across};
    const int ty = item / ${across} % ${down} + item / ${across * down} / ${columns // across} * ${down};
    const ${index} queries = p.queries, keys = p.keys, features = p.features, values = p.values;
    const ${index} chunks = (${features} + ${chunk - 1}) / ${chunk};
    const ${index} own0 = get_group_id(0) / chunks * ${own}, f0 = get_group_id(0) % chunks * ${chunk};
    const ${index} own_count = ${"queries" if owns_queries else "keys"};
    const ${index} other_count = ${"keys" if owns_queries else "queries"};
    const long heads = ${"p.heads" if owns_queries else "p.heads / p.group"};
    for (long matrix = get_group_id(1); matrix < p.batch * heads; matrix += get_num_groups(1)) {
        const long n = matrix / heads;
        % if owns_queries:
        const long h = matrix % heads, g = h / p.group;
        % else:
        const long g = matrix % heads;
        % endif
        % for i in R:
        ${T4} ${", ".join(f"o{i}_{j} = 0" for j in N)};
        % if is_forward:
        ${ctype} largest${i} = -INFINITY, sum${i} = 0;
        % endif
        % endfor
        % if owns_queries:
        {
        % else:
        for (long h = g * p.group; h < (g + 1) * p.group; h++) {
        % endif
        ${operand("own", own_x)}
        ${operand("other", other_x)}
        % if has_gradient:
        ${operand("own", own_g)}
        ${operand("other", other_g)}
        % endif
        __global const ${ctype} *const added = ${added} + ${start(added, head_of(added))} + f0 * p.${added}.col;
        const int added_vectors = ${has_vectors("added", added)};
        % if mask_type:
        __global const ${mask_type} *const mask_head = mask + ${start("mask")};
        % endif
        % if not is_forward:
        __global const ${ctype} *const sums_head = sums + ${start("sums")};
        __global const ${ctype} *const correction_head = correction + ${start("correction")};
        % endif
        % if causal and owns_queries:
        const ${index} first = 0, end = clamp(own0 + ${own} + p.offset, 0L, (long)other_count);
        % elif causal:
        const ${index} first = max(0L, own0 - p.offset) / ${other} * ${other}, end = other_count;
        % else:
        const ${index} first = 0, end = other_count;
        % endif
        for (${index} c0 = first; c0 < end; c0 += ${other}) {
            ${products("s", own_x, other_x, "features")}
            % for i in R:
            % for j in C:
            ${mask_score(i, j)}
            % endfor
            % endfor
            % if is_forward:
            % for i in R:
            ${ctype} found${i} = largest${i};
            % endfor
            <%call expr="share(lambda i: f'fmax(fmax(s{i}.s0, s{i}.s1), fmax(s{i}.s2, s{i}.s3))')" args="h">
                    % for i in C:
                    found${4 * h + i} = fmax(found${4 * h + i}, part.s${i});
                    % endfor
            </%call>
            % for i in R:
            {
                const ${ctype} shift = found${i} == -INFINITY ? 0 : found${i};  // no key so far
                const ${ctype} factor = ${power(f'largest{i} - shift')};
                largest${i} = found${i};
                s${i} = ${power(f's{i} - shift')};
                sum${i} = sum${i} * factor + (s${i}.s0 + s${i}.s1 + s${i}.s2 + s${i}.s3);
                % for j in N:
                o${i}_${j} *= factor;
                % endfor
            }
            % endfor
            % if dropout:
            % for i in R:
            % for j in C:
            s${i}.s${j} *= ${factor(i, j)};
            % endfor
            % endfor
            % endif
            % else:
            % if has_gradient:
            ${products("g", own_g, other_g, "values")}
            % endif
            % for a in (R if owns_queries else C):
<%  query = f"own0 + {at_row[a]}" if owns_queries else f"c0 + 4 * tx + {a}" %>\
            const int exists${a} = ${query} < queries;
            const ${ctype} log_sum${a} = exists${a} ? sums_head[(${query}) * p.sums.row] : 0;
            % if has_gradient:
            const ${ctype} less${a} = exists${a} ? correction_head[(${query}) * p.correction.row] : 0;
            % endif
            % endfor
            % for i in R:
            % for j in C:
            {
                const ${ctype} score = s${i}.s${j}, part = ${power(f'score - log_sum{i if owns_queries else j}')};
                <%
                    kept = f"{factor(i, j)} * " if dropout else ""
                    of_query = i if owns_queries else j
                    value = f"part * ({kept}g{i}.s{j} - less{of_query})" if has_gradient else f"{kept}part"
                %>\
                s${i}.s${j} = score == -INFINITY ? 0 : ${value};
            }
            % endfor
            % endfor
            % endif
            % for j in C:
            % for h in H:
            *(__local ${T4} *)(scores + (4 * tx + ${j}) * ${own_row} + ${h * apart} + 4 * ty) =
                (${T4})(${", ".join(f"s{4 * h + i}.s{j}" for i in C)});
            % endfor
            % endfor
            {
            ${declare("u", added_loads)}
            const int depth = min((${index})${other}, other_count - c0);
            int r0 = 0;
<%def name="load_added()">
            % for l in range(added_loads):
            {
                const int at = item + ${l * items}, r = r0 + at / ${chunk // 4}, f = at % ${chunk // 4} * 4;
                ${load_four("four", f"added + ({index})(c0 + r) * ({index})p.{added}.row", added, "added_vectors",
                            f"r < depth{bound(chunk * run // 4)}", "f", f"{features} - f0")}
                u${l} = four;
            }
            % endfor
</%def>
            while (r0 < depth) {
                ${load_added()}
                barrier(CLK_LOCAL_MEM_FENCE);
                % for l in range(added_loads):
                {
                    const int at = item + ${l * items}, r = at / ${chunk // 4}, f = at % ${chunk // 4} * 4;
                    % if (chunk * run // 4) % items:
                    if (at < ${chunk * run // 4})
                    % endif
                        *(__local ${T4} *)(tiles + r * ${chunk_row} + f) = u${l};
                }
                % endfor
                barrier(CLK_LOCAL_MEM_FENCE);
                __local const ${ctype} *const block = scores + r0 * ${own_row} + 4 * ty;
                r0 += ${run};
                #pragma unroll 1
                for (int r = 0; r < ${run}; r++) {
                    % for j in N:
                    const ${T4} x${j} = *(__local const ${T4} *)(tiles + r * ${chunk_row} + ${j * other} + 4 * tx);
                    % endfor
                    % for h in H:
                    const ${T4} w${h} = *(__local const ${T4} *)(block + r * ${own_row} + ${h * apart});
                    % endfor
                    % for i in R:
                    % for j in N:
                    o${i}_${j} += w${i // 4}.s${i % 4} * x${j};
                    % endfor
                    % endfor
                }
            }
            }
        }
        }
        % if is_forward:
        % for i in R:
        ${ctype} total${i} = 0;
        % endfor
        <%call expr="share(lambda i: f'sum{i}')" args="h">
                    % for i in C:
                    total${4 * h + i} += part.s${i};
                    % endfor
        </%call>
        % endif
        % for i in R:
        if (own0 + ${at_row[i]} < own_count) {
            const long row = matrix * own_count + own0 + ${at_row[i]};
            % if is_forward:
            const ${ctype} last_factor = total${i} == 0 ? 0 : 1 / total${i};
            if (f0 == 0 && tx == 0)
                out2[row] = total${i} == 0 ? 0 : largest${i} + log(total${i});
            % else:
            const ${ctype} last_factor = ${"p.scale" if has_gradient else 1};
            % endif
            % for j in N:
            {
                const ${index} f = f0 + ${j * other} + 4 * tx;
                __global ${ctype} *const to = out + row * ${features} + f;
                const ${T4} result = o${i}_${j} * last_factor;
                if (f + 4 <= ${features} && (size_t)to % sizeof(${T4}) == 0) {
                    *(__global ${T4} *)to = result;
                } else {
                    % for l in C:
                    if (f + ${l} < ${features})
                        to[${l}] = result.s${l};
                    % endfor
                }
            }
            % endfor
        }
        % endfor
    }
}
