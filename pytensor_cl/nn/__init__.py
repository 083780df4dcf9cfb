"""Ops of neural networks that PyTensor does not have: convolution and pooling in one to three dimensions.

They are Ops of the host with gradients of their own, so they work in every mode of PyTensor's Python, C and NUMBA
linkers; mode OPENCL runs them on the device.
"""

<<<<<<< HEAD
<<<<<<< HEAD
from pytensor_cl.nn import conv_batches as _conv_batches  # noqa: F401
=======
from pytensor_cl.nn import cross_entropy_formulas as _cross_entropy_formulas  # noqa: F401
>>>>>>> losses
=======
from pytensor_cl.nn import attention_formulas as _attention_formulas  # noqa: F401
>>>>>>> attention
from pytensor_cl.nn import init as init
from pytensor_cl.nn import normalization_formulas as _normalization_formulas  # noqa: F401
from pytensor_cl.nn import numba as _numba  # noqa: F401
<<<<<<< HEAD
<<<<<<< HEAD
=======
from pytensor_cl.nn.attention import multi_head_attention, rotary, scaled_dot_product_attention
>>>>>>> attention
from pytensor_cl.nn.conv_functions import conv1d, conv1d_transpose, conv2d, conv2d_transpose, conv3d, conv3d_transpose
from pytensor_cl.nn.cross_entropy import nll, softmax_cross_entropy
from pytensor_cl.nn.dropout import dropout
from pytensor_cl.nn.graphs import parameters, state_updates
<<<<<<< HEAD
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
from pytensor_cl.nn.pool_functions import adaptive_pool, global_pool, pool_1d, pool_2d, pool_3d
=======
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
=======
from pytensor_cl.nn.inference import inference
>>>>>>> noise
from pytensor_cl.nn.pool import avg_pool, max_pool
>>>>>>> losses
from pytensor_cl.nn.recognise import recognise
from pytensor_cl.nn.recurrent import bidirectional, gru, lstm, rnn

__all__ = [
<<<<<<< HEAD
    "adaptive_pool",
    "batch_normalization",
    "batch_normalization_test",
    "batch_normalization_train",
    "bidirectional",
=======
    "avg_pool",
    "binary_crossentropy",
    "binary_crossentropy_with_logits",
    "categorical_crossentropy",
    "confusion_matrix",
>>>>>>> losses
    "conv1d",
    "conv1d_transpose",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
<<<<<<< HEAD
    "conv3d_transpose",
    "dropout",
    "global_pool",
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
=======
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
<<<<<<< HEAD
    "elu",
    "embedding",
    "gelu",
    "hard_sigmoid",
    "hardswish",
    "huber",
    "leaky_relu",
    "linear",
    "log_softmax",
=======
    "dropout",
    "inference",
>>>>>>> noise
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
>>>>>>> losses
]
