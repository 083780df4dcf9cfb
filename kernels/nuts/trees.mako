## Algorithm   Trees of the No-U-Turn sampler: what is done for each chain between two gradients. A leaf is added to the
##             tree of a chain that has not made its draws, and the chain moves to the next leaf. A new tree follows a
##             finished one. The trees are those of pytensor_cl/pymc/trees.py, step by step.
##             Random numbers are functions of the key, the chain, the number of its tree and the leaf: they do not
##             depend on when the host polls, or which chains are computed.
## Operands    gradient[rows][size], log_density[rows], evaluated[rows][size]: of and for the function of the gradient;
##             row r is chain index[r]. The first two may have any strides. vectors[chains][slots][size]: the slots are
##             below. records[ring][chains][width]: of a draw the position, the gradient if keeps_gradients, and the
##             statistics in the order of pytensor_cl.routines.nuts.STATISTICS; draw d is in row d % ring. A chain with
##             `most` draws is idle. active: rows from this one on are not chains of their own, and only fill the array.
## NDRange     Schedule simt: a work-group of `group` work-items for each row. Schedule cpu: work-items share the rows.
## Workspace   Schedule simt: two sums for each work-item in local memory, and a half.
## Invariants  A work-item of schedule simt writes those elements of vectors that it alone reads. Conditions around
##             barriers are the same for all work-items of a group. A row is of one chain, and no chain has two below
##             `active`. The energy error is a difference of kinetic energies less one of log densities, so that in
##             float32 large terms that are the same in both do not round.
## Reference   M. D. Hoffman, A. Gelman, The No-U-Turn sampler, JMLR 15 (2014); M. Betancourt, A conceptual
##             introduction to Hamiltonian Monte Carlo (2017); D. Phan, N. Pradhan, M. Jankowiak, Composable effects for
##             flexible and accelerated probabilistic programming in NumPyro (2019).
<%page args="name, schedule, real_dtype, dtype, group, most_error, parallel_lanes"/>\
<%namespace name="workgroup" file="/common/workgroup.mako"/>\
<%include file="/common/partition.mako"/>\
<%include file="/random/philox_block.mako"/>\
<%!
    import math

    from pytensor_cl.codegen.dtypes import ctype, literal
%>\
<%
    R, E = ctype(real_dtype), ctype(dtype)
    R2, V, lanes = f"{R}2", f"{R}{parallel_lanes}", parallel_lanes
    LOG_2, PERIOD = literal(math.log(2), real_dtype), literal(2 * math.pi, real_dtype)
    is_simt = schedule == "simt"
    each = f"for (int k = item; k < size; k += {group})" if is_simt else "for (int k = 0; k < size; ++k)"
    skip = "return" if is_simt else "continue"
    total = f"{name}_total({{}}, scratch, item)".format if is_simt else "{}".format
%>\
/* Tasks of a launch. */
#define ${name}_ADVANCE 0
#define ${name}_BEGIN 1  /* all trees begin anew at the last draws */
#define ${name}_PLACE 2  /* positions are copied for another index */

/* Slots: vectors of a chain. A pair is of the backward and the forward end, or of the tree and its newest subtree. */
#define ${name}_POSITION 0
#define ${name}_MOMENTUM 1
#define ${name}_END_POSITION 2
#define ${name}_END_MOMENTUM 4
#define ${name}_END_GRADIENT 6
#define ${name}_CHOSEN_POSITION 8
#define ${name}_CHOSEN_GRADIENT 10
#define ${name}_MARKS 12  /* position and momentum of the first leaf of each unfinished part of the newest subtree */

/* Numbers of a chain. */
typedef struct {
    ${R} log_weight[2], density[2], error[2];  /* of the tree and its newest subtree; the latter of the chosen states */
    ${R} kinetic;                              /* at the start of the tree */
    ${R} step;                                 /* negative if the newest subtree grows backward */
    ${R} acceptance, worst;                    /* the sum over the leaves, and the largest energy error */
    uint leaves, leaf, depth, trees;           /* of the tree, of its newest subtree; subtrees; trees of the run */
} ${name}_chain;

/* A number between 0 and 1. */
static inline ${R} ${name}_unit(const uint low, const uint high)
{
% if R == "double":
    return ((double)(((ulong)high << 32 | low) >> 11) + 0.5) * (1.0 / 9007199254740992.0);
% else:
    return ((float)high + 0.5f) * (1.0f / 4294967296.0f);  /* of 32 bits, so that small numbers are fine */
% endif
}

/* Two normal numbers (Box and Muller 1958). */
static inline ${R2} ${name}_normals(const uint2 key, const ulong stream, const uint block)
{
    const uint4 words = philox_block(key, stream, block);
    const ${R} radius = sqrt(-2 * log(${name}_unit(words.x, words.y))), turns = 2 * ${name}_unit(words.z, words.w);
    return (${R2})(radius * cospi(turns), radius * sinpi(turns));
}

static inline ${R} ${name}_log_add(const ${R} a, const ${R} b)
{
    return a == b ? a + ${LOG_2} : max(a, b) + log1p(exp(-fabs(a - b)));
}

static inline void ${name}_copy(__global const ${R} *source, __global ${R} *target, const int size, const int item)
{
    ${each} target[k] = source[k];
}

static inline void ${name}_take(__global const ${E} *source, const long stride, __global ${R} *target, const int size,
    const int item)
{
    ${each} target[k] = source[k * stride];
}
% if is_simt:

/* The sum over the work-items of the group. */
static inline ${R2} ${name}_total(${R2} value, __local ${R2} *scratch, const int item)
{
    barrier(CLK_LOCAL_MEM_FENCE);  /* until the last sum has been read */
    ${workgroup.row_reduce("value", R2, [(".x", real_dtype), (".y", real_dtype)], "{a} + {b}", group,
        threads=str(group), lane="item", slot="0", slots="1")}
    return value;
}
% endif

/* The work-item's part of the sum of squared momenta, in units of the mass matrix. */
static inline ${R} ${name}_squares(__global const ${R} *momentum, __global const ${R} *inverse_mass, const int size,
    const int item)
{
    ${R} sum = 0;
% if is_simt:
    ${each} sum += inverse_mass[k] * momentum[k] * momentum[k];
% else:
    ${V} sums = 0;
    int k = 0;
    for (; k + ${lanes} <= size; k += ${lanes}) {
        const ${V} m = vload${lanes}(0, momentum + k);
        sums += vload${lanes}(0, inverse_mass + k) * m * m;
    }
    for (; k < size; ++k) sum += inverse_mass[k] * momentum[k] * momentum[k];
    % for lane in range(lanes):
    sum += sums.s${f"{lane:x}"};
    % endfor
% endif
    return sum;
}

/* The work-item's part of the products of the way from one end of a trajectory to another one with the momenta there.
   The generalised criterion of Betancourt (2017) compares the momenta with the integral of the velocity. */
static inline ${R2} ${name}_approach(__global const ${R} *first, __global const ${R} *first_momentum,
    __global const ${R} *last, __global const ${R} *last_momentum, const int size, const int item)
{
    ${R2} sum = 0;
% if is_simt:
    ${each} sum += (last[k] - first[k]) * (${R2})(first_momentum[k], last_momentum[k]);
% else:
    ${V} at_first = 0, at_last = 0;
    int k = 0;
    for (; k + ${lanes} <= size; k += ${lanes}) {
        const ${V} way = vload${lanes}(0, last + k) - vload${lanes}(0, first + k);
        at_first += way * vload${lanes}(0, first_momentum + k);
        at_last += way * vload${lanes}(0, last_momentum + k);
    }
    for (; k < size; ++k) sum += (last[k] - first[k]) * (${R2})(first_momentum[k], last_momentum[k]);
    % for lane in range(lanes):
    sum += (${R2})(at_first.s${f"{lane:x}"}, at_last.s${f"{lane:x}"});
    % endfor
% endif
    return sum;
}

__kernel __attribute__((reqd_work_group_size(${group if is_simt else 1}, 1, 1)))
void ${name}(const int task, const uint2 key, __global const ${E} *restrict gradient, const long gradient_at,
    const long slope_row, const long slope_step, __global const ${E} *restrict log_density, const long log_density_at,
    const long density_step, __global ${E} *restrict evaluated, __global const int *restrict index, const int rows,
    const int active, const int all_chains, const int size, const int slots, __global ${R} *vectors,
    __global ${name}_chain *states, __global ${R} *start_position, __global ${R} *start_gradient,
    __global ${R} *start_density, __global int *n_draws, __global ${R} *records, const int ring,
    const int most, const int keeps_gradients, __global const ${R} *restrict inverse_mass,
    __global const uchar *restrict is_periodic, const ${R} step_size, const int max_depth)
{
% if is_simt:
    const int item = get_local_id(0), row = get_group_id(0);
    ${workgroup.row_scratch(R2, "scratch", group)}
% else:
    const int item = 0;
    const int last_row = partition_begin(rows, 1, get_global_id(0) + 1, get_global_size(0));
    for (int row = partition_begin(rows, 1, get_global_id(0), get_global_size(0)); row < last_row; ++row)
% endif
    {
        const int chain = index[row];
        __global ${R} *const all = vectors + (ulong)chain * slots * size;
        __global ${R} *const position = all + ${name}_POSITION * (ulong)size;
        __global ${R} *const momentum = all + ${name}_MOMENTUM * (ulong)size;
        __global ${E} *const next = evaluated + (ulong)row * size;
        if (task == ${name}_PLACE) {
            ${each} next[k] = position[k];
            ${skip};
        }
        int draws = task == ${name}_BEGIN ? 0 : n_draws[chain];
        if (row >= active || draws >= most) ${skip};
        __global ${R} *const start = start_position + (ulong)chain * size;
        __global ${R} *const start_slope = start_gradient + (ulong)chain * size;
        __global const ${E} *const slope = gradient + gradient_at + row * slope_row;
        ${name}_chain t = states[chain];
        ${R} density = start_density[chain];
        int ends = task == ${name}_BEGIN, is_whole = 0, is_diverging = 0;
        if (task == ${name}_ADVANCE) {
            ## The end of a leapfrog step: the leaf is added to the newest subtree, and a finished subtree to the tree.
            const ${R} leaf_density = log_density[log_density_at + row * density_step];
            ${each} momentum[k] += t.step / 2 * slope[k * slope_step];
            ${R2} partial = (${R2})(${name}_squares(momentum, inverse_mass, size, item), 0);
            partial = ${total("partial")};
            ${R} error = (partial.x / 2 - t.kinetic) - (leaf_density - density);
            if (isnan(error)) error = INFINITY;
            ++t.leaves;
            t.acceptance += exp(min(-error, (${R})0));
            if (fabs(error) > fabs(t.worst)) t.worst = error;
            is_diverging = error > ${literal(most_error, real_dtype)};
            int turns = 0, ends_approach = 0;
            const int forward = t.step > 0;
            if (!is_diverging) {
                const uint4 words = philox_block(key, (ulong)t.trees << 32 | (uint)chain, 0x80000000U | t.leaves);
                t.log_weight[1] = ${name}_log_add(t.log_weight[1], -error);
                /* The first leaf is always chosen: neither a number that rounds to 1 nor an infinite weight leaves what
                   was chosen before. */
                if (!(log(${name}_unit(words.x, words.y)) > -error - t.log_weight[1])) {
                    ${name}_copy(position, all + (${name}_CHOSEN_POSITION + 1) * (ulong)size, size, item);
                    ${name}_take(slope, slope_step, all + (${name}_CHOSEN_GRADIENT + 1) * (ulong)size, size, item);
                    t.density[1] = leaf_density;
                    t.error[1] = error;
                }
                const uint leaf = t.leaf++;
                is_whole = t.leaf == 1U << t.depth;
                /* The place of a part's first leaf: the number of larger parts that are not finished. */
                const int mark = popcount(leaf >> 1);
                __global ${R} *const marks = all + (${name}_MARKS + 2 * mark) * (ulong)size;
                if (!(leaf & 1)) {
                    ${name}_copy(position, marks, size, item);
                    ${name}_copy(momentum, marks + size, size, item);
                }
                /* The leaf is the last one of as many parts as its number has ones at the end; then, of the tree. */
                const int parts = popcount(leaf & ~(leaf + 1));
                for (int part = 0; part < parts + is_whole && !turns; ++part) {
                    const int is_tree = part == parts;
                    __global const ${R} *first = marks - (is_tree ? 0 : part) * 2L * size;
                    __global const ${R} *first_momentum = first + size;
                    if (is_tree) {
                        first = all + (${name}_END_POSITION + !forward) * (ulong)size;
                        first_momentum = all + (${name}_END_MOMENTUM + !forward) * (ulong)size;
                    }
                    partial = ${name}_approach(first, first_momentum, position, momentum, size, item);
                    partial = ${total("partial")};
                    if (!forward) partial = -partial;
                    const int approach = !(partial.x > 0 && partial.y > 0);
                    if (is_tree) ends_approach = approach;
                    else turns = approach;
                }
                is_whole = is_whole && !turns;
                if (is_whole) {
                    ${name}_copy(position, all + (${name}_END_POSITION + forward) * (ulong)size, size, item);
                    ${name}_copy(momentum, all + (${name}_END_MOMENTUM + forward) * (ulong)size, size, item);
                    ${name}_take(slope, slope_step, all + (${name}_END_GRADIENT + forward) * (ulong)size, size, item);
                    /* States far from the start are preferred: the weight of the new half against the old one's. */
                    if (log(${name}_unit(words.z, words.w)) < t.log_weight[1] - t.log_weight[0]) {
                        __global ${R} *const chosen = all + ${name}_CHOSEN_POSITION * (ulong)size;
                        __global ${R} *const chosen_slope = all + ${name}_CHOSEN_GRADIENT * (ulong)size;
                        ${name}_copy(chosen + size, chosen, size, item);
                        ${name}_copy(chosen_slope + size, chosen_slope, size, item);
                        t.density[0] = t.density[1];
                        t.error[0] = t.error[1];
                    }
                    t.log_weight[0] = ${name}_log_add(t.log_weight[0], t.log_weight[1]);
                }
            }
            ends = is_diverging || turns || ends_approach;
            t.depth += is_whole || ends;
            /* The tree ends, and the subtree after which it does is not `is_whole` any more: 2 is the largest depth. */
            if (!ends && t.depth >= (uint)max_depth) ends = 2;
        }
% if is_simt:
        /* All work-items have read what the first one writes. */
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
% endif
        if (ends && task == ${name}_ADVANCE) {
            ## The chosen state is the chain's draw, which is stored.
            const ${R} energy = t.kinetic - density;  /* at the start */
            const int width = size * (1 + keeps_gradients) + 10;
            __global ${R} *const record = records + ((ulong)(draws % ring) * all_chains + chain) * width;
            __global const ${R} *const chosen = all + ${name}_CHOSEN_POSITION * (ulong)size;
            __global const ${R} *const chosen_slope = all + ${name}_CHOSEN_GRADIENT * (ulong)size;
            ${each} {
                ${R} value = chosen[k];
                /* The density is the same a period further on, and chains must not drift apart by whole periods. */
                if (is_periodic[k])
                    value -= ${PERIOD} * rint(value / ${PERIOD});
                start[k] = record[k] = value;
                start_slope[k] = chosen_slope[k];
                if (keeps_gradients) record[size + k] = chosen_slope[k];
            }
            density = t.density[0];
            ++draws;
            if (item == 0) {
                __global ${R} *const statistics = record + size * (1 + keeps_gradients);
                start_density[chain] = density;
                statistics[0] = t.acceptance / t.leaves;
                statistics[1] = is_diverging;
                statistics[2] = energy + t.error[0];
                statistics[3] = t.error[0];
                statistics[4] = density;
                statistics[5] = t.worst;
                statistics[6] = t.leaves;
                statistics[7] = ends == 2;
                statistics[8] = fabs(t.step);
                statistics[9] = t.depth;
            }
        }
        ## After a tree the next one begins, with new momenta; after a subtree the next one, at an end chosen at random;
        ## and the chain moves to the next leaf: the first half of a leapfrog step's kick, and its drift.
        const ulong stream = (ulong)(t.trees + (ends != 0)) << 32 | (uint)chain;
        ${R2} drawn = 0;
        if (ends) {
% if is_simt:
            ${each} {
                const ${R2} two = ${name}_normals(key, stream, k >> 1);
                momentum[k] = k & 1 ? two.y : two.x;
            }
% else:
            for (int k = 0; k < size; k += 2) {
                const ${R2} two = ${name}_normals(key, stream, k >> 1);
                momentum[k] = two.x;
                if (k + 1 < size) momentum[k + 1] = two.y;
            }
% endif
            __global ${R} *const end = all + ${name}_END_POSITION * (ulong)size;
            __global ${R} *const end_momentum = all + ${name}_END_MOMENTUM * (ulong)size;
            __global ${R} *const end_slope = all + ${name}_END_GRADIENT * (ulong)size;
            __global ${R} *const chosen = all + ${name}_CHOSEN_POSITION * (ulong)size;
            __global ${R} *const chosen_slope = all + ${name}_CHOSEN_GRADIENT * (ulong)size;
            ${each} {
                const ${R} normal = momentum[k];
                drawn.x += normal * normal;
                end_momentum[k] = end_momentum[size + k] = normal / sqrt(inverse_mass[k]);
                end[k] = end[size + k] = chosen[k] = start[k];
                end_slope[k] = end_slope[size + k] = chosen_slope[k] = start_slope[k];
            }
        }
        drawn = ${total("drawn")};
        if (ends) {
            t.kinetic = drawn.x / 2;
            t.density[0] = density;
            t.error[0] = t.log_weight[0] = t.acceptance = t.worst = 0;
            t.leaves = t.depth = 0;
            t.step = step_size;
            ++t.trees;
        }
        if (ends || is_whole) {
            const int side = philox_block(key, stream, 0x40000000U | t.leaves).x & 1;
            t.step = side ? fabs(t.step) : -fabs(t.step);
            t.leaf = 0;
            t.log_weight[1] = -INFINITY;
            __global const ${R} *const end = all + (${name}_END_POSITION + side) * (ulong)size;
            __global const ${R} *const end_momentum = all + (${name}_END_MOMENTUM + side) * (ulong)size;
            __global const ${R} *const end_slope = all + (${name}_END_GRADIENT + side) * (ulong)size;
            ${each} {
                const ${R} kicked = end_momentum[k] + t.step / 2 * end_slope[k];
                const ${R} moved = end[k] + t.step * inverse_mass[k] * kicked;
                momentum[k] = kicked;
                position[k] = moved;
                next[k] = moved;
            }
        } else {
            ${each} {
                const ${R} kicked = momentum[k] + t.step / 2 * slope[k * slope_step];
                const ${R} moved = position[k] + t.step * inverse_mass[k] * kicked;
                momentum[k] = kicked;
                position[k] = moved;
                next[k] = moved;
            }
        }
        if (item == 0) {
            states[chain] = t;
            n_draws[chain] = draws;
        }
    }
}
