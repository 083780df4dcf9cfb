"""The command line as a whole."""

import os
import subprocess
import sys

import pytest

import pytensor_cl
from pytensor_cl import cli
from pytensor_cl.cli import devices
from pytensor_cl.errors import DeviceNotFound


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("devices", "check", "doctor", "run", "cache"))


@pytest.mark.parametrize("command", ["devices", "check", "doctor", "run", "cache"])
def test_each_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([command, "--help"])
    assert stop.value.code == 0
    assert f"pytensor-cl {command}" in capsys.readouterr().out


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"pytensor-cl {pytensor_cl.__version__}\n"


@pytest.mark.parametrize("words", [[], ["nonsense"], ["devices", "--nonsense"]])
def test_misuse_exits_with_2(words, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(words)
    assert stop.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_errors_of_the_package_are_one_message_without_traceback(monkeypatch, capsys):
    def fail():
        raise DeviceNotFound("nothing answers")

    monkeypatch.setattr(devices, "discover", fail)
    assert cli.main(["devices"]) == 1
    captured = capsys.readouterr()
    assert captured.err == "pytensor-cl devices: nothing answers\n"
    assert captured.out == ""


def test_a_device_that_does_not_exist_lists_what_there_is(capsys):
    assert cli.main(["doctor", "--device", "opencl:nonsense"]) == 1
    assert "opencl:nonsense" in capsys.readouterr().err


def test_a_closed_pipe_ends_a_command_without_a_traceback():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as out:
        process = subprocess.run(
            [sys.executable, "-m", "pytensor_cl", "devices"], stdout=out, stderr=subprocess.PIPE, text=True, check=False
        )
    assert process.returncode == 1
    assert "BrokenPipeError" not in process.stderr and "Traceback" not in process.stderr
