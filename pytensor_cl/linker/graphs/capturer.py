"""Run a call step by step while its launches are captured."""

from pytensor.graph.basic import Apply, Constant, Variable

from pytensor_cl.linker.graphs.builder import GraphBuilder
from pytensor_cl.linker.graphs.dynamic_slices import DynamicSlices
from pytensor_cl.linker.graphs.graph import CapturedGraph
from pytensor_cl.linker.graphs.host_values import HostValueClasses, launches_with_scalars, scalar_arguments
from pytensor_cl.linker.graphs.slices import SliceBinding, split_offset, sub_buffer
from pytensor_cl.linker.graphs.trace import CaptureFailure, CaptureTrace
from pytensor_cl.linker.types import StepProgram, StepRunner
from pytensor_cl.ops.base import GpuOp, context_of
from pytensor_cl.ops.transfer import GpuFromHost
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.launch_capture import LaunchCapture
from pytensor_cl.sharedvar import DeviceCell

__all__ = ["Capturer"]


class Capturer:
    """Captures one call.

    Parameters
    ----------
    program
        The steps of the function's virtual machine.
    classes, slices
        What becomes of the host values.
    context
        Of the function.
    """

    def __init__(
        self, program: StepProgram, classes: HostValueClasses, slices: DynamicSlices, context: Context
    ) -> None:
        self._program, self._classes, self._slices, self._context = program, classes, slices, context
        self._guarded = set(classes.guarded)

    def capture(self, vm: StepRunner) -> CapturedGraph | CaptureFailure:
        """Run a call; return its captured graph, or why there is none."""
        queue = self._context.queue
        recorder, trace = LaunchCapture(), CaptureTrace(self._context)
        queue.capture = recorder
        try:
            self._run_and_trace(vm, recorder, trace)
        finally:
            queue.capture = None
        builder = GraphBuilder(self._program, self._classes, self._slices, trace)
        self._free_intermediates(builder)
        return trace.failure or builder.build()

    def _run_and_trace(self, vm: StepRunner, recorder: LaunchCapture, trace: CaptureTrace) -> None:
        """Run the call step by step, and note what it does."""
        program = self._program
        for variable in program.inputs:
            if context_of(variable) and not isinstance(variable, Constant):
                trace.bind_external(variable, program.storage[variable][0])
            elif self._slices.slices and not isinstance(program.storage[variable], DeviceCell):
                trace.arguments[variable] = program.storage[variable][0]

        def before(at: int) -> None:
            recorder.is_on = isinstance(program.nodes[at].op, GpuOp)
            recorder.launches = []

        def after(at: int) -> None:
            recorder.is_on = False
            trace.launches.append(recorder.launches)
            self._trace_node(at, program.nodes[at], trace)
            trace.fail(recorder.unsupported, at)

        vm.run(before, after)
        trace.fail(recorder.unsupported, None)

    def _trace_node(self, at: int, node: Apply, trace: CaptureTrace) -> None:
        """Note the locations and the host values of a node's results."""
        storage = self._program.storage
        is_upload = isinstance(node.op, GpuFromHost) and not isinstance(node.inputs[0], Constant)
        for variable in node.outputs:
            value = storage[variable][0]
            if not context_of(variable):
                if self._is_known(variable) or variable in self._guarded:
                    trace.values[variable] = value
            elif is_upload:
                trace.bind_external(variable, value)
                if self._is_imported(node.inputs[0]):
                    trace.imported.add(node.inputs[0])
            elif not self._bind_dynamic_slice(node, trace):
                trace.locate(variable, value)
        launches = trace.launches[-1]
        if launches and self._takes_scalars(node) and not launches_with_scalars(self._program.routines[node], launches):
            trace.fail(f"no kernel of {node.op} takes its values", at)

    def _is_imported(self, variable: Variable) -> bool:
        """Whether the device reads a host value in its own memory."""
        importer, cell = self._program.importers.get(variable), self._program.storage[variable]
        if importer is None or isinstance(cell, DeviceCell):
            return False
        return importer.misalignment(cell[0]) is not None

    def _bind_dynamic_slice(self, node: Apply, trace: CaptureTrace) -> bool:
        """Bind the result of a node that is a slice at another offset in each call; return whether it is one.

        The call continues with a sub-buffer, as replays will.
        """
        if node not in self._slices.slices:
            return False
        cell, source = self._program.storage[node.outputs[0]], trace.locations[node.inputs[0]]
        whole, array, alignment = trace.owner_of(source.memory), cell[0], self._context.memory.arena.alignment
        if whole is None or trace.is_slice(source.memory):
            return False
        begin, layout = split_offset(array.layout, array.dtype.itemsize, alignment)
        cell[0] = GpuArray(self._context, sub_buffer(array.buffer, begin), array.dtype, layout)
        part = trace.bind_slice(node.outputs[0], cell[0], whole)
        binding = SliceBinding(part, whole, source.layout, array.dtype.itemsize, alignment)
        trace.parameters.slices.append((node, binding))
        return True

    def _is_known(self, variable: Variable) -> bool:
        return isinstance(variable, Constant) or variable in self._classes.constants

    def _takes_scalars(self, node: Apply) -> bool:
        """Whether kernels of a node take values that differ from call to call."""
        routine = self._program.routines.get(node)
        return routine is not None and any(not self._is_known(node.inputs[k]) for k in scalar_arguments(routine))

    def _free_intermediates(self, builder: GraphBuilder) -> None:
        """Empty the cells of device arrays that are no results."""
        kept = {id(cell) for cell, _ in builder.device_results}
        for variable, cell in self._program.storage.items():
            if variable.owner is not None and context_of(variable) and id(cell) not in kept:
                cell[0] = None
