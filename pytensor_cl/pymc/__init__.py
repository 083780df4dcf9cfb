"""What models of PyMC need beside mode OPENCL. Importing this package imports PyMC.

`replace_parameter_checks` prepares a log-probability for a batch of points.
"""

from pytensor_cl.pymc.checks import replace_parameter_checks

__all__ = ["replace_parameter_checks"]
