"""The table of parameters, and the file that replaces some of them."""

import json

import pytest

from pytensor_cl.runtime.context import Settings, open_context
from pytensor_cl.runtime.tuning import DEFAULTS, FILE_VARIABLE, PARAMETERS, load_tuning


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Makes the user's file."""
    path = tmp_path / "tuning.json"
    monkeypatch.setenv(FILE_VARIABLE, str(path))
    return path


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_parameter_is_described(name):
    parameter = PARAMETERS[name]
    family, _, rest = name.partition(".")
    assert rest and family in ("elemwise", "reduction", "gemm", "conv", "launch")
    assert parameter.about and parameter.schedule in ("cpu", "simt")
    assert parameter.choices and parameter.default not in parameter.choices


def test_without_a_file_there_are_the_defaults(monkeypatch):
    monkeypatch.delenv(FILE_VARIABLE, raising=False)
    assert load_tuning() == DEFAULTS == {name: p.default for name, p in PARAMETERS.items()}
    assert load_tuning().origin == "the defaults"


def test_a_context_has_the_numbers_of_the_file(context, file):
    file.write_text(json.dumps({"elemwise.tile": 16384}))
    opened = open_context(context.entry.stable_spec, "t", Settings(quiet=True))
    assert opened.tuning == {**DEFAULTS, "elemwise.tile": 16384}
    assert opened.tuning.origin == str(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read"),
        ("[]", "no JSON object"),
        ('{"no.such": 1}', "no parameter 'no.such'"),
        ('{"elemwise.tile": 7}', "elemwise.tile is one of 2048, 4096, 8192, 16384, 32768, not 7"),
        ('{"elemwise.tile": "8192"}', "not '8192'"),
        ('{"elemwise.items_per_unit": true}', "not True"),
    ],
)
def test_a_wrong_file_is_refused(file, text, message):
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_tuning()


def test_a_missing_file_is_refused(file):
    with pytest.raises(ValueError, match=f"{FILE_VARIABLE}: .* cannot be read"):
        load_tuning()
