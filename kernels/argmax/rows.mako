## Pattern "rows" of kernels/argmax/cpu.mako: vectors along the reduced dimension. The defs use the arguments of the
## template that calls them.
<%namespace name="order" file="/argmax/order.mako"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype, vector_type

    BLOCK = 64  # vectors of a row that are searched again if they hold a new maximum

    def names(dtype, lanes):
        return ctype(dtype), vector_type(dtype, lanes), f"load_{vector_type(dtype, lanes)}"
%>
## Returns the combination of all lanes of a vector, which are combined in pairs.
<%def name="horizontal_reduce(vector, dtype, combine_halves)">
    % for n in (8, 4, 2, 1):
    % if n < lanes:
    <% whole, half = vector if 2 * n == lanes else f"half{2 * n}", vector_type(dtype, n) %>
    const ${half} low${n} = ${whole}.lo;
    const ${half} high${n} = ${whole}.hi;
    const ${half} half${n} = ${combine_halves(f"low{n}", f"high{n}")};
    % endif
    % endfor
    return half1;
</%def>

<%def name="helpers()">
static inline ${ctype(dtype)} ${name}_greatest(const ${vector_type(dtype, lanes)} v)
{
    ${horizontal_reduce("v", dtype, order.greater)}
}

static inline int ${name}_first(const int${lanes} is_there)
{
    const int${lanes} place = is_there ? (int${lanes})(${", ".join(map(str, range(lanes)))}) : (int${lanes})(${lanes});
    ${horizontal_reduce("place", "int32", "min({}, {})".format)}
}
</%def>

## A vector from `i` on; the last one of a block reaches back for elements that were seen, rather than be incomplete.
<%def name="read(i)">
                    const long j = max(min(${i}, stop - ${lanes}), start);
                    const ${vector_type(dtype, lanes)} v = step == 1 && stop - j >= ${lanes}
                        ? *(__global const ${name}_v *)(x + j)
                        : load_${vector_type(dtype, lanes)}(x + j * step, step, min(${lanes}, (int)(stop - j)) - 1);
</%def>

<%def name="rows()">
<% T, V, load = names(dtype, lanes) %>
        long where = first;
        ${T} best = input[${name}_at(&g, first)];
        <%order:runs>
            for (long start = 0; start < n; start += ${BLOCK * lanes}) {
                const long stop = min(n, start + ${BLOCK * lanes});
                long i = start;
                ${V} found = (${V})(x[i * step]);
                if (step == 1 && stop - i >= ${4 * lanes}) {
                    % for k in range(4):
                    ${V} found${k} = found;
                    % endfor
                    for (; stop - i >= ${4 * lanes}; i += ${4 * lanes}) {
                        % for k in range(4):
                        const ${V} v${k} = *(__global const ${name}_v *)(x + i + ${k * lanes});
                        found${k} = ${order.greater(f"found{k}", f"v{k}")};
                        % endfor
                    }
                    found0 = ${order.greater("found0", "found1")};
                    found2 = ${order.greater("found2", "found3")};
                    found = ${order.greater("found0", "found2")};
                }
                for (; i < stop; i += ${lanes}) {
                    ${read("i")}
                    found = ${order.greater("found", "v")};
                }
                const ${T} greatest = ${name}_greatest(found);
                if (!${order.beats("greatest", "best")})
                    continue;
                best = greatest;
                const ${V} wanted = (${V})(best);
                for (i = start; i < stop; i += ${lanes}) {
                    ${read("i")}
                    if (some_lane(${order.same("v", "wanted")})) {
                        where = at + j + ${name}_first(convert_int${lanes}(${order.same("v", "wanted")}));
                        break;
                    }
                }
            }
        </%order:runs>
        output[out] = where;
</%def>
