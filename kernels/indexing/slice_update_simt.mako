## Algorithm   o = x with some slices set or added to, one after the other, for GPUs: an element is read, changed by
##             each slice that it is in, and written once. A work-item has `lanes` elements of a row, whose values are
##             all loaded before the first is changed.
## Operands    As in kernels/indexing/slice_update.mako.
## NDRange     Any size; a loop over units (kernels/common/units.mako) with the NDRange as stride.
<%page args="name, plan, offsets, ctype, ndim, combines, index, lanes"/>\
<%namespace name="units" file="/common/units.mako"/>\
<% last, parts, writes = ndim - 1, range(lanes), range(len(combines)) %>\
${plan.c_typedef(f"{name}_plan")}
${offsets.c_typedef(f"{name}_offsets")}

/* Return the number of an element `n` after the first in a slice with this step; -1 if it is not in it. */
static inline ${index} ${name}_number(const ${index} n, const ${index} step, const ${index} count)
{
    const ${index} q = step == 1 ? n : n / step;
    return n >= 0 && q < count && q * step == n ? q : -1;
}

__kernel void ${name}(__global ${ctype} *o, __global const ${ctype} *restrict x,
% for w in writes:
    __global const ${ctype} *restrict y${w},
% endfor
    const ${name}_offsets offset, const ${name}_plan p)
{
    o += offset.o;
    x += offset.x;
% for w in writes:
    y${w} += offset.y[${w}];
% endfor
    ${units.loop(index, lanes, last, "0")}
        __global ${ctype} *to = o + (${index})rest * p.shape[${last}];
        ${index} at_x = 0;
% for d in range(last):
        ${index} at${d};
% endfor
        ${units.rows(index, last, [("at_x", "p.x[{}]")], "at")}
% for q in parts:
        const ${index} k${q} = ${units.place(q)};
% endfor
% for q in parts:
        ${ctype} v${q} = x[at_x + k${q} * p.x[${last}]];
% endfor
% for w in writes:
        int is_in${w} = 1;
        ${index} at_y${w} = 0;
    % for d in range(last):
        {
            const ${index} q = ${name}_number(at${d} - p.start[${w}][${d}], p.step[${w}][${d}], p.count[${w}][${d}]);
            is_in${w} &= q >= 0;
            at_y${w} += q * p.y[${w}][${d}];
        }
    % endfor
    % for q in parts:
        const ${index} q${w}_${q} = is_in${w}
            ? ${name}_number(k${q} - p.start[${w}][${last}], p.step[${w}][${last}], p.count[${w}][${last}])
            : -1;
        const ${ctype} y${w}_${q} = q${w}_${q} < 0 ? 0 : y${w}[at_y${w} + q${w}_${q} * p.y[${w}][${last}]];
    % endfor
% endfor
% for w, combine in enumerate(combines):
    % for q in parts:
        v${q} = q${w}_${q} < 0 ? v${q} : (${ctype})(${combine.format(a=f"v{q}", b=f"y{w}_{q}")});
    % endfor
% endfor
% for q in parts:
        ${f"if (column + {q} * spread < end)" if lanes > 1 else ""}
        to[k${q}] = v${q};
% endfor
    }
}
