"""The self-check that begins while a program imports its modules."""

import os

import pytest

from pytensor_cl.runtime import worker_processes
from pytensor_cl.runtime.features import early_check, self_check
from pytensor_cl.runtime.features.features import FeatureFile, features_folder
from pytensor_cl.runtime.features.probe_process import identity_of


@pytest.fixture(autouse=True)
def none_started(monkeypatch):
    monkeypatch.setattr(early_check, "_started", {})


def test_its_results_are_those_of_the_self_check(context, tmp_path, monkeypatch):
    monkeypatch.setattr(self_check, "_SelfCheck", None)  # this process probes nothing itself
    self_check._features_of.cache_clear()
    early_check.start(context.entry.stable_spec, str(tmp_path))
    found = self_check.features_of(context.entry, str(tmp_path))
    assert found == context.info.features
    assert FeatureFile(identity_of(context.device), tmp_path).read() == found


def test_it_is_not_begun_where_a_device_is_known_or_no_interpreter_is(tmp_path, monkeypatch):
    folder = features_folder(tmp_path)
    folder.mkdir(parents=True)
    with monkeypatch.context() as frozen:
        frozen.setattr(worker_processes, "can_start", lambda: False)
        early_check.start("opencl", str(tmp_path))
    (folder / "0123").write_text("{}")
    early_check.start("opencl", str(tmp_path))
    assert not early_check.finish()


def test_it_ends_with_the_process_that_began_it(tmp_path):
    early_check.start("opencl", str(tmp_path))
    process = early_check._started[os.getpid()]
    early_check._end()
    assert process.returncode is not None and process.returncode < 0
    assert not early_check.finish()


def test_a_forked_child_has_none(tmp_path, monkeypatch):
    early_check.start("opencl", str(tmp_path))
    own = os.getpid()
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: own + 1)
        assert not early_check.finish()
        early_check._end()
    process = early_check._started[own]
    assert process.poll() is None
    early_check._end()
    assert process.returncode is not None


def test_a_device_that_does_not_exist_is_left_to_the_first_function(tmp_path):
    early_check.start("opencl99:0", str(tmp_path))
    assert early_check.finish()
    assert not features_folder(tmp_path).exists()
