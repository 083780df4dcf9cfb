## Structs, arguments and the last step of the kernels of pair.mako. The defs use its arguments.
<%!
    from pytensor_cl.codegen.dtypes import ctype as ctype_of
    SCALARS = "alpha", "beta", "alpha_t", "beta_t"
%>
<%namespace name="row_kernels" file="/rowwise/common.mako"/>
<%namespace name="partials" file="/common/partials.mako"/>

<%def name="declarations()">
${plan.c_typedef(f"{name}_plan")}
${call.c_typedef(f"{name}_call", "what may change from call to call: offsets, and scalars that are given by value")}
</%def>

<%def name="parameters()">
% for value in values:
    const ${ctype_of(value.dtype)} ${value.name},
% endfor
% for array in arrays:
    __global ${"" if array.is_output else "const "}${ctype_of(array.dtype)} *${array.name},
% endfor
    ${name}_plan p, ${name}_call s, __global const ${ctype} *A, __global const ${ctype} *X, __global const ${ctype} *Y,
    __global const ${ctype} *Yt, __global ${ctype} *O, __global ${ctype} *partial, __global ${ctype} *workspace,
    __global uchar *partial_totals${"".join(f", __global const {ctype} *device_{v}" for v in SCALARS)}
</%def>

## Scalars that are on the device are read there.
<%def name="load_scalars()">
    % for k, v in enumerate(SCALARS):
    if (device_${v})
        s.${v} = device_${v}[s.scalar_at[${k}]];
    % endfor
</%def>

## Values of the function that are the same for all rows.
<%def name="load_row_values()">
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

<%def name="partial_total(k)" buffered="True" filter="trim">
(__global ${ctype_of(totals[k].acc_dtype)} *)(partial_totals + p.partial_at[${k}])
</%def>

## Adds up the partial results of the work-items, and computes what depends on them.
<%def name="finish()">
    for (long j = get_global_id(0); j < p.k; j += get_global_size(0)) {
        ${ctype} sum = 0;
        ${partials.combine("sum", "items", "partial[part * p.padded_k + j]")}
        sum *= s.alpha_t;
        if (s.beta_t != 0)  // beta = 0 must not let a NaN of the addend through
            sum += s.beta_t * Yt[s.yt + j * p.yt_step];
        O[s.o + j * p.o_step] = sum;
    }
    if (get_global_id(0) == 0) {
        % for k, total in enumerate(totals):
<%  all, accumulator = f"all{total.value}", total.accumulator %>\
        ${accumulator}_a1 ${all} = ${accumulator}_identity1();
        ${partials.combine(all, "items", f"{accumulator}_load1({partial_total(k)} + part, 1, items)",
            accumulator + "_combine1({total}, {partial})")}
        r${total.value} = ${row_kernels.result(total, all, 1)};
        % endfor
        % for row_loop in loops[1:]:
        ${row_loop.row_code}
        % endfor
        % for a, array in enumerate(arrays):
        % if array.kind == "row" and array.is_output:
        ${array.name}[s.at[${a}]] = r${array.value};
        % endif
        % endfor
    }
</%def>
