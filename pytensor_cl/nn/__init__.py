"""Ops of neural networks that PyTensor does not have: convolution and pooling in one to three dimensions.

They are Ops of the host with gradients of their own, so they work in every mode of PyTensor's Python, C and NUMBA
linkers; mode OPENCL runs them on the device.
"""

from pytensor_cl.nn import conv_batches as _conv_batches  # noqa: F401
from pytensor_cl.nn import init as init
from pytensor_cl.nn import numba as _numba  # noqa: F401
from pytensor_cl.nn.conv_functions import conv1d, conv1d_transpose, conv2d, conv2d_transpose, conv3d, conv3d_transpose
from pytensor_cl.nn.pool_functions import adaptive_pool, global_pool, pool_1d, pool_2d, pool_3d

__all__ = [
    "adaptive_pool",
    "conv1d",
    "conv1d_transpose",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "global_pool",
    "pool_1d",
    "pool_2d",
    "pool_3d",
]
