## Algorithm   sin, cos and tan of vectors: PoCL 3.0's own take two to four times as long, and a huge argument in one
##             lane changes others. The argument is reduced by multiples of pi/2 in three parts (Cody & Waite 1980); in
##             float64 the first two products are exact. Huge arguments, infinities and NaN are left to the scalar
##             functions.
<%page args="dtype"/>\
<%include file="/math/lane_vote.mako"/>\
<%!
    from pytensor_cl.codegen.dtypes import ctype
    from pytensor_cl.codegen.coefficients.minimax import minimax

    FLOAT = (
        "int",
        31,
        (8, 16),
        "20000",
        "0x1.8p23f",
        "0x1.45f306p-1f",
        ("-0x1.921fb6p+0f", "0x1.777a5cp-25f", "0x1.ee59dap-50f"),
    )
    OTHER = (
        "long",
        63,
        (8,),
        "1000000",
        "0x1.8p52",
        "0x1.45f306dc9c883p-1",
        ("-0x1.921fb544p+0", "-0x1.0b4611a6p-34", "-0x1.3198a2e037073p-69"),
    )
%>\
<%
M, sign_bit, counts, largest, magic, turns_of_one, parts = OTHER if dtype == "float64" else FLOAT
half, smallest = ("0.5", "DBL_MIN") if dtype == "float64" else ("0.5f", "FLT_MIN")
%>\
% for lanes in counts:
<% V, I = f"{ctype(dtype)}{lanes}", f"{M}{lanes}" %>\
static inline ${V} quarter_turns_${V}(const ${V} x, ${I} *quarter)
{
    /* So large a sum is rounded to an integer, which its last bits are. */
    const ${V} magic = (${V})(${magic});
    const ${V} shifted = fma(x, (${V})(${turns_of_one}), magic);
    const ${V} turns = shifted - magic;
    *quarter = as_${I}(shifted);
    ${V} rest = fma(turns, (${V})(${parts[0]}), x);
    rest = fma(turns, (${V})(${parts[1]}), rest);
    return fma(turns, (${V})(${parts[2]}), rest);
}

static inline ${V} small_sin_${V}(const ${V} x)
{
    const ${V} square = x * x;
    return fma(square * ${minimax("sin", "square", dtype, V)}, x, x);
}

static inline ${V} small_cos_${V}(const ${V} x)
{
    const ${V} square = x * x;
    return fma(square * ${minimax("cos", "square", dtype, V)}, square, fma((${V})(-${half}), square, (${V})(1)));
}

static inline ${V} sin_parts_${V}(const ${V} rest, const ${I} quarter)
{
    const ${V} value = select(small_sin_${V}(rest), small_cos_${V}(rest), (quarter & 1) == 1);
    return as_${V}(as_${I}(value) ^ ((quarter & 2) << ${sign_bit - 1}));
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
    const ${V} rest = quarter_turns_${V}(x, &quarter);
    const ${V} s = small_sin_${V}(rest);
    const ${V} c = small_cos_${V}(rest);
    const ${I} odd = (quarter & 1) == 1;
    return select(s, -c, odd) / select(c, s, odd);
}

% for name in ("sin", "cos", "tan"):
static inline ${V} ${name}_${V}(const ${V} x)
{
    const ${I} plain = fabs(x) < (${V})(${largest});
    ${V} result = ${name}_reduced_${V}(select((${V})(0), x, plain));
    ${"result = select(x, result, fabs(x) >= (%s)(%s));" % (V, smallest) if name != "cos" else ""}
    if (!every_lane(plain)) {
    % for k in range(lanes):
        if (!plain.s${f"{k:x}"})
            result.s${f"{k:x}"} = ${name}(x.s${f"{k:x}"});
    % endfor
    }
    return result;
}

% endfor
% endfor
