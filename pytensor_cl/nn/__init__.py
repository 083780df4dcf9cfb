"""Ops of neural networks that PyTensor does not have: convolution and pooling in one to three dimensions.

They are Ops of the host with gradients of their own, so they work in every mode of PyTensor's Python, C and NUMBA
linkers; mode OPENCL runs them on the device.
"""

from pytensor_cl.nn import init as init
from pytensor_cl.nn import normalization_formulas as _normalization_formulas  # noqa: F401
from pytensor_cl.nn import numba as _numba  # noqa: F401
from pytensor_cl.nn.conv import conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d
from pytensor_cl.nn.normalization import (
    batch_normalization,
    batch_normalization_test,
    batch_normalization_train,
    group_norm,
    instance_norm,
    layer_norm,
    local_response_normalization,
    rms_norm,
)
from pytensor_cl.nn.pool import avg_pool, max_pool
from pytensor_cl.nn.recognise import recognise

__all__ = [
    "avg_pool",
    "batch_normalization",
    "batch_normalization_test",
    "batch_normalization_train",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "local_response_normalization",
    "max_pool",
    "recognise",
    "rms_norm",
]
