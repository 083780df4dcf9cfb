"""The texts and options with which programs are built."""

from pytensor_cl.runtime.compilation import variants

EXP = "__kernel void f(__global float *x) { x[0] = exp(x[0]); }"


def test_a_program_is_built_unchanged():
    assert list(variants.plain(EXP)) == [variants.BuildVariant(EXP)]


def test_nvidia_gets_the_limit_of_registers():
    few, plain = "// fits if it has at most 128 registers\n" + EXP, EXP
    assert [way.options for way in variants.nvidia_variants(few)] == [("-cl-nv-maxrregcount=128",), ()]
    assert [way.options for way in variants.nvidia_variants(plain)] == [()]
    assert next(variants.nvidia_variants(few.replace("128", "64") + few)).options == ("-cl-nv-maxrregcount=64",)
