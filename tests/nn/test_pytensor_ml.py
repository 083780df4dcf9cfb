"""Models of the package pytensor-ml in mode OPENCL."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl.ops.attention import GpuAttention, GpuAttentionGrad
from pytensor_cl.ops.conv import GpuConv, GpuConvGradInput, GpuConvGradWeight
from pytensor_cl.ops.pool import GpuMaxPool, GpuMaxPoolScatter, GpuSumPool, GpuSumPoolGrad
from tests.helpers import ALL, assert_close, assert_on_device, device_ops, normal, run_script

pytest.importorskip("pytensor_ml")

from pytensor_ml.activations import GELU, LeakyReLU, ReLU
from pytensor_ml.layers import (
    GRU,
    LSTM,
    RNN,
    AvgPool1D,
    AvgPool2D,
    BatchNorm,
    Bidirectional,
    Conv1D,
    Conv2D,
    ConvTranspose2D,
    FeedForward,
    Flatten,
    Linear,
    MaxPool1D,
    MaxPool2D,
    MultiheadAttention,
    ReflectionPad1D,
    RMSNorm,
    Sequential,
    Upsample2D,
    scaled_dot_product_attention,
)
from pytensor_ml.loss import CrossEntropy
from pytensor_ml.model import Model
from pytensor_ml.models import AttentionBlock2D, ResnetBlock2D, build_from_config
from pytensor_ml.optim import adam
from pytensor_ml.pytensorf import collect_graph_inputs, collect_trainable_params, function

pytestmark = pytest.mark.usefixtures("context", "on_device", "float32")

CONVOLUTION = GpuConv, GpuConvGradInput, GpuConvGradWeight
ATTENTION = GpuAttention, GpuAttentionGrad
GPT2 = {"n_embd": 8, "vocab_size": 11, "n_positions": 10, "n_head": 2, "n_layer": 2, "layer_norm_epsilon": 1e-5}
CLIP = {
    "hidden_size": 8,
    "vocab_size": 11,
    "max_position_embeddings": 10,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "layer_norm_eps": 1e-5,
    "intermediate_size": 16,
    "hidden_act": "quick_gelu",
    "projection_dim": 5,
}
AUTOENCODER = {"block_out_channels": [2], "norm_num_groups": 2, "layers_per_block": 1, "latent_channels": 2}
WORDS = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])


@pytest.fixture
def float32():
    """Layers take the dtype of their parameters from floatX."""
    with pytensor.config.change_flags(floatX="float32"):
        yield


def image(*shape):
    return pt.tensor("x", shape=(None, *shape[1:]), dtype="float32"), shape


def cnn():
    x, shape = image(3, 8, 8, 1)
    layers = (
        Conv2D("c1", in_channels=1, out_channels=3, kernel_size=3, padding="same", bias=False),
        BatchNorm("norm", n_in=3),
        ReLU(),
        MaxPool2D("max", kernel_size=2),
        Conv2D("c2", in_channels=3, out_channels=4, kernel_size=(3, 2), stride=(2, 1), padding=1),
        AvgPool2D("mean", kernel_size=2),
        Flatten,
        Linear("out", n_in=8, n_out=3),
    )
    return Sequential(*layers)(x), shape


def upsampling():
    x, shape = image(2, 4, 4, 2)
    up = ConvTranspose2D("up", in_channels=2, out_channels=3, kernel_size=3, stride=2, padding=1, output_padding=1)
    down = Conv2D("down", in_channels=3, out_channels=1, kernel_size=(3, 2), dilation=2)
    return Sequential(up, LeakyReLU(), Upsample2D("twice", scale_factor=2, mode="nearest"), down)(x), shape


def sequence():
    x, shape = image(2, 12, 3)
    layers = (
        ReflectionPad1D("pad", padding=1),
        Conv1D("conv", in_channels=3, out_channels=4, kernel_size=3, padding="same"),
        GELU(),
        MaxPool1D("max", kernel_size=3, stride=2, padding=1),
        AvgPool1D("mean"),
    )
    return Sequential(*layers)(x), shape


def grouped_heads():
    x, shape = image(2, 6, 8)
    attention = MultiheadAttention("heads", n_embd=8, n_head=4, n_kv_head=2)
    return Sequential(RMSNorm("norm", n_in=8), attention, FeedForward("ff", d_model=8, gated=True))(x), shape


def residual():
    x, shape = image(2, 4, 4, 2)
    block = ResnetBlock2D("block", in_channels=2, out_channels=4, n_groups=2)
    return AttentionBlock2D("attention", channels=4, n_groups=2)(block(x)), shape


def recurrent(layer):
    x, shape = image(2, 4, 3)
    out = layer(x)
    return (out[0] if isinstance(out, tuple | list) else out), shape


def configured(name, config, output=0):
    _, outputs, _ = build_from_config({"architectures": [name], **config})
    return outputs[output]


MODELS = {
    "cnn": (cnn, (*CONVOLUTION, GpuMaxPool, GpuMaxPoolScatter, GpuSumPool, GpuSumPoolGrad)),
    "upsampling": (upsampling, CONVOLUTION),
    "sequence": (sequence, (GpuConv, GpuConvGradWeight, GpuMaxPoolScatter, GpuSumPoolGrad)),
    "grouped heads": (grouped_heads, ATTENTION),
    "residual": (residual, (*CONVOLUTION, *ATTENTION)),
    "GPT-2": (lambda: (configured("GPT2LMHeadModel", GPT2), WORDS), ATTENTION),
    "CLIP": (lambda: (configured("CLIPTextModel", CLIP), WORDS), ATTENTION),
    "CLIP, projected": (lambda: (configured("CLIPTextModelWithProjection", CLIP), WORDS), ATTENTION),
    "encoder": (
        lambda: (configured("AutoencoderKL", {**AUTOENCODER, "block_out_channels": [2, 2]}), (1, 4, 4, 3)),
        (*CONVOLUTION, *ATTENTION),
    ),
    "decoder": (lambda: (configured("AutoencoderKL", AUTOENCODER, 2), (1, 2, 2, 2)), (*CONVOLUTION, *ATTENTION)),
    "RNN": (lambda: recurrent(Bidirectional(RNN("f", n_in=3, n_hidden=2), RNN("b", n_in=3, n_hidden=2))), ()),
    "GRU": (lambda: recurrent(GRU("gru", n_in=3, n_hidden=2)), ()),
    "LSTM": (lambda: recurrent(LSTM("lstm", n_in=3, n_hidden=2)), ()),
}


def compiled(inputs, outputs):
    """A function of mode OPENCL, and one of Python's Ops for the values that it should have."""
    return function(inputs, outputs, mode="OPENCL"), function(inputs, outputs, mode="FAST_COMPILE")


def assert_nothing_left_on_host(f):
    """Only lengths, indices and settings are computed on the host."""
    reasons = {node.reason for node in pytensor_cl.explain(f).host_nodes}
    assert not [r for r in reasons if not r.startswith(("host arithmetic on values that no device has", "a copy,"))]


SLOW = ("encoder", "decoder", "CLIP")  # up to 45 s of rewriting and building


@pytest.mark.parametrize("name", [name for name in MODELS if ALL or name not in SLOW])
def test_model_and_its_gradient(name, rng):
    build, kinds = MODELS[name]
    out, data = build()
    data = normal(rng, *data) if isinstance(data, tuple) else data
    inputs, parameters = collect_graph_inputs(out), collect_trainable_params(out)
    for p in parameters:
        p.set_value(normal(rng, *p.get_value().shape) / 2)
    outputs = [out, *pytensor.grad((out**2).mean(), parameters)]
    f, host = compiled(inputs, outputs)
    assert_on_device(f, *kinds)
    assert_nothing_left_on_host(f)
    results = host(data)
    largest = max(np.abs(r).max() for r in results)  # the gradient of a bias of keys is zero but for rounding
    for got, wanted in zip(f(data), results, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-5 * largest)


def test_training_steps(rng):
    """Losses and parameters of three steps, and predictions, are those of another mode."""
    images, labels = normal(rng, 6, 6, 6, 1), np.eye(3, dtype="float32")[[0, 1, 2, 0, 1, 2]]
    results = []
    for mode in ("OPENCL", "FAST_COMPILE"):
        x = pt.tensor("x", shape=(None, 6, 6, 1), dtype="float32")
        conv = Conv2D("c", in_channels=1, out_channels=2, kernel_size=3, padding="same", bias=False)
        layers = conv, BatchNorm("n", n_in=2), ReLU(), MaxPool2D("p"), Flatten, Linear("l", n_in=18, n_out=3)
        model = Model(Sequential(*layers)(x), compile_kwargs={"mode": mode}).initialize(seed=1)
        loss = CrossEntropy(expect_onehot_labels=True, expect_logits=True, reduction="mean")
        step = model.compile_train(adam(1e-2), loss)
        losses = [np.asarray(step(images, labels)) for _ in range(3)]
        results.append([*losses, *(p.get_value() for p in model.weights), model.predict(images)])
    for got, wanted in zip(*results, strict=True):
        assert_close(got, wanted, rtol=1e-3)


def test_forward_direction_is_computed_once():
    out = configured("GPT2LMHeadModel", GPT2)
    f = function(
        collect_graph_inputs(out), pytensor.grad((out**2).mean(), collect_trainable_params(out)), mode="OPENCL"
    )
    kinds = [type(op) for op in device_ops(f)]
    assert [kinds.count(kind) for kind in ATTENTION] == [GPT2["n_layer"]] * 2


def test_keys_computed_from_queries(rng):
    """The gradient of attention for its queries does not take the way through the keys twice."""
    q = pt.tensor("q", shape=(1, 2, 4, 3), dtype="float32")
    out = scaled_dot_product_attention(q, 2 * q, q**2, is_causal=True, scale=0.5)
    f, host = compiled([q], pytensor.grad((out**2).sum(), q))
    assert_on_device(f, *ATTENTION)
    value = normal(rng, 1, 2, 4, 3)
    assert_close(f(value), host(value))


def test_float_mask(rng):
    arrays = [pt.tensor(name, shape=(2, 2, 4, 3), dtype="float32") for name in "qkv"]
    mask = pt.tensor("mask", shape=(4, 4), dtype="float32")
    out = scaled_dot_product_attention(*arrays, mask=mask)
    f, host = compiled([*arrays, mask], pytensor.grad((out**2).sum(), [*arrays, mask]))
    assert_on_device(f, *ATTENTION)
    values = [*(normal(rng, 2, 2, 4, 3) for _ in arrays), normal(rng, 4, 4)]
    for got, wanted in zip(f(*values), host(*values), strict=True):
        assert_close(got, wanted, rtol=1e-4)


@pytest.mark.parametrize("pool", [MaxPool2D, AvgPool2D])
def test_second_gradient_of_pooling(pool, rng):
    """Pooling layers have no second gradient as Ops: windows are gathered and scattered."""
    x = pt.tensor("x", shape=(None, 5, 4, 2), dtype="float32")
    out = pool("p", kernel_size=(3, 2), stride=(2, 1))(x)
    first = pytensor.grad((out**3).sum(), x)
    f, host = compiled([x], pytensor.grad((first**2).sum(), x))
    assert_nothing_left_on_host(f)
    value = normal(rng, 2, 5, 4, 2)
    assert_close(f(value), host(value), rtol=1e-4)


def test_zeros_around_an_image_are_those_of_the_convolution(rng):
    x = pt.tensor("x", shape=(None, 6, 5, 2), dtype="float32")
    out = Conv2D("c", in_channels=2, out_channels=3, kernel_size=3, padding=(2, 1))(x)
    f, host = compiled([x], out)
    (conv,) = [op for op in device_ops(f) if isinstance(op, GpuConv) or hasattr(op, "producer")]
    host_op = getattr(conv, "producer", conv).host
    assert host_op.padding == ((2, 2), (1, 1))
    value = normal(rng, 2, 6, 5, 2)
    assert_close(f(value), host(value))


def test_the_package_is_not_imported():
    script = """
        import sys
        import pytensor, pytensor.tensor as pt, pytensor_cl
        x = pt.fmatrix()
        pytensor.function([x], x @ x + 1, mode="OPENCL")
        seen["loaded"] = [name for name in sys.modules if name.startswith("pytensor_ml")]
    """
    assert run_script(script)[0] == {"loaded": []}
