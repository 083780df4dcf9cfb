"""A device with smaller limits than the one that there is: what routines launch must stay within them."""

from contextlib import contextmanager
from dataclasses import replace
from math import prod

import numpy as np
import pytest

from pytensor_cl.runtime.program import Kernel

LIMITS = {"local_memory": 16 << 10, "max_work_group_size": 64, "max_parameter_size": 1024}
"""Half the local memory that OpenCL requires of full profiles, and the work-groups of small GPUs."""


def _bytes_of(argument):
    """Buffers and local memory are pointers."""
    if isinstance(argument, np.generic):
        return argument.nbytes
    return len(argument) if isinstance(argument, bytes) else 8


def _check(kernel, device, global_size, local_size, args, limits):
    name = kernel.handle.function_name
    assert len(global_size) == len(local_size or global_size), name
    if local_size is not None:
        assert prod(local_size) <= kernel.max_work_group_size(device), f"{name}: a work-group of {local_size}"
        groups = [n // m for n, m in zip(global_size, local_size, strict=True)]
        assert max(groups[1:], default=0) <= 65535, f"{name}: {groups} work-groups"
    used = kernel.local_memory(device)
    assert used <= limits["local_memory"], f"{name}: {used} bytes of local memory"
    used = sum(map(_bytes_of, args))
    assert used <= limits["max_parameter_size"], f"{name}: {used} bytes of arguments"


@contextmanager
def small_device(context, *, is_told=True, **limits):
    """Lower the limits of a context's device; yield a list of the names of the kernels that are launched.

    Parameters
    ----------
    context
        The context; routines made inside the block see the limits.
    is_told
        Whether the device's facts say so; if not, it is the compiled kernels alone that do not run with large
        work-groups.
    limits
        Those of `LIMITS` that are others.
    """
    limits = {**LIMITS, **limits}
    launch, own_limit, launched = Kernel.launch, Kernel.max_work_group_size, []

    def checked_launch(kernel, queue, global_size, local_size, *args):
        _check(kernel, context.device, global_size, local_size, args, limits if is_told else vars(context.info))
        launched.append(kernel.handle.function_name)
        launch(kernel, queue, global_size, local_size, *args)

    def limit(kernel, device):
        return min(own_limit(kernel, device), limits["max_work_group_size"])

    with pytest.MonkeyPatch.context() as patch:
        if is_told:
            patch.setattr(context, "info", replace(context.info, **limits))
        patch.setattr(Kernel, "launch", checked_launch)
        patch.setattr(Kernel, "max_work_group_size", limit)
        yield launched
