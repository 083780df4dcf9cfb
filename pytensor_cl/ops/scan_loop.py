"""Scan as one kernel that loops over time."""

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.scan.op import Scan
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.exceptions import ShapeError
from pytensor.tensor.type import TensorType

from pytensor_cl.ops.base import DEVICE, HOST, GpuOp, Routine
from pytensor_cl.ops.names import Show
from pytensor_cl.ops.registry import NoKernel, register_batched_lift, register_lift
from pytensor_cl.ops.scan import unsupported_reason
from pytensor_cl.routines.scan_loop.program import TIME, Dim, LoopArray, LoopProgram
from pytensor_cl.routines.scan_loop.routine import ScanLoop
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.scalar.loop_step import loop_program
from pytensor_cl.scalar.unrolled import CannotUnroll

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

    Of each output there are at most as many of the last rows as `kept` says; None is all. Nothing reads the others.
    `starts` are numbers of arrays, among the inputs without the number of steps, whose inputs are the initial values
    only. The numbers of their rows are the last inputs.
    """

    __props__ = ("host", "context_name", "input_types", "kept", "starts")

    def __init__(
        self,
        host: Op,
        context_name: str,
        input_types: Types,
        kept: tuple[int | None, ...] = (),
        starts: tuple[int, ...] = (),
    ) -> None:
        super().__init__(host, context_name)
        self.input_types = input_types
        core: Any = host.core_op if isinstance(host, Blockwise) else host
        info = core.info
        self.kept = kept or (None,) * info.n_outer_outputs
        self.starts = starts
        arrays = info.n_seqs + info.n_mit_mot + info.n_mit_sot + info.n_sit_sot + info.n_untraced_sit_sot
        constants = (DEVICE,) * info.n_non_seqs
        self.operand_placements = (HOST, *(DEVICE,) * arrays, *(HOST,) * info.n_nit_sot, *constants, HOST)
        self._name = core.name
        self._is_while = info.as_while
        self.is_capturable = not info.as_while

    def named(self, show: Show) -> str:
        """Return the name; `show` joins the names of parts."""
        return f"GpuScanLoop{{{self._name}}}"

    def with_kept(self, kept: tuple[int | None, ...]) -> "GpuScanLoop":
        """Return the same loop with shorter outputs."""
        return GpuScanLoop(self.host, self.context_name, self.input_types, kept, self.starts)

    def with_starts(self, starts: tuple[int, ...]) -> "GpuScanLoop":
        """Return the same loop, of which some arrays are given by their initial values."""
        return GpuScanLoop(self.host, self.context_name, self.input_types, self.kept, starts)

    def program(self, has_fp64: bool, inputs: Sequence[Variable] = ()) -> LoopProgram:
        """Return the loop; raise TypeError if there is none. The node's inputs are needed if there are `starts`."""
        program = known_program(self.host, self.input_types, has_fp64)
        if isinstance(program, str):
            raise TypeError(program)
        arrays = list(program.arrays)
        for number, kept in zip(program.outputs, self.kept, strict=True):
            arrays[number] = arrays[number]._replace(kept=kept)
        for number in self.starts:
            dims = started_dims(arrays[number], inputs[1 + number].type.shape)
            arrays[number] = arrays[number]._replace(has_rows=True, dims=dims)
        return program.changed(arrays)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Any:
        """Return the shapes that the host Op infers, with the rows that are kept."""
        if self._is_while:
            raise ShapeError("the shapes of a loop with a condition are known when it has run")
        count = len(self.input_types)
        inputs, given = [kind() for kind in self.input_types], list(shapes[:count])
        program = self.program(True, node.inputs)
        for number, rows in zip(self.starts, node.inputs[count:], strict=True):
            at = program.arrays[number].out_dims.index(TIME)
            given[1 + number] = (*given[1 + number][:at], rows, *given[1 + number][at + 1 :])
        found = [list(shape) for shape in self.host.infer_shape(self.host.make_node(*inputs), given)]
        for shape, kept, number in zip(found, self.kept, program.outputs, strict=True):
            if kept is not None:
                at = program.arrays[number].out_dims.index(TIME)
                shape[at] = pt.minimum(shape[at], kept)
        return [tuple(shape) for shape in found]

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the loop."""
        return ScanLoop(context, self.program(context.info.has_fp64, node.inputs))


def started_dims(array: LoopArray, shape: Sequence[int | None]) -> tuple[Dim, ...]:
    """Return the dimensions of initial values of an array, which may be the same along time and batch dimensions."""
    return tuple(
        Dim("one", 1) if n == 1 and (dim.kind == "axis" or (dim == TIME and array.window > 1)) else dim
        for dim, n in zip(array.dims, shape, strict=True)
    )


@register_batched_lift(Scan)
def lift_scan_loop(node: Apply, context_name: str, info: DeviceInfo) -> GpuScanLoop | NoKernel:
    """Scan(n, xs, ...) -> GpuScanLoop(n, xs, ...); the numbers of steps and of rows stay on the host."""
    types = tuple(v.type for v in node.inputs)
    program = known_program(node.op, types, info.has_fp64)
    return NoKernel(program) if isinstance(program, str) else GpuScanLoop(node.op, context_name, types)


@register_lift(Scan, numba_safe=True, every_dtype=True)
def lift_scan(node: Apply, context_name: str, info: DeviceInfo) -> GpuScanLoop | NoKernel:
    """Scan -> one kernel of the whole loop; a loop with a device graph of its steps was replaced before."""
    found = lift_scan_loop(node, context_name, info)
    if isinstance(found, GpuScanLoop):
        return found
    return NoKernel(unsupported_reason(node.op, info) or "no node of its steps has an OpenCL kernel, or is worth one")
