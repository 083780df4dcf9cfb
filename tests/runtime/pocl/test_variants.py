"""PoCL's build variants, and the declarations of built-in functions."""

import re

import numpy as np
import pytest

from pytensor_cl.codegen.dtypes import to_long
from pytensor_cl.codegen.template import KernelSource, _directory, render
from pytensor_cl.errors import CompilationError
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.compilation import variants
from pytensor_cl.runtime.context import open_context
from pytensor_cl.runtime.pocl import variants as pocl_variants
from pytensor_cl.runtime.pocl.builtin_headers import SKIP_HEADER, declare, header
from pytensor_cl.runtime.pocl.variants import PoclVariants
from pytensor_cl.runtime.program import Kernel

HEADER = """//===-- a header --===//
#ifndef _OPENCL_H_
#define _OPENCL_H_
#define __ovld __attribute__((overloadable))
#define twice(x) \\
    (2 * (x))
/* float __ovld exp(char); */
float __ovld exp(float x); float2 __ovld exp(float2 x);
#if A > 1 && \\
    B
half __ovld exp(
    half x);
#ifdef C
int __ovld other(int);
#else
double __ovld exp(double);
#endif
double __ovld exp2(double);
#endif // A
#endif
"""
EXP = "__kernel void f(__global float *x) { x[0] = exp(x[0]); }"


@pytest.fixture
def fresh(context, monkeypatch, tmp_path):
    """A context whose caches are empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return open_context(f"opencl:{context.name}", "fresh")


def write(tmp_path, text=HEADER):
    file = tmp_path / "opencl-c.h"
    file.write_text(text)
    return file


def test_used_functions_are_declared_with_their_conditions(tmp_path):
    lines = declare(EXP, write(tmp_path)).splitlines()
    assert lines[1:4] == [
        "#define __ovld __attribute__((overloadable))",
        *HEADER.splitlines()[7].replace("; ", ";\n").splitlines(),
    ]
    assert lines[-1] == EXP and lines.count("#endif") == sum(line.startswith("#if") for line in lines)
    text = "\n".join(lines)
    assert (
        "#if A > 1 && \\\n    B\nhalf __ovld exp(\n    half x);" in text and "#else\ndouble __ovld exp(double);" in text
    )
    assert not any(word in text for word in ("exp2", "other", "twice", "char", "_OPENCL_H_"))


def test_macros_are_declared(tmp_path):
    assert "#define twice(x) \\\n    (2 * (x))" in declare("twice(3)", write(tmp_path))


def test_other_versions_of_pocl_have_no_header():
    assert header("2026.22.10.0.01_160000") is None and header("6.0") is None
    assert len(list(PoclVariants("6.0")(EXP))) == 1


def test_results(fresh):
    out = fresh.from_host(np.zeros(1, "float32"))
    fresh.kernel(KernelSource("f", EXP)).launch(fresh.queue, (1,), (1,), out.buffer)
    assert out.to_host() == [1]


def test_only_pocl_has_variants(fresh):
    found = list(fresh.programs._variants(EXP))
    if "Portable" not in fresh.info.platform:
        assert found == [variants.BuildVariant(EXP)]
    elif header(fresh.info.driver):
        assert [way.options for way in found] == [(SKIP_HEADER,), ()] and found[1].text == EXP
        assert found[0].is_new and not next(fresh.programs._variants(EXP)).is_new
        assert len(found[0].text) < 20_000


def test_a_program_that_misses_a_declaration_is_built_with_all(fresh, monkeypatch):
    monkeypatch.setattr(pocl_variants, "declare", lambda text, _: text)
    fresh.kernel(KernelSource("f", EXP))


@pytest.mark.parametrize("options", [(), ("-DWITHOUT_LONG_COMPARISONS",)])
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
def test_vectors_of_int_become_long_in_the_first_variant(fresh, lanes, options):
    """A name that the preprocessor puts together would not be declared: the driver would build the program twice."""
    text = f"""{render("common/to_long")}
    __kernel void f(__global const int *x, __global long *y) {{
        vstore{lanes}({to_long("int", f"vload{lanes}(0, x)", lanes)}, 0, y);
    }}"""
    variant = next(fresh.programs._variants(text))
    program = fresh.programs._build(variant._replace(options=(*variant.options, *options)), ())
    x = np.arange(-3, lanes - 3, dtype="int32")
    y = fresh.empty((lanes,), "int64")
    Kernel(cl.Kernel(program, "f")).launch(fresh.queue, (1,), None, fresh.from_host(x).buffer, y.buffer)
    np.testing.assert_array_equal(y.to_host(), x)


def test_templates_put_no_names_of_functions_together():
    for file in _directory().rglob("*.mako"):
        lines = [line for line in file.read_text().splitlines() if not line.lstrip().startswith("##")]
        assert not re.search(r"(?<!end_)##\w+\s*\(", "\n".join(lines)), file


def test_errors_are_those_of_the_program_as_it_is(fresh):
    bad = "__kernel void bad(__global float *x) { x[0] = exp(oops); }"
    with pytest.raises(CompilationError, match="oops") as caught:
        fresh.kernel(KernelSource("bad", bad))
    assert caught.value.source == bad


@pytest.mark.parametrize("real", ["float", "double"])
@pytest.mark.parametrize("lanes", ["", "4", "16"])
def test_built_ins_of_the_program_itself(fresh, real, lanes):
    if "Portable" not in fresh.info.platform:
        pytest.skip("PoCL's")
    fresh.programs._variants = PoclVariants(fresh.info.driver, defines_builtins=True)
    vector, mask = real + lanes, {"float": "int", "double": "long"}[real] + lanes
    calls = ("fma(a, a, -(a * a))", "fabs(a)", "copysign(b, a)", "floor(a)", "ceil(a)", "trunc(a)", "rint(a)")
    calls += ("fmax(a, b)", "fmin(a, b)", f"select(a, b, ({mask})(a < b))", f"fmax(a, ({real})1)")
    body = " ".join(f"y[{k}] = {call};" for k, call in enumerate(calls))
    text = (
        f"__kernel void f(__global {vector} *x, __global {vector} *y) {{ const {vector} a = x[0], b = x[1]; {body} }}"
    )
    (way, *_) = fresh.programs._variants(text)
    is_known = header(fresh.info.driver) is not None  # another PoCL gets the program as it is
    assert [f"define {call.partition('(')[0]} inlined_" in way.text for call in calls] == [is_known] * len(calls)
    assert "sqrt" not in way.text
    dtype, count = np.dtype({"float": "f4", "double": "f8"}[real]), int(lanes or 1)
    a = np.array([0.1, -2.5, np.nan, 1e30, -0.0, 3.5, -0.3, -np.inf] * 2)[:count].astype(dtype)
    b = np.array([np.nan, 0.5, 7, -4, 1, 3.7, -2, 2] * 2)[:count].astype(dtype)
    x, y = fresh.from_host(np.stack([a, b])), fresh.from_host(np.zeros((len(calls), count), dtype))
    fresh.kernel(KernelSource("f", text)).launch(fresh.queue, (1,), (1,), x.buffer, y.buffer)
    with np.errstate(all="ignore"):
        error = (a[0].astype("g") ** 2 - (a * a)[0]).astype(dtype)
        expected = [np.abs(a), np.copysign(b, a), np.floor(a), np.ceil(a), np.trunc(a), np.rint(a), np.fmax(a, b)]
        expected += [np.fmin(a, b), np.where(a < b, b, a), np.fmax(a, 1)]
    result = y.to_host()
    assert error != 0 and result[0, 0] == pytest.approx(error, rel=1e-3, abs=0)
    np.testing.assert_array_equal(result[1:], expected)


@pytest.mark.parametrize("lanes", ["", "2", "8"])
@pytest.mark.parametrize("kind", ["char", "uchar", "short", "int", "uint", "long", "ulong", "float"])
def test_least_and_largest_of_the_program_itself(fresh, kind, lanes):
    if "Portable" not in fresh.info.platform:
        pytest.skip("PoCL's")
    fresh.programs._variants = PoclVariants(fresh.info.driver, defines_builtins=True)
    calls = ["min(a, b)", "max(a, b)", "max(b, a)", f"min(a, ({kind})3)"]
    body = " ".join(f"y[{k}] = {call};" for k, call in enumerate(calls))
    vector = kind + lanes
    text = (
        f"__kernel void f(__global {vector} *x, __global {vector} *y) {{ const {vector} a = x[0], b = x[1]; {body} }}"
    )
    (way, *_) = fresh.programs._variants(text)
    is_known = header(fresh.info.driver) is not None  # another PoCL gets the program as it is
    assert [f"define {name} inlined_{name}" in way.text for name in ("min", "max")] == [is_known] * 2
    names = {"char": "i1", "uchar": "u1", "short": "i2", "int": "i4", "uint": "u4", "long": "i8", "ulong": "u8"}
    dtype, count = np.dtype(names.get(kind, "f4")), int(lanes or 1)
    a, b = (np.array(values)[:count].astype(dtype) for values in ([5, 1, -2, 0, 127, 3, -128, 9], [4, 2, -3, 7] * 2))
    x, y = fresh.from_host(np.stack([a, b])), fresh.from_host(np.zeros((len(calls), count), dtype))
    fresh.kernel(KernelSource("f", text)).launch(fresh.queue, (1,), (1,), x.buffer, y.buffer)
    expected = [np.minimum(a, b), np.maximum(a, b), np.maximum(a, b), np.minimum(a, dtype.type(3))]
    np.testing.assert_array_equal(fresh.download(y), np.stack(expected))
