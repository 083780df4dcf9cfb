## Fourier transforms of lines that stay in registers, schedule simt: one launch, lengths known to the compiler.
##
## Algorithm   Stockham's. In a pass a work-item has one or several butterflies: butterfly j of radix R takes the
##             elements j + k * length / R. It multiplies them by twiddle factors, transforms them, and stores them
##             `done` apart, where `done` is the product of the radices before. Between passes they go through local
##             memory, real parts first, so that it holds one real number for each element.
## Operands    lines of any strides. Lines that are not there are read as the last one and not stored. Real parts of the
##             output are multiplied by `scale`, imaginary parts by `out_sign`.
## NDRange     a work-group has `lines` lines, and `items` work-items for each.
## Workspace   Local memory: `pitch` real numbers for each line. Runs of `done` numbers of neighbouring work-items would
##             share banks: `padding` numbers after each `block` are unused, which moves them apart.
## Invariants  barriers are outside of all control flow. The output may be the input: all is read before the first
##             barrier, and written after it.
## Reference   Stockham 1966; Govindaraju et al., High performance discrete Fourier transforms on graphics processors,
##             2008; routines/fft/registers.py, whose fields the arguments are.
<%page args="name, dtype, lanes, kernel, butterflies, geometry"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype
%>
<%
    T, P, v = ctype(dtype), f"{ctype(dtype)}2", kernel
    group, n, first, last = v.items * v.lines, v.length, v.passes[0], v.passes[-1]
    sides = {"in": v.read, "out": v.write}
%>
## Number of a butterfly of the work-item; those that are not there repeat the last one where that does not store.
<%def name="butterfly_number(p, slot, side)" filter="trim">
<% number = f"{side}_item + {slot * v.items}" if slot else f"{side}_item" %>
${f"min({number}, {p.butterflies - 1}u)" if (slot + 1) * v.items > p.butterflies else number}
</%def>
<%def name="present(p, slot, side)" filter="trim">
% if (slot + 1) * v.items > p.butterflies:
if (${side}_item + ${slot * v.items} < ${p.butterflies})
% endif
</%def>
<%def name="padded(index, p)" filter="trim">${f"{index} + {index} / {p.block} * {p.padding}" if p.padding else index}
</%def>
## Elements go from the work-items that have them after pass p to those that need them for pass q.
<%def name="exchange(p, q, side, is_first, is_last)">
% for part in ("re", "im"):
    % for m in range(p.slots):
    ${present(p, m, side)} {
        const uint j = ${butterfly_number(p, m, side)};
        const uint to = ${f"j / {p.done} * {p.done * p.radix} + j % {p.done}" if p.done > 1 else f"j * {p.radix}"};
        __local ${T} *const x = shared + ${side}_lane * ${v.pitch} + ${padded("to", p)};
        % for k in range(p.radix):
        x[${k * p.done}] = ${part}[${m * p.radix + k}];
        % endfor
    }
    % endfor
    barrier(CLK_LOCAL_MEM_FENCE${" | CLK_GLOBAL_MEM_FENCE" if is_first and part == "re" else ""});
    % for m in range(q.slots):
    {
        const uint j = ${butterfly_number(q, m, "out")};
        __local const ${T} *const x = shared + out_lane * ${v.pitch};
        <% is_uniform = q.butterflies % p.block == 0 or not p.padding %>
        % if is_uniform:
        const uint from = ${padded("j", p)};
        % endif
        % for k in range(q.radix):
        % if is_uniform:
        ${part}[${m * q.radix + k}] = x[from + ${k * (q.butterflies + q.butterflies // p.block * p.padding)}];
        % else:
        const uint from${k} = j + ${k * q.butterflies};
        ${part}[${m * q.radix + k}] = x[${padded(f"from{k}", p)}];
        % endif
        % endfor
    }
    % endfor
    % if part == "re" or not is_last:
    barrier(CLK_LOCAL_MEM_FENCE);
    % endif
% endfor
</%def>
<%def name="natural_order(part)">
    % for m in range(last.slots):
    ${present(last, m, "out")} {
        const uint j = ${butterfly_number(last, m, "out")};
        % for k in range(last.radix):
        shared[out_lane * ${v.pitch} + j + ${k * last.butterflies}] = ${part}[${m * last.radix + k}];
        % endfor
    }
    % endfor
</%def>
<%def name="put(k, z)" filter="trim">
    % if v.twiddle:
    const ${P} t = ${name}_twiddle(block_twiddles, lane_twiddles, line % g.kept[0], ${k});
    ${name}_put(y, ${k}, (${z}.x * t.x - ${z}.y * t.y) * scale, (${z}.x * t.y + ${z}.y * t.x) * out_sign, &g);
    % else:
    ${name}_put(y, ${k}, ${z}.x * scale, ${z}.y * out_sign, &g);
    % endif
</%def>
${geometry.renamed(f"{name}_geometry").c_typedef()}

% for radix, statements in butterflies.items():
static inline void ${name}_butterfly_${radix}(__private ${T} *re, __private ${T} *im)
{
    % for k in range(radix):
    ${T} r${k} = re[${k}], i${k} = im[${k}];
    % endfor
    {
        ${statements}
    }
    % for k in range(radix):
    re[${k}] = r${k};
    im[${k}] = i${k};
    % endfor
}
% endfor

static inline void ${name}_rotate(__private ${T} *re, __private ${T} *im, const ${P} w)
{
    const ${T} x = *re, y = *im;
    *re = x * w.x - y * w.y;
    *im = x * w.y + y * w.x;
}

% if v.read.mode == "parts":
static inline ${P} ${name}_get(__global const ${T} *x, const uint k, const ${T} sign, const ${name}_geometry *g)
{
    const ${T} re = k < g->in_re_count ? x[k * g->in_step] : 0;
    const ${T} im = k < g->in_im_count ? x[k * g->in_step + g->in_im] * sign : 0;
    return (${P})(re, im);
}
% else:
static inline ${P} ${name}_get(__global const ${T} *x, const uint k, const ${T} sign, const ${name}_geometry *g)
{
    const ${P} z = ((__global const ${P} *)x)[${"k" if v.read.mode == "unit" else "k * g->in_step"}];
    return (${P})(z.x, z.y * sign);
}
% endif

% if v.write.mode == "parts":
static inline void ${name}_put(__global ${T} *x, const uint k, const ${T} re, const ${T} im, const ${name}_geometry *g)
{
    if (k < g->out_re_count)
        x[k * g->out_step] = re;
    if (k < g->out_im_count)
        x[k * g->out_step + g->out_im] = im;
}
% else:
static inline void ${name}_put(__global ${T} *x, const uint k, const ${T} re, const ${T} im, const ${name}_geometry *g)
{
    ((__global ${P} *)x)[${"k" if v.write.mode == "unit" else "k * g->out_step"}] = (${P})(re, im);
}
% endif

% if v.twiddle:
/* w^(k line): a factor of the block of ${lanes} lines, and one of the line in it. */
static inline ${P} ${name}_twiddle(__global const ${T} *blocks, __global const ${T} *rows, const uint line,
                                         const uint k)
{
    __global const ${T} *b = blocks + 2 * (line / ${lanes} * ${n + v.real_post} + k);
    __global const ${T} *l = rows + 2 * k * ${lanes} + line % ${lanes};
    return (${P})(b[0] * l[0] - b[1] * l[${lanes}], b[0] * l[${lanes}] + b[1] * l[0]);
}
% endif

% for side in sides:
/* Where a line begins. */
static inline long ${name}_${side}_begin(const uint line, const ${name}_geometry *g)
{
    % if v.dims == 1:
    return g->${side}_at + line * g->${side}_steps[0];
    % else:
    long at = g->${side}_at;
    uint rest = line;
    % for d in range(v.dims - 1):
    at += rest % g->kept[${d}] * g->${side}_steps[${d}];
    rest /= g->kept[${d}];
    % endfor
    return at + rest * g->${side}_steps[${v.dims - 1}];
    % endif
}
% endfor

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}(__global const ${T} *input, const long input_at, __global ${T} *output, const long output_at,
             __global const ${P} *restrict factors, __global const ${P} *halves,
             __global const ${T} *block_twiddles, __global const ${T} *lane_twiddles, const ${T} in_sign,
             const ${T} out_sign, const ${T} scale, const ${name}_geometry g)
{
    __local ${T} shared[${v.lines * v.pitch}];
    ${T} re[${v.elements}], im[${v.elements}];
    const uint id = get_local_id(0);
    % for side, how in sides.items():
    % if v.lines == 1:
    const uint ${side}_lane = 0, ${side}_item = id;
    % elif how.is_columns:
    const uint ${side}_lane = id % ${v.lines}, ${side}_item = id / ${v.lines};
    % else:
    const uint ${side}_lane = id / ${v.items}, ${side}_item = id % ${v.items};
    % endif
    % endfor
    const uint line = get_group_id(0) * ${v.lines} + out_lane;
    {
        const uint read = min((uint)get_group_id(0) * ${v.lines} + in_lane, g.lines - 1);
        __global const ${T} *const x = input + input_at + ${name}_in_begin(read, &g);
        % for m in range(first.slots):
        {
            const uint j = ${butterfly_number(first, m, "in")};
            % for k in range(first.radix):
            {
                const uint e = j + ${k * first.butterflies};
                % if v.real_pre:
                // Half a spectrum of 2 n real numbers -> the transform of n complex ones, even numbers real.
                const ${P} w = halves[e];
                ${P} a = ${name}_get(x, e, in_sign, &g), b = ${name}_get(x, ${n} - e, in_sign, &g);
                a.y = e ? a.y : 0;  // the imaginary parts of the ends are ignored
                b.y = e ? b.y : 0;
                const ${T} dr = a.x - b.x, di = a.y + b.y;
                const ${P} z = (${P})(a.x + b.x - (w.x * di + w.y * dr), a.y - b.y + (w.x * dr - w.y * di));
                % else:
                const ${P} z = ${name}_get(x, e, in_sign, &g);
                % endif
                re[${m * first.radix + k}] = z.x;
                im[${m * first.radix + k}] = z.y;
            }
            % endfor
        }
        % endfor
    }
    % for number, p in enumerate(v.passes):
    % if number:
    ${exchange(v.passes[number - 1], p, "in" if number == 1 else "out", number == 1, p is last and not v.real_post)}
    % for m in range(p.slots):
    {
        const uint j = ${butterfly_number(p, m, "out")};
        __global const ${P} *const w = factors + ${p.table} + ${"j" if p is last else f"j % {p.done}"};
        % for k in range(1, p.radix):
        ${name}_rotate(re + ${m * p.radix + k}, im + ${m * p.radix + k}, w[${(k - 1) * p.done}]);
        % endfor
    }
    % endfor
    % endif
    % for m in range(p.slots):
    ${name}_butterfly_${p.radix}(re + ${m * p.radix}, im + ${m * p.radix});
    % endfor
    % endfor
    % if v.real_post:
    // The transform of n complex numbers -> half a spectrum of 2 n real ones: element e and the conjugate of n - e.
    ${T} sum[${v.elements}], gap[${v.elements}];
    ${natural_order("re")}
    barrier(CLK_LOCAL_MEM_FENCE);
    % for m in range(last.slots):
    {
        const uint j = ${butterfly_number(last, m, "out")};
        % for k in range(last.radix):
<% i, at = m * last.radix + k, k * last.butterflies %>\
        const ${T} b${k} = shared[out_lane * ${v.pitch} + ${f"{n - at} - j" if at else f"(j ? {n} - j : 0)"}];
        sum[${i}] = re[${i}] + b${k};
        gap[${i}] = re[${i}] - b${k};
        % endfor
    }
    % endfor
    barrier(CLK_LOCAL_MEM_FENCE);
    ${natural_order("im")}
    barrier(CLK_LOCAL_MEM_FENCE);
    % endif
    if (line < g.lines) {
        __global ${T} *const y = output + output_at + ${name}_out_begin(line, &g);
        % for m in range(last.slots):
        ${present(last, m, "out")} {
            const uint j = ${butterfly_number(last, m, "out")};
            % for k in range(last.radix):
<% i = m * last.radix + k %>\
            {
                const uint e = j + ${k * last.butterflies};
                % if v.real_post:
                const ${P} w = halves[e] / 2;
                const ${T} b = shared[out_lane * ${v.pitch} + ${f"{n} - e" if k else f"(e ? {n} - e : 0)"}];
                const ${T} di = im[${i}] + b;
                const ${P} z = (${P})(sum[${i}] / 2 + (w.x * di + w.y * gap[${i}]),
                                      (im[${i}] - b) / 2 + (w.y * di - w.x * gap[${i}]));
                % else:
                const ${P} z = (${P})(re[${i}], im[${i}]);
                % endif
                ${put("e", "z")}
            }
            % endfor
            % if v.real_post and m == 0:
            if (j == 0) {
                const ${P} z = (${P})(sum[0] / 2 - im[0], 0);
                ${put(n, "z")}
            }
            % endif
        }
        % endfor
    }
}
