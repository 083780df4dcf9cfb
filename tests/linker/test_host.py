"""Nodes that stay on the host."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.conditional.op import IfElse, ifelse

from tests.helpers import host_ops, opencl


@pytest.mark.parametrize("value", [0, 1])
def test_ifelse_of_what_is_there_anyway(context, value):
    c, x, y = pt.iscalar("c"), pt.fvector("x"), pt.fvector("y")
    f = opencl([c, x, y], [ifelse(c, x, y), *ifelse(c, [x, y], [y, x])])
    assert any(isinstance(op, IfElse) for op in host_ops(f))
    one, two = np.float32([1, 2, 3]), np.float32([4, 5])
    found = f(value, one, two)
    wanted = (one, one, two) if value else (two, two, one)
    for got, expected in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_ifelse_returns_no_shared_memory(context):
    c, s = pt.iscalar("c"), pytensor.shared(np.float32([1, 2, 3]))
    f = opencl([c], ifelse(c, s, pt.zeros_like(s)))
    f(1)[...] = 7
    np.testing.assert_array_equal(s.get_value(), [1, 2, 3])
    np.testing.assert_array_equal(f(1), [1, 2, 3])
