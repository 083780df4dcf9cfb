"""Normalisation by given statistics moves into the convolution or product before it."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors

from pytensor_cl import nn
from pytensor_cl.nn.batch_normalization import GivenNormalization
from pytensor_cl.nn.conv import Conv, ConvGradInput
from pytensor_cl.nn.folding import fold_normalization
from pytensor_cl.ops.conv import GpuConv
from pytensor_cl.ops.epilogue import GpuEpilogue
from tests.helpers import assert_on_device, device_ops, opencl

CHANNELS = 6
IMAGES = pt.tensor("images", shape=(2, 4, 7, 7), dtype="float32")
ROWS = pt.tensor("rows", shape=(5, 4), dtype="float32")


def shared(rng, *shape):
    return pytensor.shared(rng.normal(size=shape).astype("float32"), shape=shape)


def normalized(rng, x, gamma=True, beta=True, axes=None, **options):
    """Normalise by shared statistics."""
    mean, scale, shift = (shared(rng, CHANNELS) for _ in range(3))
    var = pytensor.shared(rng.uniform(0.5, 2, CHANNELS).astype("float32"), shape=(CHANNELS,))
    axes = axes or ("spatial" if x.type.ndim == 4 else "per-activation")
    return nn.batch_normalization_test(x, scale if gamma else None, shift if beta else None, mean, var, axes, **options)


def conv(rng, x, groups=1):
    return nn.conv2d(x, shared(rng, CHANNELS, 4 // groups, 3, 3), border_mode="half", num_groups=groups)


def transposed(rng, groups):
    return nn.conv2d_transpose(IMAGES, shared(rng, 4, CHANNELS // groups, 3, 3), None, num_groups=groups)


GRAPHS = {
    "conv": lambda rng: normalized(rng, conv(rng, IMAGES)),
    "conv, groups": lambda rng: normalized(rng, conv(rng, IMAGES, 2)),
    "conv, bias": lambda rng: normalized(rng, conv(rng, IMAGES) + shared(rng, CHANNELS).dimshuffle("x", 0, "x", "x")),
    "conv, no parameters": lambda rng: normalized(rng, conv(rng, IMAGES), gamma=False, beta=False),
    "transposed": lambda rng: normalized(rng, transposed(rng, 1), beta=False),
    "transposed, groups": lambda rng: normalized(rng, transposed(rng, 2)),
    "product": lambda rng: normalized(rng, ROWS @ shared(rng, 4, CHANNELS) + shared(rng, CHANNELS)),
    "product of transposed weights": lambda rng: normalized(rng, pt.dot(ROWS, shared(rng, CHANNELS, 4).T)),
}

KEPT = {
    "before a convolution": lambda rng: conv(rng, nn.batch_normalization_test(IMAGES, *[None] * 2, 0 * X4, X4, (0, 2))),
    "other axes": lambda rng: normalized(rng, nn.conv2d(IMAGES, shared(rng, 3, 4, 2, 2)), axes=(0, 1, 2)),
    "an elementwise function between": lambda rng: normalized(rng, nn.conv2d(IMAGES, shared(rng, 6, 4, 3, 3)) ** 2),
    "a bias that is no bias": lambda rng: normalized(rng, conv(rng, IMAGES) + shared(rng, 2, CHANNELS, 7, 7)),
    "another type": lambda rng: normalized(rng, conv(rng, IMAGES).astype("float64")),
}
X4 = np.ones((4, 7), "float32")


def nodes(graph, *kinds):
    return [v.owner for v in ancestors([graph]) if v.owner is not None and isinstance(v.owner.op, kinds)]


def evaluate(graphs, rng):
    inputs = [IMAGES, ROWS]
    values = [rng.normal(size=v.type.shape).astype("float32") for v in inputs]
    return pytensor.function(inputs, graphs, mode="FAST_COMPILE", on_unused_input="ignore")(*values)


@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_folded(name, freeze, rng):
    graph = GRAPHS[name](rng)
    folded = fold_normalization(graph, freeze)
    assert nodes(graph, GivenNormalization) != []
    assert nodes(folded, GivenNormalization) == []
    wanted, got = evaluate([graph, folded], rng)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    kernel = folded.owner.inputs[0]
    assert (kernel.owner.op == pt.mul) == (not freeze)


@pytest.mark.parametrize("name", KEPT)
def test_kept(name, rng):
    graph = KEPT[name](rng)
    assert len(nodes(graph, GivenNormalization)) == 1
    assert len(nodes(fold_normalization(graph, True), GivenNormalization)) == 1


def test_other_client(rng):
    before = conv(rng, IMAGES)
    after = normalized(rng, before)
    assert len(nodes(fold_normalization([after, before], True)[0], GivenNormalization)) == 1
    assert len(nodes(fold_normalization([after, after + 1], True)[1], GivenNormalization)) == 0


def test_weights_that_are_inputs_are_not_multiplied(rng):
    weights = pt.ftensor4("weights")
    folded = fold_normalization(normalized(rng, nn.conv2d(IMAGES, weights)), True)
    (node,) = nodes(folded, Conv, ConvGradInput)
    assert weights in node.inputs


def test_float16_stays(rng):
    x, w = pt.tensor4("x", dtype="float16"), pt.tensor4("w", dtype="float16")
    ones = np.ones(3, "float16")
    graph = nn.batch_normalization_test(nn.conv2d(x, w), None, None, ones, ones, "spatial")
    assert len(nodes(fold_normalization(graph), GivenNormalization)) == 1


@pytest.mark.usefixtures("on_device")
def test_device(context, rng):
    """Scale, shift and activation are in the convolution's kernel."""
    graph = nn.batch_normalization_test(
        conv(rng, IMAGES), *(shared(rng, CHANNELS) for _ in range(3)), np.ones(CHANNELS, "float32"), "spatial"
    )
    outputs = [pt.maximum(fold_normalization(graph), 0), pt.maximum(graph, 0)]
    f = opencl([IMAGES], outputs[0])
    assert_on_device(f, GpuConv)
    assert any(isinstance(op, GpuEpilogue) for op in device_ops(f))
    values = rng.normal(size=IMAGES.type.shape).astype("float32")
    wanted = pytensor.function([IMAGES], outputs[1], mode="FAST_COMPILE")(values)
    np.testing.assert_allclose(f(values), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("freeze", [False, True])
def test_inference_folds(freeze, rng):
    mean, scale = shared(rng, CHANNELS), shared(rng, CHANNELS)
    var = pytensor.shared(rng.uniform(0.5, 2, CHANNELS).astype("float32"))
    results = nn.batch_normalization_train(
        conv(rng, IMAGES), scale, None, "spatial", running_mean=mean, running_var=var
    )
    trained = nn.inference(results[0], freeze=freeze, fold=False)
    folded = nn.inference(results[0], freeze=freeze)
    assert [len(nodes(g, GivenNormalization)) for g in (trained, folded)] == [1, 0]
    got, wanted = evaluate([folded, trained], rng)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_nothing_to_fold():
    outputs = [IMAGES, pt.exp(IMAGES)]
    assert all(a is b for a, b in zip(fold_normalization(outputs), outputs, strict=True))
