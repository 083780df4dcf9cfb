"""Checks of conditions: the error record."""

import numpy as np
import pytest

from pytensor_cl.routines.check import Check


def test_check(context):
    check = Check(context, ValueError, "no")
    array = context.from_host(np.arange(3.0))
    (same,) = check(array, context.from_host(np.array(True)))
    check.check()
    assert same is array
    check(array, context.from_host(np.array(False)))
    with pytest.raises(ValueError, match="no"):
        check.check()
    check.check()  # the record was cleared
