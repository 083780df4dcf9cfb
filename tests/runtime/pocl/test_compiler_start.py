"""The start of PoCL's compiler before a program needs it."""

import pytest

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.pocl import compiler_start


@pytest.mark.parametrize("is_cold", [True, False])
def test_it_is_started_early_where_no_kernel_was_rendered_before(context, tmp_path, monkeypatch, is_cold):
    started = []
    monkeypatch.setattr(compiler_start, "start_compiler", started.append)
    monkeypatch.setattr(compiler_start, "rendered_folder", lambda: tmp_path / "none" if is_cold else tmp_path)
    monkeypatch.setattr(compiler_start, "Thread", lambda target, args: Now(target, args))
    compiler_start.start_if_cold(context.device)
    assert started == [context.device] * is_cold


def test_it_builds_a_program(context, monkeypatch):
    built = []
    build = cl.Program.build
    monkeypatch.setattr(cl.Program, "build", lambda program, **options: built.append(build(program, **options)))
    compiler_start.start_compiler(context.device)
    (program,) = built
    assert program.get_info(cl.program_info.NUM_KERNELS) == 1


class Now:
    """A thread that runs at once."""

    def __init__(self, target, args):
        self.target, self.args = target, args

    def start(self):
        self.target(*self.args)
