"""Outlined kernels: their bodies are functions."""

import numpy as np
import pytest

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.routines.check import Check
from pytensor_cl.runtime.compilation.variants import BuildVariant
from pytensor_cl.runtime.context import open_context
from pytensor_cl.runtime.pocl.outlining import outline, outlined_kernels

ALONE = "__attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))"
BODY = """(__global const float *restrict x, /* a comma, a bracket ) and a brace } */
             __global float *y, const plan p) // {
{
    const long part = get_global_id(0), parts = get_global_size(0);
    for (long i = p.n * part / parts; i < p.n * (part + 1) / parts; ++i) { y[i] = x[i] + p.n; } // }
    if (get_global_id(1) == 0 && part == 0) { y[p.n] = parts; }
}
"""
STRUCT = "typedef struct { long n; } plan;\n"


def kernel(name, head=f"__kernel {ALONE}\nvoid"):
    return f"{head} {name}{BODY}"


@pytest.mark.parametrize("head", [f"__kernel {ALONE}\nvoid", f"{ALONE}\n__kernel void"])
def test_the_function_is_called_with_all_parameters_and_numbers(head):
    text = outline(STRUCT + kernel("f", head) + "// end")
    call = "f_body(x, y, p, get_global_id(0), get_global_size(0), get_global_id(1));"
    assert text.count("void f_body(") == 1 and call in text
    assert text.startswith(STRUCT) and text.endswith("}\n// end") and "noinline" in text
    function = text[: text.index(head)]
    assert "part = global_id_0, parts = global_size_0" in function and "get_global" not in function


def test_kernels_that_cannot_be_outlined_are_unchanged():
    group = kernel("f").replace("(1, 1, 1)", "(8, 1, 1)")
    local = kernel("f").replace("\n{\n", "\n{\n    __local float shared[4];\n")
    plain = kernel("f").replace(f" {ALONE}", "")
    unfinished = kernel("f")[:-3]
    for text in (group, local, plain, unfinished, "", "// nothing\n"):
        assert outline(text) == text


def test_results(context):
    fresh = open_context(f"opencl:{context.name}", "fresh")
    x = np.arange(10, dtype="float32")
    for name, rewrite in (("plain", str), ("outlined", outline)):
        fresh.programs._variants = lambda text, rewrite=rewrite: iter((BuildVariant(rewrite(text)),))
        source = KernelSource(name, STRUCT + kernel(name))
        y = fresh.empty((11,), "float32")
        launched = fresh.kernel(source)
        buffers = fresh.from_host(x).buffer, y.buffer
        launched.launch(fresh.queue, (3, 2), (1, 1), *buffers, np.int64(10).tobytes())
        np.testing.assert_array_equal(fresh.download(y), [*(x + 10), 3])


def test_check_of_a_condition_is_outlined(context):
    """Without it, no other kernel of a function with a check would be in a batch."""
    (source,) = Check(context, ValueError, "no").sources()
    assert outlined_kernels(outline(source.source)) == [source.name]
