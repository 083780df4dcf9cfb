"""Scan as one kernel that loops over time."""

from typing import Any
from weakref import WeakKeyDictionary

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.type import TensorType

from pytensor_cl.ops.base import DEVICE, HOST, GpuOp, Routine
from pytensor_cl.routines.scan_loop.program import LoopProgram
from pytensor_cl.routines.scan_loop.routine import ScanLoop
from pytensor_cl.runtime.context import Context
from pytensor_cl.scalar.loop_step import loop_program
from pytensor_cl.scalar.unrolled import CannotUnroll

__all__ = ["GpuScanLoop", "known_program"]

Types = tuple[TensorType, ...]

_programs: WeakKeyDictionary[Op, dict[tuple[Types, bool], LoopProgram | str]] = WeakKeyDictionary()


def known_program(op: Op, input_types: Types, has_fp64: bool) -> LoopProgram | str:
    """Return the loop of a Scan, or the reason why there is none; it is worked out once for each Op and Types."""
    known = _programs.setdefault(op, {})
    key = input_types, has_fp64
    if key not in known:
        try:
            known[key] = loop_program(op, input_types, has_fp64)
        except CannotUnroll as error:
            known[key] = str(error)
    return known[key]


class GpuScanLoop(GpuOp):
    """Device counterpart of `Scan`, alone or in a Blockwise, whose steps are few operations on numbers.

    Parameters
    ----------
    host
        The Scan, or the Blockwise of one.
    context_name
        Name of the context.
    input_types
        Types of the inputs on the host.
    """

    __props__ = ("host", "context_name", "input_types")

    def __init__(self, host: Op, context_name: str, input_types: Types) -> None:
        super().__init__(host, context_name)
        self.input_types = input_types
        core: Any = host.core_op if isinstance(host, Blockwise) else host
        info = core.info
        arrays = info.n_seqs + info.n_mit_mot + info.n_mit_sot + info.n_sit_sot + info.n_untraced_sit_sot
        self.operand_placements = (HOST, *(DEVICE,) * arrays, *(HOST,) * info.n_nit_sot, DEVICE)
        self._name = core.name

    def __str__(self) -> str:
        return f"GpuScanLoop{{{self._name}}}"

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the loop."""
        program = known_program(self.host, self.input_types, context.info.has_fp64)
        if isinstance(program, str):
            raise TypeError(program)
        return ScanLoop(context, program)
