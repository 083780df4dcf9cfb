"""The table of parameters: its sources, in their order, and files that cannot be used."""

import json
import warnings

import pytest

from pytensor_cl.runtime import tuning
from pytensor_cl.runtime.context import Settings, open_context
from pytensor_cl.runtime.tuning import DEFAULTS, PARAMETERS, load_tuning, shipped, tuning_digest, tuning_file


@pytest.fixture
def entry(context):
    return context.entry


def write(path, **parameters):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"parameters": parameters}))


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_parameter_is_described(name):
    parameter = PARAMETERS[name]
    stage, _, rest = name.partition(".")
    assert rest and stage in ("elemwise", "reduction", "gemm", "conv")
    assert parameter.about and parameter.schedule in ("cpu", "simt")
    assert parameter.candidates and parameter.default not in parameter.candidates


def test_without_a_file_there_is_what_is_shipped(entry, tmp_path):
    found = load_tuning(entry, str(tmp_path))
    assert found == shipped(entry) and set(found) == set(PARAMETERS) and "shipped" in found.origin


def test_what_is_shipped_is_valid():
    assert all(set(values) <= set(PARAMETERS) for values in tuning._shipped().values())


def test_an_unknown_driver_has_the_defaults(entry, monkeypatch):
    monkeypatch.setattr(tuning, "_shipped", dict)
    assert shipped(entry) == DEFAULTS and shipped(entry).origin == "the defaults"


def test_the_users_file_comes_last(entry, tmp_path):
    path = tuning_file(entry, str(tmp_path))
    write(path, **{"elemwise.tile": 16384})
    found = load_tuning(entry, str(tmp_path))
    assert found == {**shipped(entry), "elemwise.tile": 16384} and found.origin == str(path)
    assert load_tuning(entry, str(tmp_path), tuned=False) == shipped(entry)


def test_a_context_has_them(entry, tmp_path):
    write(tuning_file(entry, str(tmp_path)), **{"elemwise.tile": 16384})
    spec = entry.stable_spec
    assert open_context(spec, "t", Settings(cache_dir=str(tmp_path))).tuning["elemwise.tile"] == 16384
    plain = open_context(spec, "t", Settings(cache_dir=str(tmp_path), tuned=False))
    assert plain.tuning["elemwise.tile"] == shipped(entry)["elemwise.tile"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"parameters": {"elemwise.tile": 7}}', '{"parameters": {"no.such": 1}}', '{"parameters": 1}'],
)
def test_a_file_that_cannot_be_used_is_warned_of(entry, tmp_path, text):
    path = tuning_file(entry, str(tmp_path))
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.warns(UserWarning, match="is ignored"):
        assert load_tuning(entry, str(tmp_path)) == shipped(entry)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_tuning(entry, str(tmp_path), tuned=False)


@pytest.mark.parametrize("change", [{"version": 2}, {"digest": "0"}])
def test_another_version_or_digest_is_warned_of(entry, tmp_path, change):
    path, parameters = tuning_file(entry, str(tmp_path)), {"elemwise.tile": 16384}
    path.parent.mkdir(parents=True)
    content = {"version": 1, "parameters": parameters, "digest": tuning_digest(parameters)}
    path.write_text(json.dumps(content))
    assert load_tuning(entry, str(tmp_path))["elemwise.tile"] == 16384
    path.write_text(json.dumps({**content, **change}))
    with pytest.warns(UserWarning, match="is ignored"):
        assert load_tuning(entry, str(tmp_path)) == shipped(entry)


def test_another_driver_version_has_another_file(entry, tmp_path, monkeypatch):
    before = tuning_file(entry, str(tmp_path))
    monkeypatch.setattr(tuning, "__version__", "another")
    assert tuning_file(entry, str(tmp_path)) != before
