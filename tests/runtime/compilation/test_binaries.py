"""Compiled programs on disk, for drivers that keep none: checked, and made again when damaged."""

import numpy as np
import pytest

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.errors import CompilationError
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.compilation import binaries
from pytensor_cl.runtime.program import ProgramCache
from pytensor_cl.runtime.queue import Queue

SOURCE = KernelSource("seven", "__kernel void seven(__global int *x) { x[get_global_id(0)] = 7; }")


@pytest.fixture
def own(context, tmp_path, monkeypatch):
    """A function that computes with a new cache of programs each time; the folder; and the texts that were compiled."""
    monkeypatch.setattr(binaries, "_is_wanted", lambda device: True)
    compiled = []
    build = cl.Program.build

    def counted(program, *args, **more):
        if program._prg is None:  # from a text
            compiled.append(program)
        return build(program, *args, **more)

    monkeypatch.setattr(cl.Program, "build", counted)

    def compute():
        queue = Queue(context.cl_context, context.device, False)
        programs = ProgramCache(context.cl_context, [], str(tmp_path))
        array = context.from_host(np.zeros(3, "int32"))
        context.queue.wait()
        programs.kernel(SOURCE).launch(queue, (3,), None, array.buffer)
        queue.wait()
        return array.to_host().tolist()

    return compute, tmp_path / "programs", compiled


def test_a_program_is_compiled_once(own):
    compute, folder, compiled = own
    assert compute() == compute() == [7, 7, 7]
    assert len(compiled) == 1 and len(list(folder.iterdir())) == 1


DAMAGE = {"empty": lambda data: b"", "cut": lambda data: data[: len(data) // 2], "garbage": lambda data: b"garbage" * 9}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_made_again(own, damage):
    compute, folder, compiled = own
    compute()
    (file,) = folder.iterdir()
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    assert compute() == compute() == [7, 7, 7]
    assert len(compiled) == 2 and list(folder.iterdir()) == [file]


def test_a_binary_that_the_driver_refuses_is_replaced(own, context, monkeypatch):
    compute, folder, compiled = own
    compute()
    program = cl.Program

    def refuse(*args):
        if len(args) == 3:
            raise cl.LogicError("INVALID_BINARY")
        return program(*args)

    refuse.build = program.build
    with monkeypatch.context() as patch:
        patch.setattr(cl, "Program", refuse)
        assert compute() == [7, 7, 7] and len(compiled) == 2
    assert compute() == [7, 7, 7] and len(compiled) == 2 and len(list(folder.iterdir())) == 1


def test_a_folder_that_cannot_be_written_to_keeps_nothing(own):
    compute, folder, compiled = own
    folder.write_text("a file")
    assert compute() == compute() == [7, 7, 7] and len(compiled) == 2


def test_options_and_texts_have_files_of_their_own(context, tmp_path, monkeypatch):
    monkeypatch.setattr(binaries, "_is_wanted", lambda device: True)
    kept = binaries.Binaries(context.cl_context, str(tmp_path))
    keys = {kept._key("a", []), kept._key("b", []), kept._key("a", ["-w"])}
    monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", "-g")
    assert len(keys | {kept._key("a", [])}) == 4


def test_cpus_of_one_name_have_files_of_their_own(context, tmp_path, monkeypatch):
    monkeypatch.setattr(binaries, "_is_wanted", lambda device: True)
    kept = binaries.Binaries(context.cl_context, str(tmp_path))
    is_cpu = bool(context.device.type & cl.device_type.CPU)
    keys = set()
    for flags in ({"sse2", "avx2"}, {"sse2", "avx2", "avx512f"}):
        monkeypatch.setattr(binaries, "instruction_sets", lambda flags=flags: frozenset(flags))
        keys.add(kept._key("a", []))
    assert len(keys) == (2 if is_cpu else 1)


@pytest.mark.parametrize("value", ["1", "true"])
def test_pyopencls_variable_switches_it_off(context, monkeypatch, value):
    monkeypatch.setenv("PYOPENCL_NO_CACHE", value)
    assert binaries.Binaries(context.cl_context, None)._folder is None


def test_a_kernel_that_is_missing_from_a_program_names_the_command(context):
    programs = ProgramCache(context.cl_context, [], None)
    with pytest.raises(CompilationError, match=r"(?s)no kernel 'eight'.*pytensor-cl cache clear"):
        programs.kernel(SOURCE, "eight")
