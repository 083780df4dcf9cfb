"""``tune``: only right results count, what was found is used, and a run continues where the last one ended."""

import json
from itertools import count
from math import inf

import numpy as np
import pytest

from pytensor_cl.cli import main, tune
from pytensor_cl.cli.tuning_search import ROUNDS, Bench, candidates, improve
from pytensor_cl.cli.tuning_workloads import STAGES, Workload, _add, _conv, _forward, _total
from pytensor_cl.routines.conv.routine import ConvForward
from pytensor_cl.routines.gemm.routine import Gemm
from pytensor_cl.routines.gemv.routine import Gemv
from pytensor_cl.runtime.context import Settings, open_context
from pytensor_cl.runtime.tuning import PARAMETERS, shipped, tuning_file


def forward(x, w):
    return _forward(x, w, 1, 1)


SMALL = {
    "elemwise": (
        Workload("add", ((5000,),) * 2, _add, np.add),
        Workload("crossing", ((70, 70),) * 2, lambda c: _add(c, 2, True), lambda a, b: a + b.T),
    ),
    "reduction": (
        Workload("rows", ((40, 900),), lambda c: _total(c, (1,)), lambda a: a.sum(1)),
        Workload("columns", ((300, 2100),), lambda c: _total(c, (0,)), lambda a: a.sum(0)),
    ),
    "gemm": (
        Workload("product", ((101, 1100), (1100, 300)), lambda c: Gemm(c, "float32"), np.matmul),
        Workload("vector", ((301, 203), (203,)), lambda c: Gemv(c, "float32"), np.matmul),
    ),
    "conv": (Workload("layer", ((1, 40, 17, 17), (48, 40, 3, 3)), _conv(ConvForward, 1, 1), forward),),
}


def values_of(context):
    return dict(shipped(context.entry))


@pytest.mark.parametrize("stage", SMALL)
def test_every_candidate_is_right(context, stage):
    bench = Bench(context, SMALL[stage])
    values = values_of(context)
    for name, value in candidates(stage, context.info.schedule):
        assert bench.calls({**values, name: value}) is not None, (name, value)


@pytest.mark.parametrize("stage", STAGES)
def test_workloads_have_right_results(context, stage):
    assert Bench(context, STAGES[stage]()[:2]).calls(values_of(context)) is not None


def test_candidates_are_those_of_the_schedule():
    names = {schedule: {name for name, _ in candidates("reduction", schedule)} for schedule in ("cpu", "simt")}
    assert names["cpu"] and names["simt"] and not names["cpu"] & names["simt"]


def test_a_bench_puts_the_parameters_back(context):
    before = context.tuning
    Bench(context, SMALL["elemwise"]).calls({**values_of(context), "elemwise.tile": 2048})
    assert context.tuning is before


def wrong(a, b):
    return a - b


def test_wrong_results_never_count(context):
    bench = Bench(context, (Workload("add", ((50,),) * 2, _add, wrong),))
    assert bench.calls(values_of(context)) is None
    with pytest.raises(RuntimeError, match="wrong"):
        next(improve(bench, values_of(context), [("elemwise.tile", 2048)]))


class Fixed:
    """A bench with made-up times; `speed` is the time with each value of the one parameter."""

    def __init__(self, times):
        self.times = times

    def calls(self, values):
        time = self.times.get(values["elemwise.tile"], 1.0)
        return None if time is None else [time]

    def ratio(self, calls, others, rounds=3):
        return calls[0] / others[0]


def test_the_fastest_that_is_right_wins():
    values = {"elemwise.tile": 8192}
    bench = Fixed({2048: 0.5, 4096: None, 16384: 0.49, 32768: 0.4})
    todo = [("elemwise.tile", value) for value in PARAMETERS["elemwise.tile"].candidates]
    trials = list(improve(bench, values, todo))
    assert values == {"elemwise.tile": 32768}
    assert [(t.value, t.accepted) for t in trials] == [(2048, True), (4096, False), (16384, False), (32768, True)]
    assert trials[1].ratio == inf


def test_ratio_gives_up_on_the_slow(context, monkeypatch):
    bench = Bench(context, ())
    asked = []
    monkeypatch.setattr(bench, "_best", lambda call, seconds: asked.append(call) or call)
    assert bench.ratio([2.0] * 5, [1.0] * 5) == pytest.approx(2)
    assert len(asked) == 2 * ROUNDS
    assert bench.ratio([1.0, 0.25], [1.0, 1.0]) == pytest.approx(0.5)


@pytest.fixture
def cache_dir(monkeypatch, tmp_path):
    monkeypatch.setattr(tune, "config", type("config", (), {"opencl__cache_dir": str(tmp_path)}))
    return str(tmp_path)


@pytest.fixture
def quick(monkeypatch, cache_dir):
    """The command with small workloads, few candidates, and made-up comparisons: the first two are better."""
    numbers = count()
    monkeypatch.setattr(
        tune, "STAGES", {"elemwise": lambda: SMALL["elemwise"], "reduction": lambda: SMALL["reduction"]}
    )
    monkeypatch.setattr(Bench, "ratio", lambda *_: 0.5 if next(numbers) < 4 else 2.0)
    return cache_dir


def command(context, *words):
    return main(["tune", "--device", context.entry.stable_spec, *words])


def saved(context, cache_dir):
    return json.loads(tuning_file(context.entry, cache_dir).read_text())


def test_what_was_found_is_used(context, quick, capsys, monkeypatch):
    assert command(context, "--stage", "elemwise", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    # Two candidates won, each in two comparisons; the comparison with the shipped parameters failed.
    assert report["stages"]["elemwise"]["finished"] and report["stages"]["elemwise"]["parameters"] == {}
    monkeypatch.setattr(Bench, "ratio", lambda *_: 0.5)
    assert command(context, "--stage", "elemwise", "--restart", "--budget", "0") == 0
    found = saved(context, quick)
    assert len(found["parameters"]) == 1 and not found["stages"]["elemwise"]["finished"]
    opened = open_context(context.entry.stable_spec, "t", Settings(cache_dir=quick))
    assert {**opened.tuning, **found["parameters"]} == opened.tuning


def test_a_run_goes_on_where_the_last_one_ended(context, quick, capsys, monkeypatch):
    monkeypatch.setattr(Bench, "ratio", lambda *_: 2.0)
    tried = []
    for _ in range(3):
        assert command(context, "--stage", "elemwise", "--budget", "0") == 0
        tried.append([tuple(t[:2]) for t in saved(context, quick)["stages"]["elemwise"]["tried"]])
    assert [len(t) for t in tried] == [1, 2, 3] and tried[0] == tried[2][:1] and len(set(tried[2])) == 3
    assert command(context, "--stage", "elemwise") == 0
    assert saved(context, quick)["stages"]["elemwise"]["finished"]
    assert "as shipped" in capsys.readouterr().out


def test_stages_that_are_finished_are_left_alone(context, quick, monkeypatch):
    assert command(context) == 0
    before = saved(context, quick)
    monkeypatch.setattr(tune, "Bench", None)
    assert command(context) == 0
    assert saved(context, quick) == before and set(before["stages"]) == {"elemwise", "reduction"}


def test_an_interrupted_run_has_kept_what_it_found(context, quick, monkeypatch, capsys):
    numbers = count()

    def ratio(*_):
        if next(numbers) == 2:
            raise KeyboardInterrupt
        return 2.0

    monkeypatch.setattr(Bench, "ratio", ratio)
    assert command(context, "--stage", "elemwise") == 130
    assert len(saved(context, quick)["stages"]["elemwise"]["tried"]) == 2
    assert "again" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["{", "[]", '{"stages": 3}', '{"stages": {"gemm": {}}}', '{"stages": [1]}'])
def test_a_file_that_cannot_be_used_is_begun_anew(tmp_path, capsys, text):
    path = tmp_path / "tuned.json"
    path.write_text(text)
    assert tune._State(path, None, False).stages == {}
    assert f"{path} cannot be used" in capsys.readouterr().err
