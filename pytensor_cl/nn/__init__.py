"""Ops of neural networks that PyTensor does not have: convolution and pooling in one to three dimensions.

They are Ops of the host with gradients of their own, so they work in every mode of PyTensor's Python, C and NUMBA
linkers; mode OPENCL runs them on the device.
"""

from pytensor_cl.nn import attention_formulas as _attention_formulas  # noqa: F401
from pytensor_cl.nn import init as init
from pytensor_cl.nn import numba as _numba  # noqa: F401
from pytensor_cl.nn.attention import multi_head_attention, rotary, scaled_dot_product_attention
from pytensor_cl.nn.conv_functions import conv1d, conv1d_transpose, conv2d, conv2d_transpose, conv3d, conv3d_transpose
from pytensor_cl.nn.cross_entropy import nll, softmax_cross_entropy
from pytensor_cl.nn.dropout import dropout
from pytensor_cl.nn.graphs import parameters, state_updates
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
from pytensor_cl.nn.pool_functions import pool_1d, pool_2d, pool_3d
from pytensor_cl.nn.recognise import recognise
from pytensor_cl.nn.recurrent import bidirectional, gru, lstm, rnn

__all__ = [
    "batch_normalization",
    "batch_normalization_test",
    "batch_normalization_train",
    "bidirectional",
    "conv1d",
    "conv1d_transpose",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "dropout",
    "group_norm",
    "gru",
    "instance_norm",
    "layer_norm",
    "local_response_normalization",
    "lstm",
    "multi_head_attention",
    "nll",
    "parameters",
    "pool_1d",
    "pool_2d",
    "pool_3d",
    "recognise",
    "rms_norm",
    "rnn",
    "rotary",
    "scaled_dot_product_attention",
    "softmax_cross_entropy",
    "state_updates",
]
