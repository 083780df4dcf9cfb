## float16 as the bits of a half in a ushort: to float, and back. widen_half<n>, narrow_half<n>: n lanes; rounding is
## to nearest even, as in NumPy's casts. Devices with cl_khr_fp16 convert themselves. NVIDIA's do so by an instruction
## of PTX (-DHALF_CONVERSIONS), without that extension. PoCL 3.0 has no such type, and crashes on vload_half of vectors;
## on x86 its compiler supports the processor's conversion of 8 lanes. Elsewhere it is arithmetic on bits.
<%page args=""/>\
#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define widen_half1(bits) ((float)as_half((ushort)(bits)))  // libclc has no convert_float(half)
#define narrow_half1(value) as_ushort((half)(value))
% for n in (2, 4, 8, 16):
#define widen_half${n}(bits) convert_float${n}(as_half${n}((ushort${n})(bits)))
#define narrow_half${n}(value) as_ushort${n}(convert_half${n}_rte(value))
% endfor
#elif defined(HALF_CONVERSIONS)
static inline float widen_half1(const ushort half_bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half_bits));
    return value;
}

static inline ushort narrow_half1(const float value)
{
    ushort half_bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half_bits) : "f"(value));
    return half_bits;
}
% for n in (2, 4, 8, 16):
<% lanes = [f".s{k:x}" for k in range(n)] %>\
static inline float${n} widen_half${n}(const ushort${n} half_bits)
{
    return (float${n})(${", ".join(f"widen_half1(half_bits{k})" for k in lanes)});
}

static inline ushort${n} narrow_half${n}(const float${n} value)
{
    return (ushort${n})(${", ".join(f"narrow_half1(value{k})" for k in lanes)});
}
% endfor
#else
% for n in (1, 2, 4, 8, 16):
<%
n = n if n > 1 else ""
U, F, H = f"uint{n}", f"float{n}", f"ushort{n}"
bits = lambda value: f"as_uint{n}({value})"
real = lambda value: f"as_float{n}({value})"
%>\
% if n in (8, 16):
#ifdef __F16C__
% if n == 8:
typedef short half_bits8 __attribute__((vector_size(16)));
typedef float half_values8 __attribute__((vector_size(32)));
static inline float8 widen_half8(const ushort8 half_bits)
{
    return __builtin_astype(__builtin_ia32_vcvtph2ps256(__builtin_astype(half_bits, half_bits8)), float8);
}

static inline ushort8 narrow_half8(const float8 value)
{
    return __builtin_astype(__builtin_ia32_vcvtps2ph256(__builtin_astype(value, half_values8), 0), ushort8);
}
% else:
static inline float16 widen_half16(const ushort16 half_bits)
{
    return (float16)(widen_half8(half_bits.lo), widen_half8(half_bits.hi));
}

static inline ushort16 narrow_half16(const float16 value)
{
    return (ushort16)(narrow_half8(value.lo), narrow_half8(value.hi));
}
% endif
#else
% endif
static inline ${F} widen_half${n or 1}(const ${H} half_bits)
{
    const ${U} wide = convert_uint${n}(half_bits);
    const ${U} low = (wide & 0x7fffu) << 13;
    const ${U} exponent = wide & 0x7c00u;
    const ${U} tiny = ${bits(f"{real('low + 0x38800000u')} - {real(f'({U})(0x38800000u)')}")};
    const ${U} normal = low + (exponent == 0x7c00u ? (${U})(0x70000000u) : (${U})(0x38000000u));
    return ${real("(exponent == 0u ? tiny : normal) | ((wide & 0x8000u) << 16)")};
}

static inline ${H} narrow_half${n or 1}(const ${F} value)
{
    const ${U} all_bits = ${bits("value")};
    const ${U} low = all_bits & 0x7fffffffu;
    /* Below the normal numbers, adding 0.5 rounds to multiples of 2**-24 in the lowest bits. */
    const ${U} tiny = ${bits(f"{real('low')} + 0.5f")} - 0x3f000000u;
    const ${U} normal = min((low - 0x38000000u + 0xfffu + ((low >> 13) & 1u)) >> 13, (${U})(0x7c00u));
    const ${U} number = low < 0x38800000u ? tiny : normal;
    return convert_ushort${n}((low > 0x7f800000u ? (${U})(0x7e00u) : number) | ((all_bits >> 16) & 0x8000u));
}
% if n in (8, 16):
#endif
% endif

% endfor
#endif
