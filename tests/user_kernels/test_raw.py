"""Raw kernels on arrays: values, arguments of all kinds, strides and offsets, options, programs that are shared."""

import base64
import ctypes
import os
import pickle
import zlib
from threading import Barrier, Thread

import numpy as np
import pyopencl as cl
import pytest

import pytensor_cl
from pytensor_cl import LocalMemory, RawKernel, RawModule
from pytensor_cl.errors import OpenCLError
from pytensor_cl.runtime.memory.parts import parts_of
from pytensor_cl.runtime.program import ProgramCache
from pytensor_cl.user_kernels import arguments
from pytensor_cl.user_kernels.programs import user_program

TRANSPOSE = """
__kernel void transpose(__global const float *x, __global float *z, int rows, int columns, __local float *tile) {
    // A work-group copies a tile of TILE x TILE; reads and writes of neighbours are neighbours.
    int i = get_local_id(1), j = get_local_id(0);
    int row = get_group_id(1) * TILE + i, column = get_group_id(0) * TILE + j;
    if (row < rows && column < columns) tile[i * (TILE + 1) + j] = x[row * columns + column];
    barrier(CLK_LOCAL_MEM_FENCE);
    row = get_group_id(0) * TILE + i;
    column = get_group_id(1) * TILE + j;
    if (row < columns && column < rows) z[row * rows + column] = tile[j * (TILE + 1) + i];
}
"""
TWICE = """
__kernel void twice(__global const float *x, long x0, long r, long c, __global float *z, long rows, long columns) {
    long j = get_global_id(0), i = get_global_id(1);
    if (i < rows && j < columns) z[i * columns + j] = 2 * x[x0 + i * r + j * c];
}
"""
NUMBERS = """
typedef float real;
typedef struct { char tag; double weight; short counts[3]; float4 corner; } plan;
__kernel void numbers(__global double *z, char a, uchar b, short c, ushort d, int e, uint f, long g, ulong h, real k,
                      float2 v, int3 w, plan p, __global const float2 *pairs) {
    double all[] = {a, b, c, d, e, f, g, h, k, v.x, v.y, w.x, w.y, w.z, p.tag, p.weight, p.counts[2], p.corner.w,
                    pairs[1].x, pairs[1].y};
    for (int i = 0; i < 20; i++) z[i] = all[i];
}
"""


def test_transpose_with_local_memory(context, rng):
    tile = 8
    kernel = RawKernel(TRANSPOSE, "transpose", (f"-DTILE={tile}",))
    x = rng.standard_normal((21, 13)).astype("float32")
    z = context.empty((13, 21), "float32")
    local = LocalMemory(tile * (tile + 1) * 4)
    kernel((2, 3), (tile, tile), (context.from_host(x), z, *x.shape, local))
    np.testing.assert_array_equal(np.asarray(z), x.T)
    facts = kernel.attributes
    assert facts["max_work_group_size"] >= tile * tile
    assert facts["parameters"][:3] == ["__global const float *x", "__global float *z", "int rows"]
    assert "   11 |" in kernel.source() and kernel.cached_code == TRANSPOSE


def test_strides_are_passed_by_name(context, rng):
    kernel = RawKernel(TWICE, "twice", strided="x")
    whole = rng.standard_normal((7, 9)).astype("float32")
    for view in (np.s_[:, :], np.s_[::-2, 1::3], np.s_[3:, ::-1]):
        x, z = context.from_host(whole)[view].T, context.empty(whole[view].T.shape, "float32")
        kernel(z.shape[::-1], None, (x, x.layout.offset, *x.layout.strides, z, *z.shape))
        np.testing.assert_array_equal(np.asarray(z), 2 * whole[view].T)


def test_offsets_of_inputs_and_outputs(context):
    """A view that begins where the device takes no sub-buffer is copied, and written back."""
    code = (
        "__kernel void add(__global float *z, __global const float *x) { z[get_global_id(0)] += x[get_global_id(0)]; }"
    )
    kernel = RawKernel(code, "add")
    begins = context.device.mem_base_addr_align // 8 // 4
    for offset in (1, begins, begins + 3):
        host = np.arange(2 * begins + 8, dtype="float32")
        z, x = context.from_host(host), context.from_host(host)
        kernel(4, None, (z[offset : offset + 4], x[offset + 1 : offset + 5]))
        host[offset : offset + 4] += np.asarray(x)[offset + 1 : offset + 5]
        np.testing.assert_array_equal(np.asarray(z), host)
    # Of two arrays that are written, one would get its old elements back.
    two = RawKernel("__kernel void two(__global float *z, __global float *w) { z[0] = 10; w[0] = 20; }", "two")
    two(1, 1, (z[1:3], z[3:]))
    np.testing.assert_array_equal(np.asarray(z)[:4], [0, 10, host[2], 20])
    for first in (z, z[1:]):
        with pytest.raises(ValueError, match=r"kernel 'two' writes '.' and '.', which overlap"):
            two(1, 1, (first, z[3:]))


def test_parts_that_were_made_serve_again(context, monkeypatch):
    """Where a buffer has as many parts as it may have, views that have none are copied."""
    monkeypatch.setattr(arguments, "MOST_PARTS", 1)
    kernel = RawKernel("__kernel void twice(__global float *z) { z[get_global_id(0)] *= 2; }", "twice")
    begins = context.device.mem_base_addr_align // 8 // 4
    z = context.from_host(np.ones(3 * begins, "float32"))
    copies, copy = [], arguments.dense_copy
    monkeypatch.setattr(arguments, "dense_copy", lambda x: copies.append(x.layout.offset) or copy(x))
    for first in (begins, 2 * begins, begins):
        kernel(4, None, (z[first : first + 4],))
    assert copies == [2 * begins] and len(parts_of(z.buffer)) == 1
    np.testing.assert_array_equal(np.asarray(z)[[0, begins, 2 * begins]], [1, 4, 2])


def test_numbers_are_converted_to_the_declared_types(context):
    if not context.info.has_fp64:
        pytest.skip("the kernel computes in double precision")
    kernel = RawKernel(NUMBERS, "numbers")
    dtype = [("tag", "i1"), ("weight", "f8"), ("counts", "i2", (3,)), ("corner", "f4", (4,))]  # not aligned as in C
    plan = np.array((-3, 2.5, (1, 2, -7), (1, 2, 3, 4.5)), dtype)
    pairs = context.from_host(np.array([1 + 2j, 3 - 4j], "complex64"))
    numbers = (
        -128,
        np.uint8(255),
        np.int64(-32768),
        True,
        np.int32(-5),
        2**32 - 1,
        -(2**63),
        2**64 - 1,
        np.float64(0.1),
    )
    z = context.empty((20,), "float64")
    kernel(1, 1, (z, *numbers, 1.5 - 2j, (7, -8, 9), plan, pairs))
    expected = [*map(float, numbers[:-1]), np.float32(0.1), 1.5, -2, 7, -8, 9, -3, 2.5, -7, 4.5, 3, -4]
    np.testing.assert_array_equal(np.asarray(z), np.array(expected, "float64"))


def test_structs_must_have_the_members_of_the_value(context):
    code = """typedef struct { float a; long n; } pair;
    __kernel void f(__global float *z, pair p) { z[0] = p.a * p.n; }"""
    kernel, z = RawKernel(code, "f"), context.empty((1,), "float32")
    kernel(1, 1, (z, np.array((3, 0.5), [("n", "i8"), ("a", "f4")])))  # in any order
    assert np.asarray(z)[0] == 1.5
    for dtype, message in (
        ([("a", "f4"), ("m", "i8")], "struct pair has no member 'm'"),
        ([("a", "f4")], "struct pair has members which the value's dtype"),
        ([("a", "f4"), ("n", "i4")], "member 'n' has 8 bytes in struct pair, 4 in the value's dtype"),
    ):
        with pytest.raises(TypeError, match=message):
            kernel(1, 1, (z, np.zeros((), dtype)))
    with pytest.raises(TypeError, match="NumPy value of a structured dtype with the members of pair"):
        kernel(1, 1, (z, 3.0))


def test_arrays_of_structs_and_null_pointers(context):
    code = """typedef struct { int n; float x; } item;
    __kernel void f(__global const item *items, __global float *z, __global float *more) {
        int i = get_global_id(0);
        z[i] = more ? -1 : items[i].n * items[i].x; }"""
    items = np.array([(2, 1.5), (3, -1)], [("n", "i4"), ("x", "f4")])
    z = context.empty((2,), "float32")
    RawKernel(code, "f")(2, None, (context.from_host(items.view("uint8")), z, None))
    np.testing.assert_array_equal(np.asarray(z), [3, -3])


def _count_builds(monkeypatch):
    built, build = [], ProgramCache.build_own

    def counted(programs, code, options):
        built.append(code)
        return build(programs, code, options)

    monkeypatch.setattr(ProgramCache, "build_own", counted)
    return built


def test_kernels_of_one_text_are_built_once(context, monkeypatch, tmp_path):
    built = _count_builds(monkeypatch)
    code = (
        """__kernel void one(__global int *z) { z[get_global_id(0)] = N; }
    __kernel void two(__global int *z) { z[get_global_id(0)] = 2 * N; }
    """
        f"// {tmp_path}"
    )
    z = context.empty((3,), "int32")
    for _ in range(3):
        RawKernel(code, "one", "-DN=5")(3, None, (z,))
        RawModule(code=code, options=("-DN=5",)).get_function("two")(3, 1, (z,))
    assert np.asarray(z).tolist() == [10] * 3 and len(built) == 1
    RawKernel(code, "one", ["-DN=6"])(3, None, (z,))
    assert np.asarray(z).tolist() == [6] * 3 and len(built) == 2


def test_files_and_changed_headers(context, tmp_path):
    (tmp_path / "inner.h").write_text("#define FACTOR 3\n")
    (tmp_path / "outer.h").write_text('#include "inner.h"\n')
    file = tmp_path / "scale.cl"
    file.write_text('#include "outer.h"\n__kernel void f(__global int *z) { z[get_global_id(0)] = FACTOR; }\n')
    z = context.empty((2,), "int32")
    for factor in (3, 4):
        (tmp_path / "inner.h").write_text(f"#define FACTOR {factor}\n")
        RawModule(path=file, options=("-I", str(tmp_path))).get_function("f")(2, None, (z,))
        assert np.asarray(z).tolist() == [factor] * 2


def test_the_words_of_libgpuarray(context):
    code = """#include "cluda.h"
    KERNEL void f(GLOBAL_MEM ga_float *z, ga_size n, LOCAL_MEM_ARG ga_int *t) {
        ga_size i = GID_0 * LDIM_0 + LID_0;
        t[LID_0] = LID_0;
        local_barrier();
        if (i < n) z[i] = t[LDIM_0 - 1 - LID_0] + 10 * (ga_int)GDIM_0; }"""
    z = context.empty((6,), "float32")
    RawKernel(code, "f", options=("-Icluda",))(2, 3, (z, 6, LocalMemory(12)))
    assert np.asarray(z).tolist() == [22, 21, 20] * 2


def test_empty_grids_launch_nothing(context):
    kernel = RawKernel("__kernel void f(__global float *z) { z[0] = 1; }", "f")
    z = context.from_host(np.zeros(1, "float32"))
    kernel(0, None, (z,))
    kernel((2, 0), (1, 1), (z,))
    assert np.asarray(z)[0] == 0
    kernel([1], [1], [z])
    assert np.asarray(z)[0] == 1


def test_required_work_groups(context):
    code = """__kernel __attribute__((reqd_work_group_size(4, 1, 1)))
    void f(__global int *z) { z[get_global_id(0)] = get_local_size(0); }"""
    kernel, z = RawKernel(code, "f"), context.empty((8,), "int32")
    kernel(8, None, (z,))
    assert np.asarray(z).tolist() == [4] * 8 and kernel.attributes["compile_work_group_size"] == (4, 1, 1)
    with pytest.raises(ValueError, match=r"is declared for work-groups of \(4, 1, 1\), not of \(2,\)"):
        kernel(4, 2, (z,))
    with pytest.raises(ValueError, match="is no multiple"):
        kernel(6, None, (z,))


def test_pickles_hold_the_text(context):
    kernel = RawKernel("__kernel void f(__global int *z, int n) { z[0] = n; }", "f", "-DA=1", strided="z")
    z = context.empty((1,), "int32")
    kernel(1, 1, (z, 3))
    restored = pickle.loads(pickle.dumps(kernel))
    assert restored == kernel and hash(restored) == hash(kernel) and restored is not kernel
    assert kernel != RawKernel(kernel.code, "f", "-DA=2", strided="z")
    restored(1, 1, (z, 4))
    assert np.asarray(z)[0] == 4
    module = pickle.loads(pickle.dumps(RawModule(code=kernel.code)))
    module.get_function("f")(1, 1, (z, 5))
    assert np.asarray(z)[0] == 5


def test_threads_have_arguments_of_their_own(context):
    kernel = RawKernel("__kernel void f(__global int *z, int n) { z[get_global_id(0)] = n; }", "f")
    kernel.compile(context.name)
    start, wrong = Barrier(4), []

    def work(n):
        z = context.empty((16,), "int32")
        start.wait()
        for k in range(50):
            kernel(16, None, (z, 100 * n + k))
        if not (np.asarray(z) == 100 * n + 49).all():
            wrong.append(n)

    threads = [Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_parameters_are_kept_with_compiled_programs(context, monkeypatch):
    """A program whose binary was kept on disk does not tell its parameters: they are kept, or read from the text."""
    from pytensor_cl.user_kernels import signature

    code = """typedef unsigned int count; /* , a comment */
    __kernel void f(__global const float *restrict x, const __local int *t, count n,
                    __attribute__((unused)) const unsigned char b, __constant real2 *c, __global T y[]) { }"""
    options = ("-Dreal2=float2", "-DT=short")
    program = user_program(context, code, options, "a test")
    kernel = program.kernel("f")
    found = kernel.parameters
    (binary,) = program._program.get_info(cl.program_info.BINARIES)
    restored = cl.Program(context.cl_context, [context.device], [binary]).build()
    assert program.parameters(cl.Kernel(restored, "f"), "f") == found
    aliases = dict(signature._aliases(code, options))
    parsed = [
        signature.Parameter(n, signature.resolve(k, aliases), s, c) for n, k, s, c in signature._from_text(code, "f")
    ]
    assert [p[:3] for p in parsed[:3]] == [p[:3] for p in found[:3]]
    assert [p.declaration for p in parsed[:5]] == [p.declaration for p in found[:5]]
    # What is kept is found; where it is lost, the program is compiled again; where that does not help, the text is read.
    key = b"a test" + os.urandom(8)
    told = iter([None, signature._from_driver(kernel.kernel.handle), None])
    monkeypatch.setattr(signature, "_from_driver", lambda kernel: next(told))
    handle = kernel.kernel.handle
    for _ in range(2):
        assert signature.read_parameters(handle, "f", code, options, key, lambda: handle) == found
    monkeypatch.setattr(signature, "_from_driver", lambda kernel: None)
    key = b"another key" + os.urandom(8)
    assert signature.read_parameters(handle, "f", code, options, key, lambda: handle) == parsed


def test_printf_comes_after_a_wait(context, capfd):
    RawKernel('__kernel void f(int n) { printf("n is %d\\n", n); }', "f")(1, 1, (7,))
    pytensor_cl.sync()
    ctypes.CDLL(None).fflush(None)
    assert "n is 7" in capfd.readouterr().out


# kernel void fill(global int *z, int n) { z[get_global_id(0)] = n; }, by clang-15 and llvm-spirv-15, for SPIR-V 1.0
SPIRV = (
    "c-oCp-Acn?3{8Jl>+0s#xq0J-A_xQV(jP<-1xG;;pP)>qP$*q-"
    "b&uimdLwv}o<b2XZ26j;B<CbwHqSlW5OJh0flQ=+hT@7(+o26;BiIO02llaiE$$vpR@Fkl_mCAk+o-"
    "PVMc%SJS54LN>=h|L9pK1fX}T)2_jP*vk>yoV%<|>)JWq=C@?~CS%OY7A*OzWfYbHJ8PXEbwjN=(+V!m&_-"
    "eu2lVEWTm4`H3w9C7{zALIDM@vnT`%8&8YecVt_F_ta+#Jj*Acjj5#H=aX0;@&kLvWM~y;BCTcE@bSI+z$Dt@HF3LFRed=YRG%5u"
    "e>dsFZAibUV))~`_yqc>l0A@yVf~<?h#Y10rfO@jo5&iE_d*aY0hz)d4_+?6Sw9Wah@I63;vJByhqG@qxl1288fQ"
)


def test_spirv(context, tmp_path):
    """Drivers that take SPIR-V run it; others say so."""
    file = tmp_path / "kernel.spv"
    file.write_bytes(zlib.decompress(base64.b85decode(SPIRV)))
    kernel = RawModule(path=file).get_function("fill")
    z = context.from_host(np.zeros(4, "int32"))
    if "SPIR-V" not in context.device.il_version:
        with pytest.raises(OpenCLError, match="module 'kernel.spv' .*takes no SPIR-V: use the OpenCL C source"):
            kernel(4, None, (z, np.int32(7)))
        return
    kernel(4, None, (z, np.int32(7)))
    assert np.asarray(z).tolist() == [7] * 4


def test_public_names():
    assert {"RawKernel", "RawModule", "LocalMemory"} <= set(dir(pytensor_cl))
