"""Batches in parts: the tree of additions, draws and statistics of parts, and parts on several devices."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl import nn, optimizers, train
from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.registry import add_context
from pytensor_cl.train.parts import blocks, tree_sum, whole_ranges
from tests.helpers import assert_on_device, on_one_driver, run_script


def leaves(first, last):
    return str(first) if last == first + 1 else None


def brackets(first, second):
    return f"({first}{second})"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [(1, "0"), (2, "(01)"), (3, "((01)2)"), (5, "(((01)(23))4)"), (6, "(((01)(23))(45))"), (7, "(((01)(23))((45)6))")],
)
def test_tree(parts, expected):
    assert tree_sum(0, parts, leaves, brackets) == expected


@pytest.mark.parametrize("parts", range(1, 10))
@pytest.mark.parametrize("owners", [1, 2, 3, 5])
def test_the_tree_is_the_same_for_any_number_of_owners(parts, owners):
    known = {}
    owned = blocks(parts, owners)
    assert [k for block in owned for k in block] == list(range(parts))
    assert max(map(len, owned)) - min(map(len, owned)) <= 1
    for block in owned:
        for ends in whole_ranges(block, 0, parts):
            known[ends] = tree_sum(*ends, leaves, brackets)
    assert sum(last - first for first, last in known) == parts
    assert tree_sum(0, parts, lambda *ends: known.get(ends), brackets) == tree_sum(0, parts, leaves, brackets)


def make(mode, noise_seed=3, **options):
    """A step with dropout, batch normalisation, clipping, averages and labels that do not count."""
    values = np.random.default_rng(1)
    w = pytensor.shared(values.normal(size=(5, 6)).astype("float32"), name="w")
    v = pytensor.shared(values.normal(size=(6, 3)).astype("float32"), name="v")
    mean, var = pytensor.shared(np.zeros(6, "float32"), name="mean"), pytensor.shared(np.ones(6, "float32"), name="var")
    noise = pt.random.shared_rng(seed=noise_seed, name="noise")
    x, y = pt.fmatrix("x"), pt.lvector("y")
    normal, *_ = nn.batch_normalization_train(x @ w, None, None, running_mean=mean, running_var=var)
    _, hidden = nn.dropout(pt.tanh(normal), 0.5, noise)
    loss = nn.softmax_cross_entropy(hidden @ v, y)
    options = {"metrics": {"largest": pt.abs(hidden).max()}, "max_norm": 1.0, "ema": 0.9, **options}
    weight = pt.neq(y, -100).sum()
    return train.step([x, y], loss, optimizers.Adam(0.05), weight=weight, mode=mode, **options)


def batches(rng, sizes=(8, 8, 5)):
    for rows in sizes:
        y = rng.integers(0, 3, rows)
        y[: rows // 2 + 1 : 2] = -100
        yield rng.normal(size=(rows, 5)).astype("float32"), y


def state_of(step):
    arrays = [*step.weights, *step.optimizer.state.values(), *step.averages.values()]
    generators = [v for v in step.variables if v not in arrays and hasattr(v, "get_value")]
    assert len(generators) == 1
    return [v.get_value() for v in arrays], generators[0].get_value().bit_generator.state


def assert_same(step, other):
    (values, generator), (others, another) = state_of(step), state_of(other)
    assert generator == another
    for value, expected in zip(values, others, strict=True):
        np.testing.assert_array_equal(value, expected)


@on_one_driver
def test_two_contexts_are_one_device(context, on_device, rng):
    add_context("second", f"opencl:{context.name}")
    one = make("OPENCL", accumulate=3)
    two = make("OPENCL", accumulate=3, devices=[context.name, "second"])
    assert two.settings == one.settings == {"accumulate": 3}
    for x, y in batches(rng, (8, 5, 1)):
        assert one(x, y) == two(x, y)
    assert_same(one, two)
    assert_on_device(two._parts._devices[1]._compute, GpuElemwise)
    contexts = {node.context for node in pytensor_cl.explain(two._parts._devices[1]._compute).device_nodes}
    assert contexts == {"second"}


def test_two_devices_of_one_driver():
    """PoCL with two devices: the bytes of the files are those of a step on one device."""
    script = """
        import numpy as np, pytensor, pytensor.tensor as pt
        import pytensor_cl
        from pytensor_cl import nn, optimizers, train

        def run(path, **options):
            w = pytensor.shared(np.linspace(-1, 1, 15, dtype="float32").reshape(5, 3), name="w")
            x, y = pt.fmatrix("x"), pt.lvector("y")
            loss = nn.softmax_cross_entropy(pt.tanh(x) @ w, y)
            step = train.step([x, y], loss, optimizers.Adam(0.1), mode="OPENCL", **options)
            generator = np.random.default_rng(0)
            data = generator.normal(size=(21, 5)).astype("float32"), generator.integers(0, 3, 21)
            train.fit(step, data, 2, batch_size=8, checkpoint=path, progress="never")
            return open(path, "rb").read()

        import tempfile
        with tempfile.TemporaryDirectory() as folder:
            one = run(folder + "/one.st", accumulate=2)
            two = run(folder + "/two.st", devices=["a", "b"])
        seen["same"] = one == two
        seen["devices"] = len({str(pytensor_cl.runtime.registry.get_context(n).entry.spec) for n in "ab"})
    """
    if not any(":pocl:" in entry.stable_spec for entry in pytensor_cl.devices()):
        pytest.skip("needs PoCL")
    pytest.importorskip("safetensors")
    seen, _ = run_script(script, "contexts=a->opencl:pocl:0;b->opencl:pocl:1", POCL_DEVICES="pthread pthread")
    assert seen == {"same": True, "devices": 2}


def test_draws_and_statistics_of_parts(rng):
    """Each part draws from a generator of its own; the next running statistics are means over the rows of the parts."""
    x, w = pt.dmatrix("x"), pytensor.shared(np.ones((2, 3)), name="w")
    mean, var = pytensor.shared(np.zeros(3), name="mean"), pytensor.shared(np.ones(3), name="var")
    noise = pt.random.shared_rng(seed=7, name="noise")
    _, draw = noise.normal(size=x.shape)
    normal, *_ = nn.batch_normalization_train(x @ w, None, None, running_mean=mean, running_var=var)
    metrics = {"draw": draw.mean(), "normal": normal.mean()}
    step = train.step(
        [x],
        pt.sqr(normal - 1).mean() + draw.mean(),
        optimizers.SGD(0.1),
        metrics=metrics,
        accumulate=2,
        mode="FAST_COMPILE",
    )
    data = rng.normal(size=(5, 2))
    product = data @ np.ones((2, 3))
    found = float(step(data)["draw"])
    own = np.random.default_rng(7)
    key = own.integers(0, 2**32, 4, np.uint32).tolist()
    draws = [np.random.default_rng([*key, k]).normal(size=(rows, 2)) for k, rows in enumerate((2, 3))]
    np.testing.assert_allclose(found, np.concatenate(draws).mean(), rtol=1e-12)
    assert noise.get_value().bit_generator.state == own.bit_generator.state
    np.testing.assert_allclose(mean.get_value(), 0.1 * product.mean(axis=0), rtol=1e-10)
    variances = [part.var(axis=0, ddof=1) for part in (product[:2], product[2:])]
    np.testing.assert_allclose(var.get_value(), 0.9 + 0.1 * (2 * variances[0] + 3 * variances[1]) / 5, rtol=1e-10)


def test_a_part_without_weight_counts_as_nothing():
    """Its mean is 0/0 in a formula that divides by the weight; the step is that of the part that counts."""
    w = pytensor.shared(np.ones(2), name="w")
    x, y = pt.dmatrix("x"), pt.dvector("y")
    errors = pt.switch(pt.isnan(y), 0.0, pt.sqr(x @ w - pt.switch(pt.isnan(y), 0.0, y)))
    weight = pt.sum(~pt.isnan(y))
    step = train.step(
        [x, y], errors.sum() / weight, optimizers.SGD(0.1), weight=weight, accumulate=2, mode="FAST_COMPILE"
    )
    results = step(np.eye(2).repeat(2, axis=0), np.array([np.nan, np.nan, 3.0, 5.0]))
    assert results == {"loss": 10.0, "weight": 2.0}
    np.testing.assert_allclose(w.get_value(), [1.0, 1.0 + 0.1 * 2 * 3.0])


def test_an_empty_batch_leaves_running_statistics(rng):
    step = make("FAST_COMPILE", accumulate=2, metrics={})
    before = [variable.get_value() for variable in step.weights]
    results = step(np.ones((0, 5), "float32"), np.ones(0, "int64"))
    assert results["loss"] == results["weight"] == 0
    for value, expected in zip((v.get_value() for v in step.weights), before, strict=True):
        np.testing.assert_array_equal(value, expected)


def test_sums_stay_on_a_device_with_its_own_memory(context, on_device, rng, monkeypatch):
    steps = []
    for is_apart in (False, True):
        monkeypatch.setattr("pytensor_cl.train.parts.has_own_memory", lambda is_apart=is_apart: is_apart)
        steps.append(make("OPENCL", accumulate=3))
    for x, y in batches(rng):
        results = [step(x, y) for step in steps]
        assert all(isinstance(result, GpuArray) for result in results[1].values())
        assert list(map(float, results[0].values())) == list(map(float, results[1].values()))
    assert_same(*steps)


def test_what_several_devices_refuse(context):
    x, w = pt.fmatrix("x"), pytensor.shared(np.ones(5, "float32"), name="w")
    loss, sgd, counter = pt.sqr(x @ w).mean(), optimizers.SGD(0.1), pytensor.shared(0, name="counter")
    with pytest.raises(ValueError, match="different names of contexts"):
        train.step([x], loss, sgd, devices=[context.name, context.name], mode="OPENCL")
    with pytest.raises(ValueError, match="different names of contexts"):
        train.step([x], loss, sgd, devices=[], mode="OPENCL")
    with pytest.raises(ValueError, match="needs a mode that runs on devices"):
        train.step([x], loss, sgd, devices=[context.name], mode="FAST_COMPILE")
    with pytest.raises(ValueError, match="several devices cannot"):
        add_context("second", f"opencl:{context.name}")
        train.step([x], loss, sgd, devices=[context.name, "second"], updates={counter: counter + 1}, mode="OPENCL")
