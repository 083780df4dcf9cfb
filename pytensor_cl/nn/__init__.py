"""Ops of neural networks that PyTensor does not have: convolution and pooling in one to three dimensions.

They are Ops of the host with gradients of their own, so they work in every mode of PyTensor's Python, C and NUMBA
linkers; mode OPENCL runs them on the device.
"""

from pytensor_cl.nn import init as init
from pytensor_cl.nn import numba as _numba  # noqa: F401
from pytensor_cl.nn.conv import conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d
from pytensor_cl.nn.pool import avg_pool, max_pool
from pytensor_cl.nn.recurrent import bidirectional, gru, lstm, rnn

__all__ = [
    "avg_pool",
    "bidirectional",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "gru",
    "lstm",
    "max_pool",
    "rnn",
]
