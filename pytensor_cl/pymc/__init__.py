"""Functions for models of PyMC beside mode OPENCL. Importing this package imports PyMC and ArviZ.

`sample` draws from a posterior with many chains that advance together; its callback gets a `Record`.
`replace_parameter_checks` prepares a log-probability for a batch of points.
"""

try:
    import arviz_base as _arviz_base  # noqa: F401
    import pymc as _pymc  # noqa: F401
except ImportError as error:
    raise ImportError("pytensor_cl.pymc needs PyMC and ArviZ: pip install pytensor-cl[pymc]") from error

from pytensor_cl.pymc.checks import replace_parameter_checks
from pytensor_cl.pymc.run import Record
from pytensor_cl.pymc.sampling import sample

__all__ = ["Record", "replace_parameter_checks", "sample"]
