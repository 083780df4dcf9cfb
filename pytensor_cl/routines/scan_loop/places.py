"""Places of the arrays of a loop in memory, as its kernels take them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pytensor_cl.codegen.structs import Struct
from pytensor_cl.routines.base.routine import struct_argument
from pytensor_cl.routines.scan_loop.program import OUTPUT, STATE, TIME, Dim, LoopArray, LoopProgram
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context


class Operand(NamedTuple):
    """An array that a kernel reads or writes.

    `is_output`: whether it is written.
    """

    number: int
    dims: tuple[Dim, ...]
    is_output: bool


def inputs_of(program: LoopProgram) -> tuple[Operand, ...]:
    """Return the arrays that a loop reads."""
    return tuple(Operand(k, a.dims, False) for k, a in enumerate(program.arrays) if a.is_read)


def outputs_of(program: LoopProgram) -> tuple[Operand, ...]:
    """Return the arrays that a loop writes."""
    return tuple(Operand(k, program.arrays[k].out_dims, True) for k in program.outputs)


def lost_rows(program: LoopArray, output: GpuArray, rows: int, steps: int) -> int:
    """Return how many of the first rows an output lacks; `rows`: those of the whole trace."""
    if not output.size:
        return 0
    reached = {STATE: steps + program.window, OUTPUT: steps}.get(program.role, 0)
    have = output.shape[program.out_dims.index(TIME)] if TIME in program.out_dims else 0
    return max(rows, reached) - have


class Places:
    """The struct that a kernel of a loop takes: numbers, and the place of each operand.

    `operands`: arrays of the kernel; `axes`: dimensions that work-items share out; `numbers`: names of the numbers.
    """

    def __init__(
        self, context: Context, program: LoopProgram, operands: Sequence[Operand], axes: int, numbers: str
    ) -> None:
        self._context = context
        self._program = program
        self.operands = tuple(operands)
        self.axes = axes
        self._cores = max(1, *(len(a.core) for a in program.arrays))
        self.place = Struct(
            ("long", f"offset time rows lost axis[{axes}] spread[{axes}] core[{self._cores}]"),
            name=f"loop_place_{axes}_{self._cores}",
        )
        self.struct = Struct(
            ("long", f"{numbers} shape[{axes}]"), (self.place, f"at[{len(self.operands)}]"), name="geometry"
        )
        self.in_buffer = self.struct.size + 8 * (1 + len(self.operands)) > context.info.max_parameter_size

    def argument(
        self,
        arrays: Sequence[GpuArray],
        order: Sequence[tuple[int, ...]],
        rows: Sequence[int],
        steps: int,
        numbers: Mapping[str, Any],
    ) -> Any:
        """Return the kernel's argument.

        `arrays`: those of the operands; `order`: axes that share each dimension; `rows`: rows of the whole trace of
        each array of the program; `numbers`: values of the other members.
        """
        places = [self._packed(o, a, order, rows[o.number], steps) for o, a in zip(self.operands, arrays, strict=True)]
        packed = self.struct.pack(steps=steps, at=places, **numbers)
        return struct_argument(self._context, packed, self.in_buffer)

    def _packed(
        self, operand: Operand, array: GpuArray, order: Sequence[tuple[int, ...]], rows: int, steps: int
    ) -> bytes:
        """Return the place of an array in memory."""
        program = self._program.arrays[operand.number]
        strides: dict[Dim, int] = {}
        core: list[int] = []
        for dim, stride in zip(operand.dims, array.layout.strides, strict=True):
            step = stride if array.size else 0
            if dim.kind == "core":
                core.append(step)
            elif dim.kind != "one":
                strides[dim] = step
        # An array has at most one axis of a group.
        axes = [next((Dim("axis", axis) for axis in group if Dim("axis", axis) in strides), None) for group in order]
        return self.place.pack(
            offset=array.layout.offset if array.size else 0,
            time=strides.get(TIME, 0),
            rows=rows if array.size else 0,
            lost=lost_rows(program, array, rows, steps) if operand.is_output else 0,
            axis=[0 if axis is None else strides[axis] for axis in axes],
            # The work-item at position 0 of a dimension without axes is not the only one that writes an array.
            spread=[int(axis is None and bool(group)) for axis, group in zip(axes, order, strict=True)],
            core=core + [0] * (self._cores - len(core)),
        )
