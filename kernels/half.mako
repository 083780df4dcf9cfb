## float16 without cl_khr_fp16: the bits of a half in a ushort to float, and back. PoCL 3.0 crashes on vload_half of vectors,
## and its scalar form is slow. widen_half<n>, narrow_half<n>: n lanes; rounding is to nearest even, as in NumPy's casts.
<%page args=""/>\
% for n in (1, 2, 4, 8, 16):
<%
n = n if n > 1 else ""
U, F, H = f"uint{n}", f"float{n}", f"ushort{n}"
bits = lambda value: f"as_uint{n}({value})"
real = lambda value: f"as_float{n}({value})"
%>\
static inline ${F} widen_half${n or 1}(const ${H} half_bits)
{
    const ${U} wide = convert_uint${n}(half_bits);
    const ${U} low = (wide & 0x7fffu) << 13, exponent = wide & 0x7c00u;
    const ${U} tiny = ${bits(f"{real('low + 0x38800000u')} - {real(f'({U})(0x38800000u)')}")};
    const ${U} normal = low + (exponent == 0x7c00u ? (${U})(0x70000000u) : (${U})(0x38000000u));
    return ${real("(exponent == 0u ? tiny : normal) | ((wide & 0x8000u) << 16)")};
}

static inline ${H} narrow_half${n or 1}(const ${F} value)
{
    const ${U} all_bits = ${bits("value")}, low = all_bits & 0x7fffffffu;
    /* Below the normal numbers, adding 0.5 rounds to multiples of 2**-24 in the lowest bits. */
    const ${U} tiny = ${bits(f"{real('low')} + 0.5f")} - 0x3f000000u;
    const ${U} normal = min((low - 0x38000000u + 0xfffu + ((low >> 13) & 1u)) >> 13, (${U})(0x7c00u));
    const ${U} number = low < 0x38800000u ? tiny : normal;
    return convert_ushort${n}((low > 0x7f800000u ? (${U})(0x7e00u) : number) | ((all_bits >> 16) & 0x8000u));
}

% endfor
