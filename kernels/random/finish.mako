## Algorithm   Parts of kernels that finish draws: the declarations of the parameters, and how `lanes` elements are
##             loaded, checked, computed and stored.
## Operands    Parameters a, b, c: numbers or, where `varying`, arrays of the result's shape. `finish` is the expression
##             of the result. bad: set where the parameters are not `proper`; an argument only if any varies.
## NDRange     None: parts of the caller's loop over elements.
## Workspace   Of a last vector that is not full, `lanes` elements in private memory.
## Invariants  No element past the last of the `left` ones is read from the parameters or written to the result.
## Reference   None.
<%def name="arguments(varying)">\
% for c, v in zip("abc", varying):
, ${f"__global const double *{c}_values" if v else f"const double {c}_value"}\
% endfor
${", __global int *bad" if any(varying) else ""}\
</%def>\
<%def name="constants(varying, V)">\
    const ${V} one = (${V})(1.0), zero = (${V})(0.0);
% for c, v in zip("abc", varying):
    % if not v:
    const ${V} ${c} = (${V})(${c}_value);
    % endif
% endfor
</%def>\
## Elements ${at} and the following of the parameters: all lanes, or the first of them that are left, one by one.
<%def name="load(varying, V, lanes, at, left)">\
% for c, v in zip("abc", varying):
    % if v and lanes == 1:
            const double ${c} = ${c}_values[${at}];
    % elif v:
${load_lanes(c, lanes, at, left)}\
    % endif
% endfor
</%def>\
<%def name="load_lanes(name, lanes, at, left)">\
            double${lanes} ${name};
            if (${left} >= ${lanes}) ${name} = vload${lanes}(0, ${name}_values + ${at});
            else {
                double parts[${lanes}];
                for (int l = 0; l < ${lanes}; ++l) parts[l] = ${name}_values[${at} + min((long)l, ${left} - 1)];
                ${name} = vload${lanes}(0, parts);
            }
</%def>\
<%def name="check(varying, proper, lanes)">\
% if any(varying):
            if (${f"!({proper})" if lanes == 1 else f"!all({proper})"}) *bad = 1;
% endif
</%def>\
<%def name="store(result, finish, lanes, at, left)">\
% if lanes == 1:
            out[${at}] = convert_${result}(${finish});
% else:
            const ${result}${lanes} found = convert_${result}${lanes}(${finish});
            if (${left} >= ${lanes}) vstore${lanes}(found, 0, out + ${at});
            else {
                ${result} parts[${lanes}];
                vstore${lanes}(found, 0, parts);
                for (int l = 0; l < ${left}; ++l) out[${at} + l] = parts[l];
            }
% endif
</%def>\
