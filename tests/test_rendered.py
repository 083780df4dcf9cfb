"""Rendered templates on disk."""

import numpy as np
import pytest

from pytensor_cl import rendered, template
from pytensor_cl.errors import TemplateError


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    """A folder with one template; an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "t.mako").write_text("<%page args='x'/>${x}")
    rendered._stamp.cache_clear()
    yield folder
    rendered._stamp.cache_clear()


def recall(folder, text, **args):
    rendered._stamp.cache_clear()
    return rendered.recall(folder, "t", args, lambda: text)


def test_a_text_is_rendered_once(kernels):
    assert [recall(kernels, "first", x=1), recall(kernels, "second", x=1)] == ["first", "first"]
    assert recall(kernels, "third", x=(1, "a", None, np.dtype("int8"), {"k": [True]})) == "third"
    assert len(list(rendered.rendered_folder().iterdir())) == 2


def test_any_change_of_a_template_makes_it_anew(kernels):
    assert recall(kernels, "first", x=1) == "first"
    (kernels / "included.mako").write_text("new")
    assert recall(kernels, "second", x=1) == "second"


def test_what_repr_does_not_tell_is_not_kept(kernels):
    assert [recall(kernels, text, x=object()) for text in "ab"] == ["a", "b"]
    assert [recall(kernels, text, x=np.zeros(3)) for text in "ab"] == ["a", "b"]
    assert not rendered.rendered_folder().exists()


def test_without_a_folder_to_write_to(kernels, tmp_path):
    (tmp_path / "cache").write_text("a file")
    assert [recall(kernels, text, x=1) for text in "ab"] == ["a", "b"]


def test_a_broken_file_is_made_anew(kernels):
    recall(kernels, "first", x=1)
    (file,) = rendered.rendered_folder().iterdir()
    file.write_bytes(b"\xff\xfe")
    assert recall(kernels, "second", x=1) == "second" == file.read_text()


def test_wrong_arguments_are_errors_every_time(kernels):
    for _ in range(2):
        with pytest.raises(TemplateError, match="unexpected"):
            template.render("alarm", nonsense=1)
