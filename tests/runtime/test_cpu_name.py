"""Names of CPUs that PoCL's compiler gets."""

import pytest

from pytensor_cl.runtime import cpu_name

AVX2 = frozenset({"avx", "avx2", "fma", "bmi2"})
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"}


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-znver3", "znver3"),
        ("OpenCL 3.0 PoCL HSTR: pthread-x86_64-pc-linux-gnu-skylake-avx512 ", "skylake-avx512"),
        ("OpenCL 3.0 PoCL HSTR: pthread-aarch64-unknown-linux-gnu-generic", None),
        ("OpenCL 3.1 (Build 0)", None),
    ],
)
def test_the_name_is_read_from_the_version(version, name):
    assert cpu_name._name_in(version) == name


@pytest.mark.parametrize(
    ("name", "have", "right"),
    [
        ("generic", AVX2, False),
        ("znver3", AVX2, True),
        ("znver3", AVX512, False),  # Zen 4
        ("skylake-avx512", AVX512, True),
        ("icelake-server", AVX512, True),
        ("haswell", AVX2, True),
    ],
)
def test_a_name_must_have_the_instructions_of_the_cpu(name, have, right):
    assert cpu_name._is_right(name, have) is right
