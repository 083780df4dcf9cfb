## What the kernels of kernels/gemv/pair.mako are made of. The defs see its arguments.
<%!
    from pytensor_cl.codegen.dtypes import ctype as ctype_of
    SCALARS = "alpha", "beta", "alpha_t", "beta_t"
%>
<%namespace name="parts" file="/rowwise/common.mako"/>

<%def name="declarations()">
typedef struct {  // steps in elements; `padded` is k rounded up to whole vectors
    long n, k, padded, block, items, scratch, a_row, a_col, x_step, y_step, yt_step, o_step;
    long step[${max(1, len(arrays))}], partial_at[${max(1, len(totals))}];
} ${name}_plan;
typedef struct {  // what may change from call to call: offsets, and scalars that are given by value
    long a, x, y, yt, o, scalar_at[4], at[${max(1, len(arrays))}];
    ${ctype} ${", ".join(SCALARS)};
} ${name}_call;
</%def>

<%def name="parameters()">
% for value in values:
    const ${ctype_of(value.dtype)} ${value.name},
% endfor
% for array in arrays:
    __global ${"" if array.is_output else "const "}${ctype_of(array.dtype)} *${array.name},
% endfor
    ${name}_plan p, ${name}_call s, __global const ${ctype} *A, __global const ${ctype} *X, __global const ${ctype} *Y,
    __global const ${ctype} *Yt, __global ${ctype} *O, __global ${ctype} *partial, __global ${ctype} *scratch,
    __global uchar *partials${"".join(f", __global const {ctype} *device_{v}" for v in SCALARS)}
</%def>

## Scalars that lie on the device are read there.
<%def name="load_scalars()">
    % for k, v in enumerate(SCALARS):
    if (device_${v})
        s.${v} = device_${v}[s.scalar_at[${k}]];
    % endfor
</%def>

<%def name="load_rows()">
    % for v, dtype in row_values:
    ${ctype_of(dtype)} r${v};
    % endfor
    % for a, array in enumerate(arrays):
    % if array.kind == "row" and not array.is_output:
    r${array.value} = ${array.name}[s.at[${a}]];
    % endif
    % endfor
    ${loops[0].row_code}
</%def>

<%def name="partial(k)" buffered="True" filter="trim">
(__global ${ctype_of(totals[k].acc_dtype)} *)(partials + p.partial_at[${k}])
</%def>

## Adds up what the work-items found, and computes what depends on it.
<%def name="finish()">
    for (long j = get_global_id(0); j < p.k; j += get_global_size(0)) {
        ${ctype} sum = 0;
        for (long k = 0; k < items; ++k)
            sum += partial[k * p.padded + j];
        sum *= s.alpha_t;
        if (s.beta_t != 0)
            sum += s.beta_t * Yt[s.yt + j * p.yt_step];
        O[s.o + j * p.o_step] = sum;
    }
    if (get_global_id(0) == 0) {
        % for k, total in enumerate(totals):
        ${total.accumulator}_a1 all${total.value} = ${total.accumulator}_identity1();
        for (long k = 0; k < items; ++k)
            all${total.value} = ${total.accumulator}_combine1(all${total.value}, ${total.accumulator}_load1(${partial(k)} + k, 1, items));
        r${total.value} = ${parts.result(total, f"all{total.value}", 1)};
        % endfor
        % for walk in loops[1:]:
        ${walk.row_code}
        % endfor
        % for a, array in enumerate(arrays):
        % if array.kind == "row" and array.is_output:
        ${array.name}[s.at[${a}]] = r${array.value};
        % endif
        % endfor
    }
</%def>
