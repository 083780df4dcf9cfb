"""Names of Ops in reports, graphs and messages."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.names import WIDEST, cut, full_name, listed, short_name, variable_name
from tests.helpers import device_ops, opencl

x = pt.fmatrix("x")


@pytest.fixture(autouse=True)
def everywhere():
    """Small graphs go to the device too."""
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], ""),
        (["exp"], "exp"),
        (["exp", "mul", "mul", "add"], "exp, mul x2, add"),
        (["exp", "mul"] * 5, "exp, mul, exp, mul, exp, mul, +4"),
        (["f" * 50, "exp"], "2 functions"),
    ],
)
def test_lists(names, expected):
    assert listed(names) == expected


def test_short_names_have_60_characters_and_full_ones_all_parts(context):
    y = x
    for k in range(8):
        y = pt.tanh(y * k + pt.exp(y)) - pt.log1p(y**2)
    [op] = device_ops(opencl([x], y))
    assert len(str(op)) <= WIDEST and str(op) == short_name(op) and str(op).startswith("GpuComposite{")
    assert op.full_name.count("tanh") == 8 and op.full_name == full_name(op)


def test_what_says_how_it_is_computed_is_left_out(context):
    ops = device_ops(opencl([x], [x.sum(axis=0), x @ x + x]))
    names = sorted(map(str, ops))
    assert names == ["GpuGemm", "GpuSum{axis=0}"] or names == ["GpuEpilogue{GpuDot22: add}", "GpuSum{axis=0}"]
    assert any("acc=float64" in op.full_name for op in ops) or context.schedule != "cpu"


def test_classes_with_props_have_the_name_of_the_host_op_or_their_own():
    class Plain(GpuOp):
        __props__ = ("host", "context_name")

    class Own(GpuOp):
        __props__ = ("host", "context_name")

        def __str__(self):
            return "mine"

    host = pt.exp
    assert str(Plain(host, "dev0")) == "GpuExp" and str(Own(host, "dev0")) == "mine"


def test_variables_are_called_what_the_user_calls_them():
    moved = pytensor_cl.gpu_from_host(x)
    assert variable_name(x) == "x" and variable_name(moved) == "x"
    assert variable_name(pytensor_cl.host_from_gpu(moved)) == "x"
    named = pt.exp(x)
    assert variable_name(named) == short_name(named.owner.op)
    assert variable_name(pt.split(x, [1, 2], axis=0)[1]).endswith(".1")
    assert cut("a" * 100) == "a" * 57 + "..."


def test_reports_and_messages_have_the_short_names(context, rng):
    i = pt.lvector("i")
    y = x
    for k in range(8):
        y = pt.tanh(y * k + pt.exp(y)) - pt.log1p(y**2)
    f = opencl([x, i], [y[i], y.sum(axis=0)])
    report, full = pytensor_cl.explain(f), pytensor_cl.explain(f, full_names=True)
    assert max(map(len, str(report).splitlines())) < 130 < max(map(len, str(full).splitlines()))
    with pytest.raises(IndexError) as caught:
        f(rng.normal(size=(3, 3)).astype("float32"), np.array([7]))
    [note] = [n for n in caught.value.__notes__ if "Raised by node" in n]
    assert len(note.split("input shapes")[0]) < 250 and ", i)" in note
