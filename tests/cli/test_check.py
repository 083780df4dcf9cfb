"""``check``: the classic check program."""

import json

import pytest

from pytensor_cl.cli import check, main
from pytensor_cl.runtime.device import resolve

PRINTED = """[GpuElemwise{exp}(x)]
Looping 1000 times took 0.125 seconds
Result is [1.25 2.5 1.75 ... 2.25 1.5
 2.0]
Used the gpu
"""


def outcome(seconds=0.5, values=(1.0, 2.0), used_gpu=True):
    return check.Outcome(seconds, list(values), used_gpu, "[]")


@pytest.fixture
def pretend(monkeypatch):
    """Replace the runs of the check program by given outcomes."""

    def replace(device, default):
        monkeypatch.setattr(check, "_take_turns", lambda *args, **options: ([device], [default]))

    return replace


def test_program_is_a_script_without_our_imports():
    compile(check.PROGRAM, "check.py", "exec")
    assert "pytensor_cl" not in check.PROGRAM
    assert "iters = 10 * 30 * 768, 1000" in check.PROGRAM


def test_parse():
    parsed = check._parse(PRINTED)
    assert parsed == check.Outcome(0.125, [1.25, 2.5, 1.75, 2.25, 1.5, 2.0], True, "[GpuElemwise{exp}(x)]")


def test_parse_refuses_other_output():
    with pytest.raises(check.CheckFailed):
        check._parse("Looping for a while")


def test_report_takes_the_best_runs(pretend, capsys):
    pretend(outcome(0.5), outcome(1.0, used_gpu=False))
    assert main(["check", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ratio"] == 2.0
    assert report["used_gpu"] and report["agree"]


@pytest.mark.parametrize(
    "device",
    [
        outcome(used_gpu=False),
        outcome(values=(1.0, 2.1)),
        outcome(values=(1.0,)),
        outcome(values=(1.0, float("nan"))),
    ],
)
def test_exit_code_for_the_wrong_device_and_for_wrong_results(pretend, capsys, device):
    pretend(device, outcome(used_gpu=False))
    assert main(["check"]) == 1
    text = capsys.readouterr().out
    assert "DIFFER" in text or "Used the cpu" in text


def test_a_program_that_fails_shows_what_it_printed(monkeypatch, capsys):
    monkeypatch.setattr(check, "PROGRAM", "print('so far')\nraise SystemExit('so good')\n")
    assert main(["check", "--repeats", "1"]) == 1
    text = capsys.readouterr().err
    assert "so far" in text and "so good" in text


def test_check_program_uses_the_device(capsys):
    assert main(["check", "--iters", "20", "--repeats", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["device"] == resolve("opencl").stable_spec
    assert report["used_gpu"]
    assert "Gpu" in report["graph"]
