## Attention and its gradients, schedule cpu.
##
## Algorithm   A work-item computes tiles of its result: `own` queries, or own keys for their gradients, are the lanes
##             of all vectors. Blocks of the other axis stream by. Scores of a block are a panel (other, own), computed
##             by the micro-kernels of matrix products from the other operand in place and the own one, packed once. The
##             softmax of a lane needs nothing of another lane. The panel then is an operand of the products that add
##             to the result.
##     forward         own queries: running maximum, sum and result, rescaled when the maximum grows.
##     query_gradient  own queries; probabilities are exp(scores - sums), where sums are the saved logs.
##     key_gradients   own keys; adds over all queries of the heads that share them.
##     gradients       key_gradients that also add to the query's gradient, transposed and kept in the workspace: a
##                     work-item computes all keys of a head. Five products instead of seven.
## Operands    plan.mako; results contiguous.
## Tiling      Tiles of ${"lanes * vectors"} own elements, of which the last has fewer vectors; blocks of `block`.
## NDRange     dimension 0 is an even partition of the tiles; of the heads for `gradients`.
## Workspace   For each work-item: the packed own operands, panels of a block, transposed results.
## Invariants  Rows of a panel that exist for the micro-kernel only repeat the last one and are not read. Own elements
##             past the last are zero when packed, and are not stored.
## Reference   FlashAttention-2 (Dao 2023); online softmax (Milakov and Gimelshein 2018); gemm/microkernel.mako.
<%page args="name, kind, micro, ctype, itype, itemsize, lanes, mr, vectors, block, causal, mask_type, dropout,
             exp"/>
<%
    nr = lanes * vectors
    full_width = f"MIN_VECTOR_WIDTH({8 * itemsize * lanes})"
    V, I, U = f"{ctype}{lanes}", f"{itype}{lanes}", f"uint{lanes}"
    vec = f"{micro}_vec"
    owns_queries = kind in ("forward", "query_gradient")
    is_forward = kind == "forward"
    adds_query = kind == "gradients"
    masked = causal or mask_type
    big = f"({V})(-INFINITY)"
    columns = range(vectors)
%>
// exp(x); zero where that is next to no normal number, or none: processors take long for those.
static inline ${V} ${name}_exp(const ${V} x)
{
    const ${V} least = ${-87 if ctype == "float" else -708};
    return x < least ? (${V})0 : ${exp}(x < least ? least : x);
}

## Calls the micro-kernel of as many vectors as the tile has, for all rows of a product.
##     a, row, col: the operand that is read in place, of `rows` rows; b: a panel; depth: terms of a sum.
static NOINLINE ${full_width} void ${name}_multiply(
    __global const ${ctype} *a, long row, long col, long rows, __global const ${ctype} *b, long width, long depth,
    __global ${ctype} *sums, int accumulate)
{
    for (long r = 0; r < rows; r += ${mr}) {
        const int last = min(${mr}L, rows - r) - 1;
        switch (width / ${lanes}) {
        % for count in range(1, vectors + 1):
        case ${count}:
            ${micro}_multiply${mr}x${2 * count}(
                a + r * row, row, col, last, b, width, depth, sums + r * width, width, accumulate);
            break;
        % endfor
        }
    }
}

static NOINLINE ${full_width} void ${name}_scale(__global ${ctype} *panel, long size, ${ctype} factor)
{
    for (long i = 0; i < size; i += ${lanes})
        *(__global ${vec} *)(panel + i) *= factor;
}

static NOINLINE ${full_width} void ${name}_clear(__global ${ctype} *panel, long size)
{
    for (long i = 0; i < size; i += ${lanes})
        *(__global ${vec} *)(panel + i) = 0;
}

// Stores a transposed result (depth, width) as rows of `depth` elements.
static NOINLINE ${full_width} void ${name}_store(
    __global const ${ctype} *panel, long width, long height, long depth, __global ${ctype} *to)
{
    if (depth % 4 == 0) {
        ${micro}_pack(panel, width, 1, depth, height, to, depth);
        return;
    }
    for (long i = 0; i < height; i++)
        for (long e = 0; e < depth; e++)
            to[i * depth + e] = panel[e * width + i];
}
% if mask_type:

<%
    is_bool = mask_type == "uchar"
    M = I if is_bool else f"{mask_type}{lanes}"  # bytes are widened one by one, which takes less than vectors of bytes
    elements = ", ".join(f"at[places.s{l:x}]" for l in range(lanes))
    whole = f"*(__global const {name}_mask_vec *)at"
    loads = (
        ("lane == 0", f"({M})(*at)"),
        (f"lane == 1 && last == {lanes - 1}", f"{name}_widened({whole})" if is_bool else whole),
    )
%>
% if is_bool:
#if defined(__has_builtin)
#if __has_builtin(__builtin_convertvector)
#define ${name}_widened(m) __builtin_convertvector(m, ${I})  // PoCL's conversion calls a function for each lane
#endif
#endif
#ifndef ${name}_widened
#define ${name}_widened(m) convert_${I}(m)
#endif
% endif
typedef ${mask_type}${lanes} ${name}_mask_vec __attribute__((aligned(${1 if is_bool else itemsize})));
<%def name="mask_rows(load)">
            for (long r = 0; r < rows; r++) {
                __global const ${mask_type} *const at = mask + r * row + j * lane;
                __global ${vec} *const score = (__global ${vec} *)(panel + r * width + j);
                const ${M} m = ${load};
                % if is_bool:
                *score = m != 0 ? *score : ${big};
                % else:
                *score = m == ${big} ? ${big} : *score + m;
                % endif
            }
</%def>
// Applies a mask to a panel of `rows` rows and `height` lanes; `row` and `lane` are the mask's strides.
static NOINLINE ${full_width} void ${name}_mask(
    __global ${ctype} *panel, long width, long rows, long height,
    __global const ${mask_type} *mask, long row, long lane)
{
    for (int j = 0; j < width; j += ${lanes}) {
        const int last = min(${lanes}L, height - j) - 1;
        const long${lanes} places = lane * (long${lanes})(${", ".join(f"min({l}, last)" for l in range(lanes))});
        % for condition, load in loads:
        ${"} else " if loop.index else ""}if (${condition}) {
            ${mask_rows(load)}
        % endfor
        } else {
            ${mask_rows(f"({M})({elements})")}
        }
    }
}
% endif
% if causal:

// Masks keys after the last one of each query. `edge`: last key of lane 0 (own queries) or of row 0, relative to the
// first key of the panel.
static NOINLINE ${full_width} void ${name}_triangle(__global ${ctype} *panel, long width, long rows, long edge)
{
    const ${I} lane = (${I})(${", ".join(map(str, range(lanes)))});
    for (long r = 0; r < rows; r++)
        for (int j = 0; j < width; j += ${lanes}) {
            __global ${vec} *const at = (__global ${vec} *)(panel + r * width + j);
            % if owns_queries:
            const ${itype} limit = clamp(r - edge - j, -${lanes + 1}L, ${lanes + 1}L);
            *at = lane < limit ? ${big} : *at;
            % else:
            const ${itype} limit = clamp(edge + r - j, -${lanes + 1}L, ${lanes + 1}L);
            *at = lane > limit ? ${big} : *at;
            % endif
        }
}
% endif
% if is_forward:

// The softmax of a block: scores become parts of probabilities, without the factor of the sum.
//     state: for each vector of lanes the maximum so far, the sum so far, and the factor of what was added before.
static NOINLINE ${full_width} void ${name}_softmax(
    __global ${ctype} *panel, long width, long rows, __global ${ctype} *state${dropout_parameters()})
{
    for (int j = 0; j < width; j += ${lanes}) {
        const ${V} before = *(__global ${vec} *)(state + j);
        ${V} largest = before, sum = 0;
        for (long r = 0; r < rows; r++) {
            const ${V} s = *(__global ${vec} *)(panel + r * width + j);
            largest = s > largest ? s : largest;
        }
        const ${V} shift = largest == ${big} ? (${V})0 : largest;  // no key so far
        % if dropout:
        ${row_words("query + j")}
        % endif
        for (long r = 0; r < rows; r++) {
            __global ${vec} *const at = (__global ${vec} *)(panel + r * width + j);
            ${V} part = ${name}_exp(*at - shift);
            sum += part;
            % if dropout:
            part = ${is_kept("(uint)(key + r)")} ? part * (${ctype})p->kept : (${V})0;
            % endif
            *at = part;
        }
        const ${V} factor = ${name}_exp(before - shift);
        *(__global ${vec} *)(state + j) = largest;
        *(__global ${vec} *)(state + ${nr} + j) = *(__global ${vec} *)(state + ${nr} + j) * factor + sum;
        *(__global ${vec} *)(state + ${2 * nr} + j) = factor;
    }
}

static NOINLINE ${full_width} void ${name}_rescale(
    __global ${ctype} *panel, long width, long rows, __global const ${ctype} *factors)
{
    for (int j = 0; j < width; j += ${lanes}) {
        const ${V} factor = *(__global const ${vec} *)(factors + j);
        for (long r = 0; r < rows; r++)
            *(__global ${vec} *)(panel + r * width + j) *= factor;
    }
}

// Divides the result by the sums; state becomes the logs of the sums, and their inverses.
static NOINLINE ${full_width} void ${name}_finish(
    __global ${ctype} *panel, long width, long rows, __global ${ctype} *state)
{
    for (int j = 0; j < width; j += ${lanes}) {
        const ${V} largest = *(__global ${vec} *)(state + j), sum = *(__global ${vec} *)(state + ${nr} + j);
        const ${I} is_empty = sum == 0;
        *(__global ${vec} *)(state + j) = is_empty ? (${V})0 : largest + log(sum);
        *(__global ${vec} *)(state + ${2 * nr} + j) = is_empty ? (${V})0 : 1 / sum;
    }
    ${name}_rescale(panel, width, rows, state + ${2 * nr});
}
% else:

// Gradient of the scores of a block: p (g - correction), where the panel has the scores and `gradient` has g, the
// gradient of the probabilities. The panel becomes the probabilities, as the values' gradient needs them.
//     sums, correction: of each lane (own queries), or of each row.
static NOINLINE ${full_width} void ${name}_differentiate(
    __global ${ctype} *panel, __global ${ctype} *gradient, long width, long rows,
    __global const ${ctype} *sums, __global const ${ctype} *correction${dropout_parameters()})
{
    for (int j = 0; j < width; j += ${lanes}) {
        % if owns_queries:
        const ${V} log_sum = *(__global const ${vec} *)(sums + j);
        const ${V} subtracted = *(__global const ${vec} *)(correction + j);
        % if dropout:
        ${row_words("query + j")}
        % endif
        % elif dropout:
        const ${U} keys = (uint)(key + j) + (${U})(${", ".join(map(str, range(lanes)))});
        % endif
        for (long r = 0; r < rows; r++) {
            __global ${vec} *const at = (__global ${vec} *)(panel + r * width + j);
            __global ${vec} *const gradient_at = (__global ${vec} *)(gradient + r * width + j);
            % if not owns_queries:
            const ${ctype} log_sum = sums[r], subtracted = correction[r];
            % endif
            const ${V} score = *at, part = ${name}_exp(score - log_sum);
            ${V} g = *gradient_at, kept_part = part;
            % if dropout:
            % if not owns_queries:
            uint low, high;
            attention_row_uint(head, (uint)(query + r), seed, &low, &high);
            const ${I} is_kept = ${is_kept("keys", "high")};
            % else:
            const ${I} is_kept = ${is_kept("(uint)(key + r)")};
            % endif
            g = is_kept ? g * (${ctype})p->kept : (${V})0;
            kept_part = is_kept ? part * (${ctype})p->kept : (${V})0;
            % endif
            % if masked:
            *gradient_at = score == ${big} ? (${V})0 : part * (g - subtracted);
            % else:
            *gradient_at = part * (g - subtracted);
            % endif
            *at = kept_part;
        }
    }
}
% endif
## Words of the rows of own queries.
<%def name="row_words(first)">
        ${U} low, high;
        attention_row_${U}(head, (uint)(${first}) + (${U})(${", ".join(map(str, range(lanes)))}), seed, &low, &high);
</%def>
<%def name="is_kept(key, high='high')" buffered="True" filter="trim">
convert_${I}(attention_hash_${U}((${U})low, (${U})${high}, (${U})(${key})) >= p->threshold)
</%def>
## The places where the matrices of a head begin; dimensions of a batch's operand: `h` is the head among queries, g that
## of keys.
<%def name="start(x, head='h')" buffered="True" filter="trim">c.${x} + n * p.${x}.batch + ${head} * p.${x}.head</%def>
<%def name="dropout_parameters()" buffered="True" filter="trim">
% if dropout:
, const attention_plan_${ctype} *p, uint head, long query, long key, __global const long *seed
% endif
</%def>
<%def name="dropout_arguments(head, query, key)" buffered="True" filter="trim">
% if dropout:
, &p, (uint)(n * p.heads + ${head}), ${query}, ${key}, seed + c.seed
% endif
</%def>
<%def name="mask_panel(query, key, rows, height)">
                % if mask_type:
                ${name}_mask(panel, width, ${rows}, ${height},
                             mask + ${start("mask")} + (${query}) * p.mask.row + (${key}) * p.mask.col,
                             ${"p.mask.col, p.mask.row" if owns_queries else "p.mask.row, p.mask.col"});
                % endif
                % if causal:
                <% first = f"({query}) + p.offset - ({key})" %>
                % if owns_queries:
                if (${rows} - 1 > ${first})
                % else:
                if (${height} - 1 > ${first})
                % endif
                    ${name}_triangle(panel, width, ${rows}, ${first});
                % endif
</%def>

${full_width} __kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${V})))
void ${name}(attention_plan_${ctype} p, attention_call c, __global const ${ctype} *q, __global const ${ctype} *k,
             __global const ${ctype} *v, __global const ${mask_type or "uchar"} *mask, __global const long *seed,
             __global const ${ctype} *sums, __global const ${ctype} *correction, __global const ${ctype} *grad,
             __global ${ctype} *out, __global ${ctype} *out2, __global ${ctype} *out3, __global ${ctype} *workspace)
{
    const long size_e = (p.features + ${mr - 1}) / ${mr} * ${mr * nr};
    const long size_v = (p.values + ${mr - 1}) / ${mr} * ${mr * nr};
    __global ${ctype} *panel = workspace + p.workspace_size * get_global_id(0);
    __global ${ctype} *const state = panel + ${(block + mr) * nr};
    % if is_forward:
    __global ${ctype} *const own = state + ${4 * nr};
    __global ${ctype} *const result = own + size_e;
    % else:
    __global ${ctype} *const gradient = state + ${4 * nr};
    __global ${ctype} *const own = gradient + ${(block + mr) * nr};
    __global ${ctype} *const own_v = own + size_e;
    __global ${ctype} *const result = own_v + size_v;
    % endif
    % if owns_queries:
    const long tiles = (p.queries + ${nr - 1}) / ${nr}, count = p.batch * p.heads * tiles;
    const long end = partition_begin(count, 1, get_global_id(0) + 1, get_global_size(0));
    for (long task = partition_begin(count, 1, get_global_id(0), get_global_size(0)); task < end; task++) {
        const long i0 = task % tiles * ${nr}, matrix = task / tiles, n = matrix / p.heads, h = matrix % p.heads;
        const long g = h / p.group;
        const long height = min(${nr}L, p.queries - i0), width = (height + ${lanes - 1}) / ${lanes} * ${lanes};
        const long keys = ${"clamp(i0 + height + p.offset, 0L, p.keys)" if causal else "p.keys"};
        __global const ${ctype} *const k_head = k + ${start("k", "g")}, *const v_head = v + ${start("v", "g")};
        ${micro}_pack(q + ${start("q")} + i0 * p.q.row, p.q.row, p.q.col, height, p.features, own, width);
        ${name}_scale(own, width * p.features, p.scale);
        % if is_forward:
        for (int j = 0; j < ${nr}; j++) {
            state[j] = -INFINITY;
            state[${nr} + j] = 0;
        }
        if (!keys)
            ${name}_clear(result, width * p.values);
        % else:
        ${micro}_pack(
            grad + ${start("grad")} + i0 * p.grad.row, p.grad.row, p.grad.col, height, p.values, own_v, width);
        for (int j = 0; j < width; j++) {
            const long i = i0 + min((long)j, height - 1);
            state[j] = sums[${start("sums")} + i * p.sums.row];
            state[${nr} + j] = correction[${start("correction")} + i * p.correction.row];
        }
        if (!keys)
            ${name}_clear(result, width * p.features);
        % endif
        for (long j0 = 0; j0 < keys; j0 += ${block}) {
            const long rows = min(${block}L, keys - j0);
            ${name}_multiply(k_head + j0 * p.k.row, p.k.row, p.k.col, rows, own, width, p.features, panel, 0);
            ${mask_panel("i0", "j0", "rows", "height")}
            % if is_forward:
            ${name}_softmax(panel, width, rows, state${dropout_arguments("h", "i0", "j0")});
            if (j0)
                ${name}_rescale(result, width, p.values, state + ${2 * nr});
            ${name}_multiply(v_head + j0 * p.v.row, p.v.col, p.v.row, p.values, panel, width, rows, result, j0 > 0);
            % else:
            ${name}_multiply(v_head + j0 * p.v.row, p.v.row, p.v.col, rows, own_v, width, p.values, gradient, 0);
            ${name}_differentiate(panel, gradient, width, rows, state, state + ${nr}${
                dropout_arguments("h", "i0", "j0")});
            ${name}_multiply(
                k_head + j0 * p.k.row, p.k.col, p.k.row, p.features, gradient, width, rows, result, j0 > 0);
            % endif
        }
        const long row = matrix * p.queries + i0;
        % if is_forward:
        ${name}_finish(result, width, p.values, state);
        ${name}_store(result, width, height, p.values, out + row * p.values);
        for (int j = 0; j < height; j++)
            out2[row + j] = state[j];
        % else:
        ${name}_scale(result, width * p.features, p.scale);
        ${name}_store(result, width, height, p.features, out + row * p.features);
        % endif
    }
    % else:
    const long shared = p.heads / p.group, tiles = (p.keys + ${nr - 1}) / ${nr};
    % if adds_query:
    const long query_tiles = (p.queries + ${nr - 1}) / ${nr};
    const long count = p.batch * shared;
    % else:
    const long count = p.batch * shared * tiles;
    % endif
    __global ${ctype} *const result_v = result + size_e;
    % if adds_query:
    __global ${ctype} *const turned = result_v + size_v;
    __global ${ctype} *const result_q = turned + ${nr * nr};
    % endif
    const long end = partition_begin(count, 1, get_global_id(0) + 1, get_global_size(0));
    for (long task = partition_begin(count, 1, get_global_id(0), get_global_size(0)); task < end; task++) {
        % if adds_query:
        const long matrix = task;
        ${name}_clear(result_q, p.group * query_tiles * size_e);
        for (long tile = 0; tile < tiles; tile++) {
        % else:
        const long matrix = task / tiles, tile = task % tiles;
        {
        % endif
            const long j0 = tile * ${nr}, n = matrix / shared, g = matrix % shared;
            const long height = min(${nr}L, p.keys - j0), width = (height + ${lanes - 1}) / ${lanes} * ${lanes};
            __global const ${ctype} *const k_tile = k + ${start("k", "g")} + j0 * p.k.row;
            ${micro}_pack(k_tile, p.k.row, p.k.col, height, p.features, own, width);
            ${name}_scale(own, width * p.features, p.scale);
            ${micro}_pack(v + ${start("v", "g")} + j0 * p.v.row, p.v.row, p.v.col, height, p.values, own_v, width);
            ${name}_clear(result, width * p.features);
            ${name}_clear(result_v, width * p.values);
            for (long h = g * p.group; h < (g + 1) * p.group; h++) {
                % if causal:
                const long first = max(0L, j0 - p.offset) / ${nr} * ${nr};
                % else:
                const long first = 0;
                % endif
                for (long i0 = first; i0 < p.queries; i0 += ${block}) {
                    const long rows = min(${block}L, p.queries - i0);
                    __global const ${ctype} *const q_block = q + ${start("q")} + i0 * p.q.row;
                    __global const ${ctype} *const grad_block = grad + ${start("grad")} + i0 * p.grad.row;
                    __global ${ctype} *const block_sums = state, *const block_correction = state + ${block};
                    for (int r = 0; r < rows; r++) {
                        block_sums[r] = sums[${start("sums")} + (i0 + r) * p.sums.row];
                        block_correction[r] = correction[${start("correction")} + (i0 + r) * p.correction.row];
                    }
                    ${name}_multiply(q_block, p.q.row, p.q.col, rows, own, width, p.features, panel, 0);
                    ${mask_panel("i0", "j0", "rows", "height")}
                    ${name}_multiply(grad_block, p.grad.row, p.grad.col, rows, own_v, width, p.values, gradient, 0);
                    ${name}_differentiate(panel, gradient, width, rows, block_sums, block_correction${
                        dropout_arguments("h", "i0", "j0")});
                    ${name}_multiply(
                        grad_block, p.grad.col, p.grad.row, p.values, panel, width, rows, result_v, 1);
                    ${name}_multiply(q_block, p.q.col, p.q.row, p.features, gradient, width, rows, result, 1);
                    % if adds_query:
                    for (long r = 0; r < rows; r += ${nr}) {
                        const long queries = min(${nr}L, rows - r);
                        const long query_width = (queries + ${lanes - 1}) / ${lanes} * ${lanes};
                        ${micro}_pack(gradient + r * width, width, 1, queries, height, turned, query_width);
                        ${name}_multiply(
                            k_tile, p.k.col, p.k.row, p.features, turned, query_width, height,
                            result_q + ((h - g * p.group) * query_tiles + (i0 + r) / ${nr}) * size_e, 1);
                    }
                    % endif
                }
            }
            const long row = matrix * p.keys + j0;
            ${name}_scale(result, width * p.features, p.scale);
            ${name}_store(result, width, height, p.features, out2 + row * p.features);
            ${name}_store(result_v, width, height, p.values, out3 + row * p.values);
        }
        % if adds_query:
        for (long h = 0; h < p.group; h++)
            for (long tile = 0; tile < query_tiles; tile++) {
                const long i0 = tile * ${nr}, height = min(${nr}L, p.queries - i0);
                const long width = (height + ${lanes - 1}) / ${lanes} * ${lanes};
                __global ${ctype} *const from = result_q + (h * query_tiles + tile) * size_e;
                ${name}_scale(from, width * p.features, p.scale);
                ${name}_store(from, width, height, p.features,
                              out + ((matrix * p.group + h) * p.queries + i0) * p.features);
            }
        % endif
    }
    % endif
}
