"""Ops of neural networks that PyTensor does not have: convolution and pooling in one to three dimensions.

They are Ops of the host with gradients of their own, so they work in every mode of PyTensor's Python, C and NUMBA
linkers; mode OPENCL runs them on the device.
"""

from pytensor_cl.nn import cross_entropy_formulas as _cross_entropy_formulas  # noqa: F401
from pytensor_cl.nn import init as init
from pytensor_cl.nn import numba as _numba  # noqa: F401
from pytensor_cl.nn.activations import (
    elu,
    gelu,
    hard_sigmoid,
    hardswish,
    leaky_relu,
    log_softmax,
    relu,
    selu,
    sigmoid,
    silu,
    softmax,
    softplus,
    softsign,
)
from pytensor_cl.nn.conv import conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d
from pytensor_cl.nn.cross_entropy import nll, softmax_cross_entropy
from pytensor_cl.nn.embedding import embedding, linear
from pytensor_cl.nn.losses import (
    binary_crossentropy,
    binary_crossentropy_with_logits,
    categorical_crossentropy,
    confusion_matrix,
    huber,
    sigmoid_binary_crossentropy,
)
from pytensor_cl.nn.pool import avg_pool, max_pool
from pytensor_cl.nn.recognise import recognise

__all__ = [
    "avg_pool",
    "binary_crossentropy",
    "binary_crossentropy_with_logits",
    "categorical_crossentropy",
    "confusion_matrix",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "elu",
    "embedding",
    "gelu",
    "hard_sigmoid",
    "hardswish",
    "huber",
    "leaky_relu",
    "linear",
    "log_softmax",
    "max_pool",
    "nll",
    "recognise",
    "relu",
    "selu",
    "sigmoid",
    "sigmoid_binary_crossentropy",
    "silu",
    "softmax",
    "softmax_cross_entropy",
    "softplus",
    "softsign",
]
