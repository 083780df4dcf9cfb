"""Ops of neural networks that PyTensor does not have: convolution and pooling in one to three dimensions.

They are Ops of the host with gradients of their own, so they work in every mode of PyTensor's Python, C and NUMBA
linkers; mode OPENCL runs them on the device.
"""

from pytensor_cl.nn import init as init
from pytensor_cl.nn import numba as _numba  # noqa: F401
from pytensor_cl.nn.conv import conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d
from pytensor_cl.nn.dropout import dropout
from pytensor_cl.nn.graphs import parameters, state_updates
from pytensor_cl.nn.inference import inference
from pytensor_cl.nn.neighbours import images2neibs, neibs2images
from pytensor_cl.nn.pool import avg_pool, max_pool
from pytensor_cl.nn.resampling import resize

__all__ = [
    "avg_pool",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "dropout",
    "images2neibs",
    "inference",
    "max_pool",
    "neibs2images",
    "parameters",
    "resize",
    "state_updates",
]
