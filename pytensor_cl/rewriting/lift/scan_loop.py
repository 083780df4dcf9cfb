"""Scan, alone and in a Blockwise -> GpuScanLoop, where a step is few operations on numbers."""

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.scan.op import Scan

from pytensor_cl.ops.registry import NoKernel, register_batched_lift
from pytensor_cl.ops.scan_loop import GpuScanLoop, known_program
from pytensor_cl.rewriting.lowering.scan import register_whole_loop
from pytensor_cl.runtime.device import DeviceInfo

__all__ = ["lift_scan_loop"]


@register_batched_lift(Scan)
@register_whole_loop
def lift_scan_loop(op: Op, node: Apply, context_name: str, info: DeviceInfo) -> GpuScanLoop | NoKernel:
    """Scan(n, xs, ...) -> GpuScanLoop(n, xs, ...); the numbers of steps and of rows stay on the host."""
    types = tuple(v.type for v in node.inputs)
    program = known_program(op, types, info.has_fp64)
    if isinstance(program, str):
        return NoKernel(program)
    return GpuScanLoop(op, context_name, types)
