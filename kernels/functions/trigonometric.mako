## sin, cos and tan of float32 vectors: PoCL 3.0's own take four times as long, and a huge argument in one lane spoils others.
## The argument is reduced by multiples of pi/2 in three parts (Cody & Waite 1980), the polynomials have the least largest
## error (Remez). Huge arguments, infinities and NaN are left to the scalar functions.
<%page args="dtype"/>\
<%include file="every_lane.mako"/>\
% for lanes in (8, 16):
<% V, I = f"float{lanes}", f"int{lanes}" %>\
static inline ${V} quarter_turns_${V}(const ${V} x, ${I} *quarter)
{
    *quarter = convert_${I}(fma(x, (${V})(0x1.45f306p-1f), copysign((${V})(0.5f), x)));
    const ${V} turns = convert_${V}(*quarter);
    ${V} rest = fma(turns, (${V})(-0x1.921fb6p+0f), x);
    rest = fma(turns, (${V})(0x1.777a5cp-25f), rest);
    return fma(turns, (${V})(0x1.ee59dap-50f), rest);
}

static inline ${V} small_sin_${V}(const ${V} x)
{
    const ${V} square = x * x;
    ${V} p = fma((${V})(-0.00019516977772582322f), square, (${V})(0.008332176133990288f));
    p = fma(p, square, (${V})(-0.16666655242443085f));
    return fma(p * square, x, x);
}

static inline ${V} small_cos_${V}(const ${V} x)
{
    const ${V} square = x * x;
    ${V} p = fma((${V})(2.443809171381872e-05f), square, (${V})(-0.0013887364184483886f));
    p = fma(p, square, (${V})(0.04166664555668831f));
    return fma(p * square, square, fma((${V})(-0.5f), square, (${V})(1)));
}

static inline ${V} sin_parts_${V}(const ${V} rest, const ${I} quarter)
{
    const ${V} value = select(small_sin_${V}(rest), small_cos_${V}(rest), (quarter & 1) == 1);
    return as_${V}(as_${I}(value) ^ ((quarter & 2) << 30));
}

static inline ${V} sin_reduced_${V}(const ${V} x)
{
    ${I} quarter;
    const ${V} rest = quarter_turns_${V}(x, &quarter);
    return sin_parts_${V}(rest, quarter);
}

static inline ${V} cos_reduced_${V}(const ${V} x)
{
    ${I} quarter;
    const ${V} rest = quarter_turns_${V}(x, &quarter);
    return sin_parts_${V}(rest, quarter + 1);
}

static inline ${V} tan_reduced_${V}(const ${V} x)
{
    ${I} quarter;
    const ${V} rest = quarter_turns_${V}(x, &quarter), s = small_sin_${V}(rest), c = small_cos_${V}(rest);
    const ${I} odd = (quarter & 1) == 1;
    return select(s, -c, odd) / select(c, s, odd);
}

% for name in ("sin", "cos", "tan"):
static inline ${V} ${name}_${V}(const ${V} x)
{
    const ${I} plain = fabs(x) < (${V})(20000);
    ${V} result = ${name}_reduced_${V}(select((${V})(0), x, plain));
    ${"result = select(x, result, fabs(x) >= (%s)(FLT_MIN));" % V if name != "cos" else ""}
    if (!every_lane(plain)) {
    % for k in range(lanes):
        if (!plain.s${f"{k:x}"}) result.s${f"{k:x}"} = ${name}(x.s${f"{k:x}"});
    % endfor
    }
    return result;
}

% endfor
% endfor
