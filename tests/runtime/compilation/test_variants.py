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


def test_a_limit_of_registers_replaces_the_size_of_work_groups():
    """NVIDIA's assembler ignores the limit where the size is declared."""
    text = "// at most 128 registers\n__kernel __attribute__((reqd_work_group_size(32, 8, 1)))\nvoid f() {}"
    limited, plain = variants.nvidia_variants(text)
    assert "reqd_work_group_size" not in limited.text and limited.text.count("__kernel") == 1
    assert plain.text == text
