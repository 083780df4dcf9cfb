"""A device with smaller limits than the one that there is: what routines launch must stay within them."""

from contextlib import contextmanager
from dataclasses import replace
from math import prod

import numpy as np
import pytest

from pytensor_cl.runtime.program import Kernel

LIMITS = {"local_memory": 16 << 10, "max_work_group_size": 64, "max_parameter_size": 1024}
"""Half the local memory of what the OpenCL specification asks of GPUs, and the work-groups of small ones."""


def _bytes_of(argument):
    """Buffers and local memory are pointers."""
    if isinstance(argument, np.generic):
        return argument.nbytes
    return len(argument) if isinstance(argument, bytes) else 8


def _check(handle, device, global_size, local_size, limits):
    name = handle.function_name
    assert len(global_size) == len(local_size or global_size), name
    if local_size is not None:
        assert prod(local_size) <= limits["max_work_group_size"], f"{name}: a work-group of {local_size}"
        groups = [n // m for n, m in zip(global_size, local_size, strict=True)]
        assert max(groups[1:], default=0) <= 65535, f"{name}: {groups} work-groups"
    used = Kernel(handle).local_memory(device)
    assert used <= limits["local_memory"], f"{name}: {used} bytes of local memory"


@contextmanager
def small_device(context, **limits):
    """Lower the limits of a context's device; yield a list of the names of the kernels that are launched.

    Parameters
    ----------
    context
        The context; routines made inside the block see the limits.
    limits
        Those of `LIMITS` that are others.
    """
    limits = {**LIMITS, **limits}
    launch, own_limit, launched = Kernel.launch, Kernel.max_work_group_size, []

    def checked_launch(kernel, queue, global_size, local_size, *args):
        _check(kernel.handle, context.device, global_size, local_size, limits)
        used = sum(map(_bytes_of, args))
        assert used <= limits["max_parameter_size"], f"{kernel.handle.function_name}: {used} bytes of arguments"
        launched.append(kernel.handle.function_name)
        launch(kernel, queue, global_size, local_size, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context, "info", replace(context.info, **limits))
        patch.setattr(Kernel, "launch", checked_launch)
        patch.setattr(
            Kernel, "max_work_group_size", lambda k, device: min(own_limit(k, device), limits["max_work_group_size"])
        )
        yield launched
