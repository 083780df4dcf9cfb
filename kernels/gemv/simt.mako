## Matrix-vector product, schedule simt: o = alpha * A @ x + beta * y.
##
## Algorithm   Work-items are in two dimensions: `width` beside each other along the contiguous dimension of A, the
##             others across it. <name>_rows, for contiguous rows: a work-item has parts of several rows, whose products
##             with one part of x are in flight at once. <name>_long, for few long rows: it has several parts of one
##             row. <name>_col, for contiguous columns: several elements of each column beside each other. What the
##             work-items of a row have is summed in local memory.
## Operands    A (m, k), x (k), y and o (m), any strides; plan.mako. Vectors of `lanes` elements are loaded if strides
##             (p.is_vector) and addresses allow it.
## NDRange     dimension 0 loops over rows, group 1 is the part of k.
## Workspace   Partial (split_k, m), if k is split.
## Invariants  work-items of a group take the same path to each barrier. Sums have one order, the same for each row.
<%page args="name, ctype, wide, group, itemsize, lanes, rows, has_alpha, has_y, call"/>
<%namespace name="common" file="/gemv/common.mako"/>
<%namespace name="padding" file="/common/bank_padding.mako"/>
<%!
    from pytensor_cl.codegen.local_memory import padded_size
%>
<%include file="/gemv/store.mako"
          args="name=name, ctype=ctype, wide=wide, has_alpha=has_alpha, has_y=has_y, call=call"/>
<%
    vector, wide_vector, wide_size = f"{ctype}{lanes}", f"{wide}{lanes}", max(4, itemsize)
    R, U = range(rows), range(4)
%>
static inline ${wide_vector} ${name}_load(__global const ${ctype} *p)
{
    return convert_${wide_vector}(*(__global const ${vector} *)p);
}

static inline ${wide} ${name}_fold(const ${wide_vector} v)
{
    return ${"(v.s0 + v.s1) + (v.s2 + v.s3)" if lanes == 4 else "v.s0 + v.s1"};
}

<%def name="begin(variant)">
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_${variant}(${common.parameters()})
{
    const int item = get_local_id(0), width = (int)p.width, slots = ${group} / width;
    const int lane = item % width, slot = item / width;
    const long part = ${"0" if variant == "rows" else "get_group_id(1)"};
    % if variant != "rows":
    const long k_begin = partition_begin(p.k, 8, part, p.split_k);
    const long k_end = partition_begin(p.k, 8, part + 1, p.split_k);
    % endif
    __global const ${ctype} *const a = A + s.a + p.a_start;
    __global const ${ctype} *const x = X + s.x + p.x_start;
    ${common.read_scalars()}
</%def>

<%def name="begin_rows()">
    const int is_vector = p.is_vector && ((size_t)a | (size_t)x) % sizeof(${vector}) == 0;
</%def>

${begin("rows")}
    __local ${wide} sums[${padded_size(group * rows, wide_size)}];
    ${begin_rows()}
    const int count = slots * ${rows}, vector_end = is_vector ? (int)p.k / ${lanes} * ${lanes} : 0;
    for (long i0 = get_group_id(0) * (long)count; i0 < p.m; i0 += get_num_groups(0) * (long)count) {
        % for r in R:
        __global const ${ctype} *const a${r} = a + min(i0 + ${r} * slots + slot, p.m - 1) * p.a_row;
        ${wide} sum${r} = 0;
        % endfor
        if (is_vector) {
            % for r in R:
            ${wide_vector} v${r} = 0;
            % endfor
            #pragma unroll 1
            for (int k = lane * ${lanes}; k < vector_end; k += width * ${lanes}) {
                const ${wide_vector} factor = ${name}_load(x + k);
                % for r in R:
                v${r} += ${name}_load(a${r} + k) * factor;
                % endfor
            }
            % for r in R:
            sum${r} = ${name}_fold(v${r});
            % endfor
        }
        #pragma unroll 1
        for (int k = vector_end + lane; k < p.k; k += width) {
            const long at = k * p.a_col;
            const ${wide} factor = x[k * p.x_step];
            % for r in R:
            sum${r} += (${wide})a${r}[at] * factor;
            % endfor
        }
        % for r in R:
        sums[${padding.at(f"{r * group} + item", wide_size)}] = sum${r};
        % endfor
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int e = item; e < count && i0 + e < p.m; e += ${group}) {
            ${wide} sum = 0;
            for (int w = e * width; w < (e + 1) * width; ++w)
                sum += sums[${padding.at("w", wide_size)}];
            ${common.store("i0 + e", "sum")}
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

${begin("long")}
    __local ${wide} sums[${group}];
    ${begin_rows()}
    const long vector_end = is_vector ? k_begin + (k_end - k_begin) / ${lanes} * ${lanes} : k_begin;
    for (long i0 = get_group_id(0) * (long)slots; i0 < p.m; i0 += get_num_groups(0) * (long)slots) {
        __global const ${ctype} *const row = a + min(i0 + slot, p.m - 1) * p.a_row;
        ${wide} sum = 0;
        if (is_vector) {
            % for u in U:
            ${wide_vector} v${u} = 0;
            % endfor
            const int step = width * ${lanes};
            __global const ${ctype} *left = row + k_begin + lane * ${lanes}, *right = x + k_begin + lane * ${lanes};
            long count = (vector_end - k_begin) / ${lanes} - lane;
            #pragma unroll 1
            for (; count > 3 * width; count -= 4 * width) {
                % for u in U:
                const ${wide_vector} a${u} = ${name}_load(left), x${u} = ${name}_load(right);
                left += step;
                right += step;
                % endfor
                % for u in U:
                v${u} += a${u} * x${u};
                % endfor
            }
            #pragma unroll 1
            for (; count > 0; count -= width, left += step, right += step)
                v0 += ${name}_load(left) * ${name}_load(right);
            sum = ${name}_fold((v0 + v1) + (v2 + v3));
        }
        % for u in U:
        ${wide} s${u} = 0;
        % endfor
        const long row_step = width * p.a_col, x_step = width * p.x_step;
        __global const ${ctype} *left = row + (vector_end + lane) * p.a_col;
        __global const ${ctype} *right = x + (vector_end + lane) * p.x_step;
        long count = k_end - vector_end - lane;
        #pragma unroll 1
        for (; count > 3 * width; count -= 4 * width) {
            % for u in U:
            const ${wide} a${u} = *left, x${u} = *right;
            left += row_step;
            right += x_step;
            % endfor
            % for u in U:
            s${u} += a${u} * x${u};
            % endfor
        }
        #pragma unroll 1
        for (; count > 0; count -= width, left += row_step, right += x_step)
            s0 += (${wide})*left * *right;
        sums[item] = sum + ((s0 + s1) + (s2 + s3));
        for (int distance = width / 2; distance; distance /= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            if (lane < distance)
                sums[item] += sums[item + distance];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane == 0 && i0 + slot < p.m) {
            ${common.store("i0 + slot", "sums[item]")}
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

## Adds up the columns of a work-item, of which `load` gives the elements that are its own.
<%def name="add_columns(kind, load, sum)">
            ${kind} ${", ".join(f"v{u} = 0" for u in U)};
            __global const ${ctype} *right = x + (k_begin + slot) * p.x_step;
            long count = k_end - k_begin - slot;
            #pragma unroll 1
            for (; count > 3 * slots; count -= 4 * slots) {
                % for u in U:
                const ${kind} a${u} = ${load.format("column")};
                const ${wide} x${u} = *right;
                column += step;
                right += x_step;
                % endfor
                % for u in U:
                v${u} += a${u} * x${u};
                % endfor
            }
            #pragma unroll 1
            for (; count > 0; count -= slots, column += step, right += x_step)
                v0 += ${load.format("column")} * (${wide})*right;
            ${sum} = (v0 + v1) + (v2 + v3);
</%def>
${begin("col")}
    __local ${wide_vector} sums[${group}];
    const int is_vector = p.is_vector && (size_t)a % sizeof(${vector}) == 0;
    const int beside = is_vector ? ${lanes} : 1;
    const long tile = (long)width * beside, step = slots * p.a_col, x_step = slots * p.x_step;
    for (long i0 = get_group_id(0) * tile; i0 < p.m; i0 += get_num_groups(0) * tile) {
        const long i = i0 + lane * beside;
        __global const ${ctype} *column = a + i * p.a_row + (k_begin + slot) * p.a_col;
        ${wide_vector} sum = 0;
        if (i < p.m && is_vector) {
            ${add_columns(wide_vector, name + "_load({})", "sum")}
        } else if (i < p.m) {
            ${add_columns(wide, "(" + wide + ")*({})", "sum.s0")}
        }
        sums[item] = sum;
        for (int distance = ${group // 2}; distance >= width; distance /= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            if (item < distance)
                sums[item] += sums[item + distance];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int e = item; e < tile && i0 + e < p.m; e += ${group}) {
            ${common.store("i0 + e", f"((__local {wide} *)sums)[e * ({lanes} / beside)]")}
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
