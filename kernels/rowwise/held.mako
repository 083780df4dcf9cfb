## Passes over a row whose elements are in registers; the defs use the arguments of kernels/rowwise/simt.mako. A
## work-item has vectors number lane, lane + threads, .. of `load_lanes` elements. Past the end of the row it repeats
## the last one, which is neither added nor stored, so that no load waits for a comparison. All loops have constant
## bounds and are unrolled: an array in private memory is not in registers otherwise.
<%!
    import numpy as np

    from pytensor_cl.codegen.dtypes import ctype, vector_type

    LOAD_BYTES = 16  # the widest load

    def number_of(arrays, name):
        return next(a for a, array in enumerate(arrays) if array.name == name)

    def dtype_of(arrays, spills, v):
        """Return the dtype of an operand, or of a value that is kept."""
        return dict(spills).get(v) or arrays[number_of(arrays, f"x{v}")].dtype

    def is_shared(passes, v):
        return sum(v in each.reads for each in passes) > 1
%>
<%namespace name="parts" file="/rowwise/common.mako"/>

<%def name="vector_types()">
% for dtype in dict.fromkeys(array.dtype for array in arrays if array.access == "vector"):
typedef ${vector_type(dtype, load_lanes)} ${name}_${ctype(dtype)}
    __attribute__((aligned(${min(LOAD_BYTES, load_lanes * np.dtype(dtype).itemsize)})));
% endfor
</%def>

## Operands that several passes read, and values that a later pass needs again.
<%def name="declarations()">
<% shared = [v for v in dict.fromkeys(v for each in passes for v in each.reads) if is_shared(passes, v)] %>
    const ${index} loads = g.total / ${load_lanes};
    % for v in shared:
    ${ctype(dtype_of(arrays, spills, v))} k${v}[${held}];
    % endfor
    % for v, dtype in spills:
    ${ctype(dtype)} k${v}[${held}];
    % endfor
</%def>

<%def name="elements(row_pass, s)">
<%
    earlier = {v for each in passes[:s] for v in each.reads}
    fresh = [v for v in row_pass.reads if v not in earlier]
    first = [v for v in fresh if is_shared(passes, v) or not row_pass.writes]  # loaded before anything is computed
    late = [v for v in fresh if v not in first]
%>
        % for v in fresh:
        % if not is_shared(passes, v):
        ${ctype(dtype_of(arrays, spills, v))} k${v}[${held}];
        % endif
        % endfor
        % if first:
        #pragma unroll
        for (int q = 0; q < ${held // load_lanes}; ++q) {
            const ${index} vector = min(lane + q * threads, loads - 1);
            ${load(first)}
        }
        % endif
        #pragma unroll
        for (int q = 0; q < ${held // load_lanes}; ++q) {
            const int inside = lane + q * threads < loads;
            const ${index} vector = inside ? lane + q * threads : loads - 1;
            ${load(late)}
            % for o, _ in row_pass.writes:
            ${ctype(arrays[number_of(arrays, f"y{o}")].dtype)} w${o}[${load_lanes}];
            % endfor
            % for c in range(load_lanes):
            {
                % for v in (*row_pass.reads, *row_pass.reloads):
                const ${ctype(dtype_of(arrays, spills, v))} v${v} = k${v}[q * ${load_lanes} + ${c}];
                % endfor
                ${row_pass.code}
                % for v in row_pass.spills:
                k${v}[q * ${load_lanes} + ${c}] = v${v};
                % endfor
                % for total in row_pass.totals:
                {
                    ## a choice: behind a branch the next element would not be computed meanwhile
                    const ${ctype(total.source_dtype)} own = inside ? ${total.source} : ${total.identity};
                    sum${total.value} =
                        ${total.accumulator}_combine1(sum${total.value}, ${parts.lift(total, "own", 1)});
                }
                % endfor
                % for o, value in row_pass.writes:
                w${o}[${c}] = ${value};
                % endfor
            }
            % endfor
            % if row_pass.writes:
            if (exists && inside) {
                ${store([o for o, _ in row_pass.writes])}
            }
            % endif
        }
</%def>

<%def name="load(values)">
            % for v in values:
<% a = number_of(arrays, f"x{v}") %>\
            % if arrays[a].access == "vector":
<% vector = f"{name}_{ctype(arrays[a].dtype)}" %>\
            const ${vector} e${v} = *(__global const ${vector} *)(x${v} + at_x${v} + vector * ${load_lanes});
            % for c in range(load_lanes):
            k${v}[q * ${load_lanes} + ${c}] = e${v}.s${c};
            % endfor
            % else:
            % for c in range(load_lanes):
            {
                ${parts.run_pointers([a], f"vector * {load_lanes} + {c}", unrolled=True)}
                k${v}[q * ${load_lanes} + ${c}] = x${v}[p_x${v}];
            }
            % endfor
            % endif
            % endfor
</%def>

<%def name="store(outputs)">
            % for o in outputs:
<% a = number_of(arrays, f"y{o}") %>\
            % if arrays[a].access == "vector":
            *(__global ${name}_${ctype(arrays[a].dtype)} *)(y${o} + at_y${o} + vector * ${load_lanes}) =
                (${vector_type(arrays[a].dtype, load_lanes)})(${", ".join(f"w{o}[{c}]" for c in range(load_lanes))});
            % else:
            % for c in range(load_lanes):
            {
                ${parts.run_pointers([a], f"vector * {load_lanes} + {c}", unrolled=True)}
                y${o}[p_y${o}] = w${o}[${c}];
            }
            % endfor
            % endif
            % endfor
</%def>
