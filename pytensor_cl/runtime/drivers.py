"""The drivers that have hooks of their own, one import for each.

This is the only module that imports `runtime.pocl`. Without the import below, and without that folder, PoCL is used as
any other driver: each kernel is launched on its own, and compiled by the OpenCL standard.
"""

import pytensor_cl.runtime.pocl.hooks  # noqa: F401 -- registers them
from pytensor_cl.runtime.driver_hooks import all_hooks, hooks_of

__all__ = ["all_hooks", "hooks_of"]
