"""Sample a PyMC model with hundreds or thousands of chains that advance together on a device.

PyMC, ArviZ and xarray are optional: they are imported when `sample` is called.
"""

from pytensor_cl.pymc.sampling import sample

__all__ = ["sample"]
