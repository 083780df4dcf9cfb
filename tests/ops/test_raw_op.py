"""Raw kernels of the user's as Ops: strides, local memory, numbers, shapes, batches, gradients, errors, other modes."""

import pickle

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import verify_grad
from pytensor.graph.replace import vectorize_graph

import pytensor_cl
from pytensor_cl import ElementwiseKernel, LocalMemory, RawKernel, as_op
from pytensor_cl.errors import CompilationError
from pytensor_cl.linker.run.graph_cache import WARMUP_CALLS
from pytensor_cl.ops.user_kernels.raw import GpuRaw
from tests.helpers import assert_all_on_device, device_ops, normal, opencl

CALLS = WARMUP_CALLS + 3
TWICE = RawKernel(
    """
__kernel void twice(__global const float *x, long x0, long r, long c, __global float *z, long rows, long columns) {
    long j = get_global_id(0), i = get_global_id(1);
    if (i < rows && j < columns) z[i * columns + j] = 2 * x[x0 + i * r + j * c]; }""",
    "twice",
    strided=("x",),
)
AXPY = RawKernel(
    """
__kernel void axpy(__global const float *x, float a, __global const float *y, __global float *z, int n) {
    int i = get_global_id(0);
    if (i < n) z[i] = a * x[i] + y[i]; }""",
    "axpy",
)
# Sums of the elements of each work-group, by way of local memory.
SUMS = RawKernel(
    """
__kernel void sums(__global const float *x, int n, __global float *z, __global int *counts, __local float *t) {
    int i = get_global_id(0), k = get_local_id(0);
    t[k] = i < n ? x[i] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (k == 0) {
        float sum = 0;
        for (int j = 0; j < (int)get_local_size(0); j++) sum += t[j];
        z[get_group_id(0)] = sum;
        counts[get_group_id(0)] = min((int)get_local_size(0), n - i);
    }
}""",
    "sums",
)
GROUP = 4


def launch_twice(x, z):
    return z.shape[::-1], None, (x, x.layout.offset, *x.layout.strides, z, *z.shape)


def twice_gradient(x, z, gz):
    return [2 * gz]


def launch_sums(x, z, counts):
    return z.size, GROUP, (x, x.size, z, counts, LocalMemory(4 * GROUP))


def groups(node, shapes):
    (n,) = shapes[0]
    return [((n + GROUP - 1) // GROUP,)] * 2


def double_on_host(x):
    return 2 * x


twice_op = as_op(TWICE, signature="(m,n)->(m,n)", outputs=["x"], launch=launch_twice, grad=twice_gradient)
axpy_op = as_op(AXPY, signature="(n),(),(n)->(n)", grad=lambda x, a, y, z, gz: [a * gz, (gz * x).sum(), gz])
sums_op = as_op(SUMS, signature="(n)->(k),(k)", launch=launch_sums, infer_shape=groups)


def test_strides_are_passed_without_a_copy(context, rng):
    x = pt.fmatrix("x")
    f = opencl([x], [twice_op(x.T), twice_op(x[1:, ::-2])])
    assert_all_on_device(f, GpuRaw)
    for _ in range(CALLS):
        value = normal(rng, 5, 6)
        for got, expected in zip(f(value), (2 * value.T, 2 * value[1:, ::-2]), strict=True):
            np.testing.assert_array_equal(got, expected)
    (captured,) = f.vm.executor.graphs.values()
    assert captured.kernels == 2 and f.vm.executor.replay_count >= 2  # two launches of the user's kernel, no copies
    assert "Gputwice" in str(pytensor_cl.explain(f))


def test_other_inputs_are_made_contiguous(context, rng):
    x, y, a = pt.fmatrix("x"), pt.fvector("y"), pt.fscalar("a")
    f = opencl([x, y, a], [axpy_op(x[:, 1], a, y[1:]), axpy_op(y[1:], 3, y[:-1])])
    assert_all_on_device(f, GpuRaw)
    for k in range(CALLS):  # captured once: the number is an argument, in the replays too
        u, v = normal(rng, 5, 3), normal(rng, 6)
        got = f(u, v, np.float32(k))
        np.testing.assert_allclose(got[0], k * u[:, 1] + v[1:], rtol=1e-6)
        np.testing.assert_allclose(got[1], 3 * v[1:] + v[:-1], rtol=1e-6)
    assert len(f.vm.executor.graphs) == 1 and f.vm.executor.replay_count >= 2


def test_local_memory_and_shapes_of_ones_own(context, rng):
    x = pt.fvector("x")
    z, counts = sums_op(x)
    assert z.type.dtype == "float32" and counts.type.dtype == "int32" and z.type.shape == (None,)
    f, shape = opencl([x], [z * 2, counts]), opencl([x], z.shape)
    for n in (11, 11, 11, 11, 8):
        value = normal(rng, n)
        parts = [value[i : i + GROUP] for i in range(0, n, GROUP)]
        sums, sizes = f(value)
        np.testing.assert_allclose(sums, [2 * part.sum() for part in parts], rtol=1e-5, atol=1e-6)
        assert sizes.tolist() == list(map(len, parts)) and shape(value).tolist() == [len(parts)]
    assert GpuRaw in map(type, device_ops(f)) and GpuRaw not in map(type, device_ops(shape))
    assert f.vm.executor.replay_count >= 1


def test_batches(context, rng):
    x, y, a = pt.fmatrix("x"), pt.fvector("y"), pt.fscalar("a")
    xs, ys, scales = pt.tensor3("xs", dtype="float32"), pt.fmatrix("ys"), pt.fvector("scales")
    doubled = vectorize_graph(twice_op(x.T), {x: xs})
    scaled = vectorize_graph(axpy_op(y, a, y), {y: ys, a: scales})
    same = vectorize_graph(axpy_op(y, a, y), {y: ys})
    f = opencl([xs, ys, scales, a], [doubled, scaled, same, *pt.grad(scaled.sum() + doubled.sum(), [ys, xs])])
    assert GpuRaw in map(type, device_ops(f))
    for k in range(CALLS):
        u, v, s = normal(rng, 3, 2, 5), normal(rng, 4, 5), np.arange(4, dtype="float32")
        got = f(u, v, s, np.float32(k))
        expected = (2 * u.transpose(0, 2, 1), (s[:, None] + 1) * v, (k + 1) * v, (s[:, None] + 1) + 0 * v, 2 + 0 * u)
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert f.vm.executor.replay_count >= 1


def test_gradients(context, rng):
    v = rng.normal(size=4).astype("float32")
    mode = pytensor.compile.mode.get_mode("OPENCL")
    verify_grad(axpy_op, [v, np.float32(0.5), v + 1], mode=mode, rng=rng, rel_tol=1e-2, abs_tol=1e-2)
    x = pt.fvector("x")
    with pytest.raises(NotImplementedError, match="op sums has no gradient: pass grad= to as_op"):
        pt.grad(sums_op(x)[0].sum(), x)


def test_equal_kernels_are_one_op_and_pickle(context):
    again = RawKernel(TWICE.code, "twice", strided="x")
    other = as_op(again, signature="(m, n) -> (m, n)", outputs=["x"], launch=launch_twice, grad=twice_gradient)
    x = pt.fmatrix("x")
    f = opencl([x], [twice_op(x), other(x)])
    assert other == twice_op and len([op for op in device_ops(f) if isinstance(op, GpuRaw)]) == 1
    assert pickle.loads(pickle.dumps(twice_op)) == twice_op
    assert as_op(TWICE, signature="(m,n)->(m,n)", outputs=["x"], launch=launch_twice) != twice_op


def test_other_modes(context, rng):
    x = pt.fmatrix("x")
    value = normal(rng, 3, 4)
    on_host = as_op(
        TWICE, signature="(m,n)->(m,n)", outputs=["x"], launch=launch_twice, perform=double_on_host, name="hosted"
    )
    batch = vectorize_graph(twice_op(x), {x: pt.stack([x, x + 1])})
    f = pytensor.function([x], [twice_op(x.T), on_host(x), batch], mode="FAST_COMPILE")
    for got, expected in zip(f(value), (2 * value.T, 2 * value, 2 * np.stack([value, value + 1])), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_launches_do_not_depend_on_values(context):
    code = "__kernel void f(__global const float *x, __global float *z, int n) { z[0] = n; }"
    x = pt.fvector("x")
    for argument in (lambda x: int(x[0]), lambda x: x.sum(), lambda x: 2 * x, np.asarray, int):
        op = as_op(RawKernel(code, "f"), signature="(n)->(n)", launch=lambda x, z, f=argument: (1, None, (x, z, f(x))))
        f = pytensor.function([x], op(x), mode="OPENCL")
        with pytest.raises(TypeError, match="launch= gets arrays without their data.*an input of its own"):
            f(np.ones(3, "float32"))
    with pytest.raises(TypeError, match=r"called with three arguments, kernel\(grid, block, args\)"):
        RawKernel(code, "f")(1, None, *map(context.from_host, np.ones((2, 3), "float32")), 3)


def test_mistakes(context):
    code = "__kernel void f(__global float *x, __global float *z, int n, __global const float *w) { z[0] = x[0]; }"
    kernel = RawKernel(code, "f")
    x, v = pt.fmatrix("x"), pt.fvector("v")
    for options, error, message in (
        ({}, TypeError, "a raw kernel needs signature="),
        ({"signature": "(n)"}, ValueError, r"an example is '\(m,n\),\(n\)->\(m\)'"),
        (
            {"signature": "(n)->(n)"},
            TypeError,
            r"parameters \(__global float \*x, .*Without launch= they are the 2 arrays",
        ),
        (
            {"signature": "(n),(n),()->(n)"},
            TypeError,
            r"input x is passed to \(__global float \*x\), which is not const",
        ),
        ({"signature": "(n)->(n)", "launch": lambda x: ()}, TypeError, "launch= is called with 2 arrays"),
        ({"signature": "(n)->(n)", "launch": lambda x, z: ()}, TypeError, "which is not const: declare it const"),
        ({"signature": "(n)->(n)", "launch": lambda a, w: ()}, TypeError, r"output w is \(.*which no kernel can write"),
        ({"signature": "(n)->(k)", "launch": lambda a, z: ()}, ValueError, "no input has the length 'k'.*infer_shape="),
        ({"signature": "(n)->(n)", "launch": 3}, TypeError, "launch= is a function, not 3"),
        (
            {"signature": "(n)->(n)", "launch": lambda a, b: ()},
            TypeError,
            "what dtype is b.*Name the arguments of launch=.*x, z, n, w",
        ),
        ({"signature": "(n)->(n)", "launch": lambda w, z: (), "outputs": ["y"]}, TypeError, "neither an input"),
        ({"signature": "(n)->(n)", "launch": lambda w, z: (), "outputs": "w"}, TypeError, "outputs= is a list"),
        ({"signature": "(n)->(n)", "launch": lambda w, z: (), "outputs": ["w", "w"]}, ValueError, "has 2 entries"),
        (
            {"signature": "(n)->(n)", "launch": lambda w, z: (), "grad": kernel},
            TypeError,
            "make an Op of the kernel of grad=",
        ),
    ):
        with pytest.raises(error, match=message):
            as_op(kernel, **options)
    with pytest.raises(ValueError, match=r"the input x has 1 dimensions, \(m,n\)->\(m,n\) has 2; a batch is"):
        twice_op(v)
    with pytest.raises(TypeError, match="the input x is float64, not float32: cast it"):
        twice_op(x.astype("float64"))
    with pytest.raises(ValueError, match=r"the input y has shape \(3,\); \(n\),\(\),\(n\)->\(n\) needs n to be 2"):
        axpy_op(pt.zeros(2, "float32"), 2, pt.zeros(3, "float32"))
    with pytest.raises(TypeError, match="op twice takes 1 inputs"):
        twice_op(x, x)
    broken = as_op(RawKernel(AXPY.code.replace("a * x", "b * x"), "axpy"), signature="(n),(),(n)->(n)")
    with pytest.raises(CompilationError, match="use of undeclared identifier 'b'"):
        opencl([v], broken(v, 2, v))
    f = opencl([v, w := pt.fvector("w")], axpy_op(v, 2, w))
    with pytest.raises(ValueError, match=r"op axpy: input 2 has shape \(3,\); \(n\),\(\),\(n\)->\(n\) needs n to be 2"):
        f(np.ones(2, "float32"), np.ones(3, "float32"))


def test_outputs_that_are_filled(context):
    """A kernel that adds to its output, in calls that are repeated, and in batches."""
    code = """__kernel void count(__global const int *x, __global int *c, int n) {
        int i = get_global_id(0); if (i < n) atomic_add(&c[x[i]], 1); }"""
    kernel, use = (
        RawKernel(code, "count"),
        {"signature": "(n)->(3)", "launch": lambda x, c: (x.size, None, (x, c, x.size))},
    )
    op, x, batch = as_op(kernel, **use, initial=10), pt.ivector("x"), pt.imatrix("batch")
    assert op != as_op(kernel, **use)
    f = opencl([batch], [op(batch[0]), vectorize_graph(op(x), {x: batch})])
    for _ in range(CALLS):
        one, both = f(np.array([[0, 2, 2], [1, 1, 1]], "int32"))
        assert one.tolist() == [11, 10, 12] and both.tolist() == [[11, 10, 12], [10, 13, 10]]
    assert_all_on_device(f, GpuRaw)
    with pytest.raises(TypeError, match="initial is int32, which does not hold 0.5"):
        as_op(kernel, **use, initial=0.5)(x)
    with pytest.raises(TypeError, match="initial= is a number with which outputs are filled, not '0'"):
        as_op(kernel, **use, initial="0")
    with pytest.raises(TypeError, match="initial= is for raw kernels"):
        as_op(ElementwiseKernel("T x", "T z", "z = x"), initial=0)


def test_shapes_that_do_not_fit(context):
    v = pt.fvector("v")
    code = "__kernel void f(__global const float *x, __global float *z, int n) { }"
    for shapes, message in (
        (lambda node, shapes: [(shapes[0][0], 1)], r"\(n\)->\(m\) needs a list with a tuple .*, \[\(m,\)\]"),
        (lambda node, shapes: (shapes[0][0],), "needs a list with a tuple of lengths for each output"),
        (lambda node, shapes: [(shapes[0][0] - 5,)], r"returned a negative length, \(\(-2,\),\)"),
    ):
        with pytest.raises(ValueError, match=f"op f: infer_shape= {message}" if "returned" in message else message):
            opencl([v], as_op(RawKernel(code, "f"), signature="(n)->(m)", infer_shape=shapes)(v))(np.ones(3, "float32"))


def test_launches_that_do_not_fit(context):
    v = pt.fvector("v")
    code = "__kernel void f(__global const float *x, __global float *z) { z[0] = x[0]; }"
    for launch, error, message in (
        (lambda a, b: 3, TypeError, r"launch= returns \(grid, block, args\), not 3"),
        (lambda a, b: (1, 1, (a, None)), ValueError, "do not have the output 'b'"),
        (lambda a, b: (1, 1, (b, a)), TypeError, r"input a is passed to \(__global float \*z\), which is not const"),
        (lambda a, b: (1, 1, (a, b, 3)), TypeError, "takes 2 arguments"),
    ):
        op = as_op(RawKernel(code, "f"), signature="(n)->(n)", outputs=["float32"], launch=launch)
        f = opencl([v], op(v))
        with pytest.raises(error, match=message):
            f(np.ones(3, "float32"))
