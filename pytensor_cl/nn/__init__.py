"""Functions of neural networks, which PyTensor does not have.

They take variables and return variables; there are no layers, and no state but in shared variables of the user.
Convolution and pooling are Ops of the host with gradients of their own. The other functions are graphs of ordinary
Ops, or markers, which every mode replaces by such a graph. Mode OPENCL runs them all on the device.
"""

import re
from typing import TYPE_CHECKING

from pytensor_cl.nn import attention_formulas as _attention_formulas  # noqa: F401
from pytensor_cl.nn import conv_batches as _conv_batches  # noqa: F401
from pytensor_cl.nn import cross_entropy_formulas as _cross_entropy_formulas  # noqa: F401
from pytensor_cl.nn import init as init
from pytensor_cl.nn import normalization_formulas as _normalization_formulas  # noqa: F401
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
from pytensor_cl.nn.attention import multi_head_attention, rotary, scaled_dot_product_attention
from pytensor_cl.nn.conv_functions import conv1d, conv1d_transpose, conv2d, conv2d_transpose, conv3d, conv3d_transpose
from pytensor_cl.nn.cross_entropy import nll, softmax_cross_entropy
from pytensor_cl.nn.dropout import dropout
from pytensor_cl.nn.embedding import embedding, linear
from pytensor_cl.nn.graphs import parameters, state_updates
from pytensor_cl.nn.inference import inference
from pytensor_cl.nn.losses import (
    binary_crossentropy,
    binary_crossentropy_with_logits,
    categorical_crossentropy,
    confusion_matrix,
    huber,
    sigmoid_binary_crossentropy,
)
from pytensor_cl.nn.neighbours import images2neibs, neibs2images
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
from pytensor_cl.nn.recognise import recognise
from pytensor_cl.nn.recurrent import bidirectional, gru, lstm, rnn
from pytensor_cl.nn.resampling import resize

__all__ = [
    "adaptive_pool",
    "batch_normalization",
    "batch_normalization_test",
    "batch_normalization_train",
    "bidirectional",
    "binary_crossentropy",
    "binary_crossentropy_with_logits",
    "categorical_crossentropy",
    "confusion_matrix",
    "conv1d",
    "conv1d_transpose",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "dropout",
    "elu",
    "embedding",
    "gelu",
    "global_pool",
    "group_norm",
    "gru",
    "hard_sigmoid",
    "hardswish",
    "huber",
    "images2neibs",
    "inference",
    "instance_norm",
    "layer_norm",
    "leaky_relu",
    "linear",
    "local_response_normalization",
    "log_softmax",
    "lstm",
    "multi_head_attention",
    "neibs2images",
    "nll",
    "parameters",
    "pool_1d",
    "pool_2d",
    "pool_3d",
    "recognise",
    "relu",
    "resize",
    "rms_norm",
    "rnn",
    "rotary",
    "scaled_dot_product_attention",
    "selu",
    "sigmoid",
    "sigmoid_binary_crossentropy",
    "silu",
    "softmax",
    "softmax_cross_entropy",
    "softplus",
    "softsign",
    "state_updates",
]

_NAMES_HERE = {
    "avg_pool": "pool_{n}d(input, ws, mode='average_exc_pad')",
    "max_pool": "pool_{n}d(input, ws)",
    "adaptive_avg_pool": "adaptive_pool",
    "adaptive_max_pool": "adaptive_pool(mode='max')",
    "conv_transpose": "conv{n}d_transpose",
    "dropout": "dropout(p, rng, shared_axes=...)",
    "batch_norm": "batch_normalization_train, and batch_normalization_test",
    "cross_entropy": "softmax_cross_entropy",
    "nll_loss": "nll",
    "huber_loss": "huber",
    "smooth_l1_loss": "huber",
    "binary_cross_entropy": "binary_crossentropy",
    "binary_cross_entropy_with_logits": "binary_crossentropy_with_logits",
    "logsoftmax": "log_softmax",
    "ultra_fast_sigmoid": "sigmoid, or hard_sigmoid",
    "swish": "silu",
    "interpolate": "resize",
    "upsample": "resize",
    "bilinear_upsampling": "resize(mode='bilinear'), whose border is torch's",
    "unfold": "images2neibs",
    "fold": "neibs2images",
    "tanh": "pytensor.tensor.tanh",
}
"""Names of torch and Theano, without the number of dimensions, and what they are here."""


if not TYPE_CHECKING:  # with it, type checkers would take every name for one of this module

    def __getattr__(name: str) -> object:
        found = re.fullmatch(r"(\w+?)_?([123])d", name)
        stem, n = found.groups() if found else (name, "2")
        hint = _NAMES_HERE.get(stem, "")
        hint = f": it is {hint.format(n=n)} here" if hint else ""
        if not hint and name[:1].isupper():
            hint = ": it has functions, not layers; pytensor_ml.layers has layers"
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
