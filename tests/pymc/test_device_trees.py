"""The No-U-Turn sampler with trees on the device, against the one with trees on the host."""

import dataclasses

import numpy as np
import pytest

pm = pytest.importorskip("pymc")

from pytensor_cl.pymc import device_trees, sample, sampling  # noqa: E402
from pytensor_cl.pymc.density import ModelDensity  # noqa: E402
from pytensor_cl.pymc.device_trees import DeviceTreeChains, tree_place  # noqa: E402
from pytensor_cl.pymc.nuts import TreeChains  # noqa: E402
from pytensor_cl.routines.nuts import STATISTICS  # noqa: E402
from pytensor_cl.runtime.context import Context  # noqa: E402
from pytensor_cl.runtime.registry import get_context  # noqa: E402
from tests.helpers import on_one_driver  # noqa: E402
from tests.pymc.test_checkpoint import Stopped, assert_same, at_each_iteration, stop_at  # noqa: E402, F401


def normals():
    with pm.Model() as model:
        pm.Normal("x", 0, [0.3, 1.0, 4.0])
    return model


@on_one_driver
def test_statistics_are_those_of_the_trees_on_the_host(context, on_device):
    """Lengths, depths, acceptances and energies of thousands of trees have the same means."""
    chains, draws, step_size = 2000, 3, 0.35
    density = ModelDensity(normals(), {"x": (3,)})
    start = np.random.default_rng(4).normal(size=(chains, 3)) * [0.3, 1.0, 4.0]
    found = []
    for kind in (TreeChains, DeviceTreeChains):
        state = kind(density, chains, np.random.SeedSequence(7), "OPENCL", 63)
        state.set_positions([start])
        state.begin(step_size, draws, True)
        state.advance_to(draws - 1, step_size, 6)
        found.append(state.block())
    for name, host, device in zip(STATISTICS, found[0][2], found[1][2], strict=True):
        for power in (1, 2):
            of_host, of_device = host.ravel() ** power, device.ravel() ** power
            error = np.sqrt((of_host.var() + of_device.var()) / of_host.size)
            assert abs(of_host.mean() - of_device.mean()) <= 4.5 * error, (name, power)
    # Trees that begin at independent draws of the posterior end at such: a mean that is off by 0.1 deviations is found.
    means = found[1][0].mean(axis=(0, 1)) / [0.3, 1.0, 4.0]
    np.testing.assert_allclose(means, 0, atol=4.5 / np.sqrt(draws * chains))
    for draw, gradient in zip(*found[1][:2], strict=True):
        np.testing.assert_allclose(draw.std(axis=0) / [0.3, 1.0, 4.0], 1, atol=4.5 / np.sqrt(2 * chains))
        np.testing.assert_allclose(gradient, -draw / np.square([0.3, 1.0, 4.0]), rtol=1e-5)


@on_one_driver
def test_draws_do_not_depend_on_polls(context, on_device, monkeypatch):
    """Few polls and few transfers; with a poll after each step, and memory for one draw, the draws are the same."""
    counts = {"downloads": 0, "polls": 0, "steps": 0, "downloads of steps": 0}
    download, advance, poll = Context.download, DeviceTreeChains.advance, DeviceTreeChains._poll

    def counted_download(*args):
        counts["downloads"] += 1
        return download(*args)

    def counted_advance(*args):
        counts["steps"] += 1
        counts["downloads of steps"] -= counts["downloads"]
        advance(*args)
        counts["downloads of steps"] += counts["downloads"]

    def counted_poll(*args):
        counts["polls"] += 1
        poll(*args)

    monkeypatch.setattr(Context, "download", counted_download)
    monkeypatch.setattr(DeviceTreeChains, "advance", counted_advance)
    monkeypatch.setattr(DeviceTreeChains, "_poll", counted_poll)
    options = {"chains": 64, "draws": 12, "tune": 20, "random_seed": 5, "progressbar": False, "sampler": "nuts"}
    found = sample(normals(), trees="device", **options)
    assert counts["polls"] < counts["steps"] / 3
    assert counts["downloads of steps"] == 0
    monkeypatch.setattr(device_trees, "RING_BYTES", 1)
    monkeypatch.setattr(device_trees, "MOST_STEPS", 1)
    assert_same(sample(normals(), trees="device", **options), found)
    assert found.sample_stats.n_steps.values.std() > 0


@on_one_driver
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_goes_on_from_a_checkpoint(context, on_device, tmp_path, at_each_iteration, monkeypatch):  # noqa: F811
    """Runs that end in the warm-up and among the draws go on bit for bit, with the trees where they were."""
    options = {"chains": 32, "draws": 6, "tune": 18, "random_seed": 3, "progressbar": False, "sampler": "nuts"}
    path = tmp_path / "state"
    for stop, place in (12, "device"), (20, "host"):
        monkeypatch.setattr(sampling, "tree_place", lambda trees, *_, place=place: trees or place)
        with pytest.raises(Stopped):
            sample(normals(), checkpoint=path, callback=stop_at(stop), **options)
    with pytest.raises(ValueError, match="trees was None and is 'host'"):
        sample(normals(), trees="host", checkpoint=path, **options)
    found = sample(normals(), checkpoint=path, **options)
    assert_same(found, sample(normals(), trees="device", **options))


@on_one_driver
def test_place(context, monkeypatch):
    """A device whose memory is not the host's has the trees, if they fit."""
    info = get_context().info
    assert tree_place(None, "OPENCL", 64, 3, 63) == "host"  # a CPU
    gpu = dataclasses.replace(info, kind="gpu", shares_host_memory=False, max_allocation=1 << 30)
    monkeypatch.setattr(get_context(), "info", gpu)
    assert tree_place(None, "OPENCL", 64, 3, 63) == "device"
    assert tree_place("host", "OPENCL", 64, 3, 63) == "host"
    assert tree_place(None, "FAST_COMPILE", 64, 3, 63) == "host"
    assert tree_place(None, "OPENCL", 10_000, 10_000, 63) == "host"
