"""Building programs and launching kernels."""

import gc
from collections import deque
from weakref import ref

import numpy as np
import pytest

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.errors import CompilationError
from pytensor_cl.runtime import interrupts
from pytensor_cl.runtime.context import open_context
from pytensor_cl.runtime.program import assemble

HELPER = "float twice(float x) { return 2 * x; }"


def scale(name, factor="s"):
    body = f"__kernel void {name}(__global float *x, float s) {{ x[get_global_id(0)] = twice(x[get_global_id(0)]) * {factor}; }}"
    return KernelSource(name, body, (HELPER,))


@pytest.fixture
def fresh(context):
    return open_context(f"opencl:{context.name}", "fresh")


def test_preambles_come_once_and_first():
    text = assemble([scale("a"), scale("b"), KernelSource("c", "// c", ("// other",))])
    assert text.startswith(HELPER) and text.count(HELPER) == 1
    assert text.index("// other") < text.index("void a") < text.index("void b") < text.index("// c")


def test_one_program_for_all_new_kernels(fresh, monkeypatch):
    texts = []
    compile_text = fresh.programs.build_text
    monkeypatch.setattr(fresh.programs, "build_text", lambda text: (texts.append(text), compile_text(text))[1])
    fresh.build([scale("a"), scale("b"), scale("a")])
    fresh.build([scale("a"), scale("c")])
    fresh.build([scale("b")])
    assert len(texts) == 2 and "void b" in texts[0] and "void a" not in texts[1] and "void c" in texts[1]


def test_new_kernels_ask_the_driver_for_their_name_alone(fresh, monkeypatch):
    """pyopencl asked for a kernel of the name of an attribute, where a program did not have that attribute."""
    kernel, asked = fresh.kernel(scale("a")), []
    monkeypatch.setattr(type(fresh.build([scale("a")])[0]), "__getattr__", lambda program, name: asked.append(name))
    assert fresh.programs.clone(kernel.handle).handle.function_name == "a" and not asked


def test_programs_of_users_are_built_by_a_thread_that_is_kept_if_any_is(fresh, monkeypatch):
    monkeypatch.setattr(interrupts, "_idle", [])
    monkeypatch.setattr(fresh.programs, "_keeps_thread", True)
    fresh.programs.build_own("__kernel void f() {}", (), is_fresh=True)
    assert len(interrupts._idle) == 1


def test_unused_programs_are_dropped(fresh, monkeypatch):
    monkeypatch.setattr(fresh.programs, "_recent", deque(maxlen=1))
    kernel, programs = fresh.kernel(scale("a")), fresh.build([scale("b")])
    gone = ref(fresh.build([scale("c")])[0])
    fresh.build([scale("d")])
    gc.collect()
    assert gone() is None
    built = []
    compile_text = fresh.programs.build_text
    monkeypatch.setattr(fresh.programs, "build_text", lambda text: (built.append(text), compile_text(text))[1])
    assert fresh.build([scale("b")]) == programs and not built
    fresh.kernel(scale("a"))
    assert not built
    del kernel, programs
    gc.collect()
    fresh.build([scale("a"), scale("b"), scale("d")])
    assert len(built) == 1 and "void a" in built[0] and "void b" in built[0] and "void d" not in built[0]


def test_launch_with_buffers_scalars_and_structs(fresh):
    array = fresh.from_host(np.arange(5000, dtype="float32"))
    fresh.kernel(scale("k")).launch(fresh.queue, (5000,), None, array.buffer, np.float32(3))
    np.testing.assert_array_equal(array.to_host(), np.arange(5000, dtype="float32") * 6)
    struct = KernelSource(
        "s",
        "typedef struct { long n; long at[2]; } plan;\n"
        "__kernel void s(plan p, __global long *x, __global long *none)"
        " { x[0] = p.n; x[1] = p.at[0]; x[2] = p.at[1]; x[3] = none == 0; }",
        (),
    )
    out = fresh.empty((4,), "int64")
    plan = np.array([7, -8, 9], "int64").tobytes()
    fresh.kernel(struct).launch(fresh.queue, (1,), (1,), plan, out.buffer, None)
    np.testing.assert_array_equal(out.to_host(), [7, -8, 9, 1])


def test_kernel_objects_have_arguments_of_their_own(fresh):
    one, two = fresh.kernel(scale("k")), fresh.kernel(scale("k"))
    assert one.handle != two.handle
    assert one.max_work_group_size(fresh.device) >= 1


def test_other_functions_of_a_source(fresh):
    source = KernelSource(
        "m", "__kernel void m(__global int *x) { x[0] = 1; }\n__kernel void m_b(__global int *x) { x[0] = 2; }", ()
    )
    out = fresh.empty((1,), "int32")
    fresh.kernel(source, "m_b").launch(fresh.queue, (1,), None, out.buffer)
    assert out.to_host() == [2]


def test_a_failed_build_can_be_repeated(fresh):
    bad = KernelSource("bad", "__kernel void bad() { oops }", ())
    for _ in range(2):
        with pytest.raises(CompilationError, match="oops"):
            fresh.build([scale("k"), bad])
    fresh.build([scale("k")])
