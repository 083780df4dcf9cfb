## Text that the row kernels of both schedules share. The defs use the arguments of the template that calls them.
<%!
    from pytensor_cl.codegen.dtypes import ctype, vector_type
%>
<%namespace name="convert" file="/reduction/cast.mako"/>

<%def name="declarations()">
${geometry.c_typedef(f"{name}_geometry")}
typedef struct { long non_temporal, at[${len(arrays)}]; } ${name}_offsets;
% if tables:
${tables_struct.c_typedef(f"{name}_tables")}
% endif
</%def>

## Arguments of a kernel; no array overlaps an output.
<%def name="parameters(qualifier='')">
% for value in values:
    const ${ctype(value.dtype)} ${value.name},
% endfor
% for array in arrays:
    __global ${"" if array.is_output else "const "}${ctype(array.dtype)} *${qualifier}${array.name},
% endfor
    __global uchar *scratch, __global uchar *partials, const ${name}_offsets offset, const ${name}_geometry g
% for k, dtype in enumerate(tables):
    , __global const ${ctype(dtype)} *table${k}
% endfor
% if tables:
    , const ${name}_tables tables
% endif
</%def>

## The last arguments of a kernel that reads tables: by elements, by rows, or by both.
<%def name="error_parameters(is_used)">
% if is_used:
    , volatile __global int *error_flag, const int error_code
% endif
</%def>

<%def name="declare_offsets()">
    long ${", ".join(f"at_{array.name} = 0" for array in arrays)};
</%def>

## The places where row number `rest` begins in each array. GPUs (`unrolled`) would copy the geometry into private
## memory for indices that are not constants.
<%def name="row_offsets(unrolled=False)">
% for a, array in enumerate(arrays):
        at_${array.name} = offset.at[${a}];
% endfor
% for d in range(outer_dims) if unrolled else ["d"]:
        ${"if (rest) {" if unrolled else "for (int d = 0; rest; ++d) {"}
            ${divmod_index("rest", "i", f"g.outer[{d}]")}
% for a, array in enumerate(arrays):
            at_${array.name} += i * g.outer_step[${a}][${d}];
% endfor
        }
% endfor
</%def>

## Divides `number` by a length; its remainder is the new `rest`. Most numbers are smaller, and division is slow.
<%def name="divmod_index(number, rest, length)">
            ${index} ${rest} = ${number};
            if (${rest} < ${length})
                ${number} = 0;
            else {
                ${number} /= ${length};
                ${rest} -= ${number} * ${length};
            }
</%def>

## Pointers to element `place` of the arrays that a loop uses.
<%def name="run_pointers(used, place, unrolled=False)">
% if reduced_dims == 1:
            const ${index} inner = ${place};
% else:
            ${index} run = ${place};
            ${divmod_index("run", "inner", "g.reduced[0]")}
% endif
% for a in used:
            long p_${arrays[a].name} = at_${arrays[a].name} + inner * g.reduced_step[${a}][0];
% endfor
% if reduced_dims > 1:
            ${outer_runs(used, unrolled)}
% endif
</%def>

<%def name="outer_runs(used, unrolled=False)">
% for d in range(1, reduced_dims) if unrolled else ["d"]:
            ${"if (run) {" if unrolled else "for (int d = 1; run; ++d) {"}
                ${divmod_index("run", "i", f"g.reduced[{d}]")}
% for a in used:
                p_${arrays[a].name} += i * g.reduced_step[${a}][${d}];
% endfor
            }
% endfor
</%def>

## A full value as one of an accumulator.
<%def name="lift(total, value, n)" buffered="True" filter="trim">
% if total.compensation:
(${total.accumulator}_a${n}){${convert.cast(value, total.source_dtype, total.acc_dtype, n)},
    (${vector_type(total.acc_dtype, n)})(0.0f)}
% else:
${convert.cast(value, total.source_dtype, total.acc_dtype, n)}
% endif
</%def>

## The value of an accumulator; an infinite sum has no error term.
<%def name="result(total, a, n)" buffered="True" filter="trim">
% if total.compensation:
${convert.cast(f"(isfinite({a}.sum) ? {a}.sum + {a}.error : {a}.sum)", total.acc_dtype, total.dtype, n)}
% else:
${convert.cast(a, total.acc_dtype, total.dtype, n)}
% endif
</%def>

## Partial results of a reduction: a plane of values, and one of rounding errors if those are kept.
<%def name="partial(total)" buffered="True" filter="trim">
(__global ${ctype(total.acc_dtype)} *)(partials + g.partial_at[${totals.index(total)}])
</%def>
