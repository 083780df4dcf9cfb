## Pattern "short" of kernels/reduction/cpu.mako: few elements for each result, results beside each other. The def uses
## the arguments of the template that calls it.
<%namespace name="traversal" file="/reduction/traversal.mako"/>
## The n results from vector k of a tile on; the sum of each stays in a register.
<%def name="vectors(n)">
        for (; width - k >= ${n}; k += ${n}) {
            ${name}_a${n} sum = ${name}_identity${n}();
            <%traversal:runs>
            #pragma clang loop vectorize(disable)
            for (${index} i = 0; i < n; ++i)
                sum = ${name}_combine${n}(sum,
                    ${name}_load${n}(x + i * step + k * g.outer_in[0], g.outer_in[0], g.error_stride));
            </%traversal:runs>
            ${name}_store${n}(sum, output + out + k * g.outer_out[0], g.outer_out[0], g.error_stride);
        }
</%def>
