"""The contents of error messages."""

import pickle

import pytest

from pytensor_cl.errors import CompilationError

_SOURCE = "\n".join(f"line_{i};" for i in range(1, 206))

LOGS = {
    "pocl": "error: /var/cache/pocl/kcache/tempfile_7DVGzj.cl:103:15: use of undeclared identifier 'y'\n1 error generated.",
    "clang": "input.cl:103:15: error: use of undeclared identifier 'y'\nError executing LLVM compilation action.",
    "intel": "Compilation started\n1:103:15: error: use of undeclared identifier 'y'\n  103 |  float x = y;\n      |     ^\nCompilation failed",
    "nvidia": "<kernel>:103:15: error: use of undeclared identifier 'y'\n    float x = y;\n              ^\n",
    "amd": '"/var/OCL4242T5.cl", line 103: error: identifier "y" is undefined\n      float x = y;\n                ^\n',
    "windows": "C:\\Temp\\a.cl:103:15: error: use of undeclared identifier 'y'",
}


@pytest.mark.parametrize("driver", LOGS)
def test_a_compilation_error_shows_the_lines_that_the_log_names(driver):
    error = CompilationError(LOGS[driver], _SOURCE)
    text = str(error)
    assert LOGS[driver].strip() in text
    shown = [i for i in range(1, 206) if f"| line_{i};" in text]
    assert shown == list(range(100, 107))
    assert "> 103 | line_103;" in text and "  102 | line_102;" in text
    assert "205 lines" in text and ".source" in text
    assert error.source == _SOURCE and error.log == LOGS[driver]


def test_ranges_of_several_errors_are_joined():
    log = "a.cl:10:1: error: x\na.cl:15:1: error: y\na.cl:200:1: error: z\na.cl:50:1: warning: w\na.cl:60:1: note: n"
    text = str(CompilationError(log, _SOURCE))
    shown = [i for i in range(1, 206) if f"| line_{i};" in text]
    assert shown == [*range(7, 19), *range(197, 204)]
    assert text.count("...") == 1


def test_lines_of_headers_and_of_other_languages_are_not_the_source_s():
    for log in (
        "/usr/lib/opencl-c-base.h:103:15: error: unknown type",
        "ptxas application ptx input, line 103; error : x",
    ):
        text = str(CompilationError(log, _SOURCE))
        assert "| line_103;" not in text and ".source" in text and "names no line" in text


def test_a_short_source_is_shown_whole_where_the_log_names_no_line():
    text = str(CompilationError("internal compiler error", "one;\ntwo;"))
    assert "1 | one;" in text and "2 | two;" in text


def test_many_errors_do_not_show_the_whole_source():
    log = "\n".join(f"a.cl:{i}:1: error: e{i}" for i in range(1, 206, 10))
    text = str(CompilationError(log, _SOURCE))
    assert text.count("| line_") < 60 and ".source" in text


def test_lines_beyond_the_source_are_no_error():
    assert "names no line" in str(CompilationError("a.cl:9999:1: error: x", _SOURCE))


def test_compilation_errors_pickle():
    error = pickle.loads(pickle.dumps(CompilationError("log", "source")))
    assert (error.log, error.source) == ("log", "source")
