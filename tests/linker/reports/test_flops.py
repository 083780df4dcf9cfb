"""The arithmetic of nodes, by the usual conventions."""

import pytensor.tensor as pt
import pytest

from pytensor_cl import nn
from pytensor_cl.linker.reports.flops import bytes_moved, flops
from tests.helpers import opencl

a, b, v, s = pt.fmatrix("a"), pt.fmatrix("b"), pt.fvector("v"), pt.fscalar("s")
images, kernels = pt.ftensor4("images"), pt.ftensor4("kernels")
IMAGES, KERNELS = (2, 3, 10, 10), (4, 3, 3, 3)


def counted(f, shapes):
    """Operations of the nodes of a function, given the shapes by the number of dimensions."""
    nodes = [n for n in f.vm.nodes if getattr(n.op, "is_compute", False)]
    return [flops(n.op, *([shapes(w) for w in many] for many in (n.inputs, n.outputs))) for n in nodes]


def square(variable):
    return (10,) * variable.type.ndim


@pytest.mark.parametrize(
    ("inputs", "result", "expected"),
    [
        ([a], pt.exp(a), 100),
        ([a], pt.exp(a) * 2 + a, 300),
        ([a], a.sum(), 100),
        ([a], pt.exp(a).sum(), 200),
        ([a, b], a @ b, 2000),
        ([a, b], 2 * (a @ b) + a, 2000),
        ([a, v], a @ v, 200),
        ([a], pt.sort(a), 0),
    ],
    ids=str,
)
def test_counts(context, inputs, result, expected):
    f = opencl(inputs, result, on_unused_input="ignore")
    assert max(counted(f, square)) == expected


def test_convolutions_and_their_gradients_are_the_same_work(context):
    y = nn.conv2d(images, kernels)
    gradients = pt.grad((y**2).sum(), [images, kernels])
    f = opencl([images, kernels], [y, *gradients])
    sizes = {"GpuConv": (IMAGES, KERNELS, (2, 4, 8, 8))}
    found = []
    for node in f.vm.nodes:
        kind = type(node.op).__name__
        if kind.startswith("GpuConv"):
            x, w, dy = sizes["GpuConv"]
            shapes = {"GpuConv": ((x, w), dy), "GpuConvGradInput": ((w, dy), x), "GpuConvGradWeight": ((x, dy), w)}[
                kind
            ]
            found.append(flops(node.op, shapes[0], [shapes[1]]))
    assert found == [2 * 2 * 4 * 64 * 27] * 3


def test_bytes_are_those_of_inputs_and_outputs():
    assert bytes_moved((a + b).owner, [(10, 20)] * 2, [(10, 20)]) == 3 * 4 * 200
    assert bytes_moved((a > 0).owner, [(10, 20), (1, 1)], [(10, 20)]) == 4 * 200 + 1 + 200
