"""Rendered templates on disk."""

import ast
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from pytensor_cl.codegen import checked_files, rendered, template, temporary
from pytensor_cl.errors import TemplateError

ROOT = Path(rendered.__file__).parents[2]


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


def load_or_render(folder, text, **args):
    rendered._stamp.cache_clear()
    return rendered.load_or_render(folder, "t", args, lambda: text)


def test_a_text_is_rendered_once(kernels):
    assert [load_or_render(kernels, "first", x=1), load_or_render(kernels, "second", x=1)] == ["first", "first"]
    assert load_or_render(kernels, "third", x=(1, "a", None, np.dtype("int8"), {"k": [True]})) == "third"
    assert len(list(rendered.rendered_folder().iterdir())) == 2


def test_any_change_of_a_template_makes_it_anew(kernels):
    assert load_or_render(kernels, "first", x=1) == "first"
    (kernels / "included.mako").write_text("new")
    assert load_or_render(kernels, "second", x=1) == "second"


def test_values_without_a_complete_repr_are_not_kept(kernels):
    assert [load_or_render(kernels, text, x=object()) for text in "ab"] == ["a", "b"]
    assert [load_or_render(kernels, text, x=np.zeros(3)) for text in "ab"] == ["a", "b"]
    assert not rendered.rendered_folder().exists()


def test_without_a_folder_to_write_to(kernels, tmp_path, monkeypatch):
    """A temporary folder takes its place, or nothing is kept."""
    (tmp_path / "cache").write_text("a file")
    temporary.usable_folder.cache_clear()
    assert [load_or_render(kernels, text, x=1) for text in "ab"] == ["a", "a"]
    temporary.usable_folder.cache_clear()
    monkeypatch.setattr(temporary, "temporary_folder", lambda: Path(os.devnull) / "cache")
    assert [load_or_render(kernels, text, x=1) for text in "ab"] == ["a", "b"]
    temporary.usable_folder.cache_clear()


def cut(data):
    return data[: len(data) // 2]


def of_another_version(data):
    return data.replace(b"cache 1", b"cache 0")


DAMAGE = {
    "empty": lambda data: b"",
    "cut": cut,
    "garbage": lambda data: b"\xff\xfegarbage",
    "another version": of_another_version,
    "another content": lambda data: data.replace(b"first", b"fixst"),
    "a text without a head": lambda data: b"first",
    "no content": lambda data: data.partition(b"\n")[0],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_made_again_with_one_line_in_the_log(kernels, damage, caplog, capfd):
    load_or_render(kernels, "first", x=1)
    (file,) = rendered.rendered_folder().iterdir()
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    assert not checked_files.is_intact(file)
    with caplog.at_level("DEBUG", logger="pytensor_cl"):
        assert load_or_render(kernels, "second", x=1) == "second"
    assert [record.levelname for record in caplog.records] == ["DEBUG"] and str(file) in caplog.text
    assert load_or_render(kernels, "third", x=1) == "second" and checked_files.is_intact(file)
    assert capfd.readouterr() == ("", "")


def test_a_file_of_another_key_is_not_taken(kernels):
    load_or_render(kernels, "first", x=1)
    (first,) = rendered.rendered_folder().iterdir()
    load_or_render(kernels, "second", x=2)
    (second,) = set(rendered.rendered_folder().iterdir()) - {first}
    second.write_bytes(first.read_bytes())
    assert load_or_render(kernels, "third", x=2) == "third"


def test_a_folder_in_place_of_a_file(kernels):
    load_or_render(kernels, "first", x=1)
    (file,) = rendered.rendered_folder().iterdir()
    file.unlink()
    file.mkdir()
    assert load_or_render(kernels, "second", x=1) == "second"
    assert list(rendered.rendered_folder().iterdir()) == [file]


def test_many_writers_at_once_leave_one_whole_file(tmp_path):
    folder = checked_files.CheckedFolder(tmp_path, 1 << 20)
    contents = [bytes([k]) * 100_000 for k in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: [folder.write(b"key", content) for _ in range(20)], contents))
        found = list(pool.map(lambda _: folder.read(b"key"), range(8)))
    assert len(set(found)) == 1 and found[0] in contents
    assert len(list(tmp_path.iterdir())) == 1


def test_a_reader_never_gets_half_a_file(tmp_path):
    folder = checked_files.CheckedFolder(tmp_path, 1 << 20)
    contents = [b"a" * 50_000, b"b" * 60_000]
    folder.write(b"key", contents[0])
    with ThreadPoolExecutor(2) as pool:
        writing = pool.submit(lambda: [folder.write(b"key", contents[k % 2]) for k in range(200)])
        while not writing.done():
            assert folder.read(b"key") in contents


def test_the_oldest_files_go_first(tmp_path):
    folder = checked_files.CheckedFolder(tmp_path, 4000)
    for k in range(4):
        folder.write(b"%d" % k, bytes(800))
        os.utime(folder._file(b"%d" % k), (k, k))
    assert folder.read(b"0") == bytes(800)  # which is noted in its time stamp
    fresh = checked_files.CheckedFolder(tmp_path, 4000)
    fresh.write(b"4", bytes(800))
    assert [k for k in range(5) if fresh.read(b"%d" % k) is not None] == [0, 3, 4]


def test_drafts_of_processes_that_ended_are_removed(tmp_path):
    old, new = tmp_path / f"{'0' * 32}.abc.tmp", tmp_path / f"{'0' * 32}.def.tmp"
    for draft in (old, new):
        draft.touch()
    os.utime(old, (0, 0))
    checked_files.CheckedFolder(tmp_path, 1000).write(b"key", b"content")
    assert not old.exists() and new.exists()


def _imports(code):
    """The modules of the package that Python code imports, and names that may be modules."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not found"
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def test_every_module_that_templates_import_is_part_of_the_stamp():
    directory = template._directory()
    texts = [file.read_text() for file in directory.rglob("*.mako")]
    stamped = rendered._module_files(texts)
    codes = [template._lookup().get_template(f"/{f.relative_to(directory)}").code for f in directory.rglob("*.mako")]
    codes += [file.read_text() for file in stamped.values()]
    imported = {name for code in codes for name in _imported_modules(code)}
    assert imported and imported <= stamped.keys()


def _imported_modules(code):
    found = (name for name in _imports(code) if name.startswith("pytensor_cl."))
    return {name for name in found if (ROOT / name.replace(".", "/")).with_suffix(".py").is_file()}


def test_a_change_of_an_imported_module_makes_a_text_anew(kernels, monkeypatch, tmp_path):
    (kernels / "t.mako").write_text("<%page args='x'/><%! from pytensor_cl.some.numbers import one %>${x}")
    package = tmp_path / "package" / "pytensor_cl"
    (package / "some").mkdir(parents=True)
    numbers, deeper = package / "some" / "numbers.py", package / "deeper.py"
    numbers.write_text("from pytensor_cl import (\n    deeper,\n)")
    deeper.write_text("one = 1")
    monkeypatch.setattr(rendered, "__file__", str(package / "codegen" / "rendered.py"))
    assert load_or_render(kernels, "first", x=1) == load_or_render(kernels, "second", x=1) == "first"
    deeper.write_text("one = 2")
    assert load_or_render(kernels, "third", x=1) == "third"


def test_wrong_arguments_are_errors_every_time(kernels):
    for _ in range(2):
        with pytest.raises(TemplateError, match="unexpected"):
            template.render("runtime/error_flag", nonsense=1)
