"""Checks of conditions: the error record, and an entry point for kernel batches."""

import numpy as np
import pytest

from pytensor_cl.routines.check import Check
from pytensor_cl.runtime.pocl.outlining import outline, outlined_kernels


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


def test_kernel_has_a_body_that_batches_can_call(context):
    """Without it, no other kernel of a function would be in a batch."""
    (source,) = Check(context, ValueError, "no").sources()
    assert outlined_kernels(outline(source.source)) == [source.name]
