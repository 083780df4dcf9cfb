"""Facts of a graph on which the steps of its nodes rely: last uses, device updates, zero-copy arguments."""

from collections.abc import Collection, Iterable, Sequence

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph

from pytensor_cl.linker.aliasing import mutated_inputs, view_root
from pytensor_cl.ops.base import GpuOp, context_of
from pytensor_cl.ops.indexing.slice_update import GpuSubtensor
from pytensor_cl.ops.transfer import HostFromGpu


class GraphFacts:
    """Facts of one graph, whose nodes are in the order of execution."""

    def __init__(
        self, fgraph: FunctionGraph, nodes: Sequence[Apply], on_device: Collection[Variable], keep: Iterable[Variable]
    ) -> None:
        self._fgraph = fgraph
        # Positions of outputs that update a shared variable by a download, and the device array that it takes instead.
        self.device_updates = self._find_device_updates(on_device)
        # The nodes that run: a download that only shared variables read does not.
        self.nodes = [n for n in nodes if self._is_read(n)]
        self._kept = {*keep, *self.device_updates.values()}  # variables that the user can see after the call
        self._position = {node: at for at, node in enumerate(self.nodes)}
        self._last_mutation = {v: at for at, node in enumerate(self.nodes) for v in mutated_inputs([node])}
        self._last_download = {
            context_of(node.inputs[0]): at for at, node in enumerate(self.nodes) if isinstance(node.op, HostFromGpu)
        }

    @property
    def mutated(self) -> Collection[Variable]:
        """The variables whose memory nodes change in place."""
        return self._last_mutation.keys()

    # Updates of shared variables on the device

    def _find_device_updates(self, on_device: Collection[Variable]) -> dict[int, Variable]:
        updates = {}
        for position, of_input in (self._fgraph.update_mapping or {}).items():
            owner = self._fgraph.outputs[position].owner
            if self._fgraph.inputs[of_input] in on_device and owner is not None and isinstance(owner.op, HostFromGpu):
                updates[position] = owner.inputs[0]
        return updates

    def _is_read(self, node: Apply) -> bool:
        clients = self._fgraph.clients[node.outputs[0]] if isinstance(node.op, HostFromGpu) else ()
        return not clients or any(not _is_output(c, self.device_updates.keys()) for c, _ in clients)

    # Last uses

    def last_reads(self, allow_gc: bool) -> list[list[Variable]]:
        """Return for each node the intermediate results that it reads as the last node; all of them with `allow_gc`.

        Host Ops compute into the arrays in the cells of their results. So arrays that the user may see through a view
        are among them in any case.
        """
        last = {v: at for at, node in enumerate(self.nodes) for v in (*node.outputs, *node.inputs)}
        permanent = {*self.device_updates.values(), *self._fgraph.outputs, *self._fgraph.inputs}
        reads: list[list[Variable]] = [[] for _ in self.nodes]
        for variable, at in last.items():
            is_intermediate = variable not in permanent and not isinstance(variable, Constant)
            if is_intermediate and (allow_gc or variable in self._kept):
                reads[at].append(variable)
        return reads

    def is_last_use(self, download: Apply) -> bool:
        """Return whether nothing reads an array on the device after its download."""
        source = download.inputs[0]
        if self._is_visible(source):
            return False
        is_view = source.owner is not None and source.owner.op.view_map
        is_only_client = len(self._fgraph.clients[source]) == 1
        return download.outputs[0] not in self._last_mutation or (is_only_client and not is_view)

    def is_only_reader(self, variable: Variable) -> bool:
        """Return whether a device array, or the one of which it is a view, has one client alone, a node."""
        while self._has_one_client(variable):
            owner = variable.owner
            if _has_own_results(owner):
                return True
            if not isinstance(owner.op, GpuSubtensor):
                break
            variable = owner.inputs[0]
        return False

    def _has_one_client(self, variable: Variable) -> bool:
        """Return whether a result of a device node has one client, a node."""
        is_result = variable.owner is not None and isinstance(variable.owner.op, GpuOp)
        return is_result and not self._is_visible(variable) and len(self._fgraph.clients[variable]) == 1

    def _is_visible(self, variable: Variable) -> bool:
        return variable in self._kept or variable in self._fgraph.outputs

    # Zero-copy arguments

    def is_unchanged_until_wait(self, upload: Apply) -> bool:
        """Return whether the host array stays the same until the device has read it: the call waits, no node writes."""
        at = self._position[upload]
        is_mutated = self._last_mutation.get(view_root(upload.inputs[0]), -1) >= at
        return not is_mutated and self._is_downloaded_after(at, upload)

    def is_kernel_only(self, upload: Apply) -> bool:
        """Return whether only kernels read the uploaded array, and the call waits after all of them."""
        last, todo = -1, [upload.outputs[0]]
        while todo:
            variable = todo.pop()
            clients = [n for n, _ in self._fgraph.clients[variable]]
            if variable in self._kept or not all(isinstance(n.op, GpuOp) for n in clients):
                return False
            last = max([last, *(self._position[n] for n in clients)])
            todo.extend(v for n in clients if not _has_own_results(n) for v in n.outputs)
        return last >= 0 and self._is_downloaded_after(last, upload)

    def _is_downloaded_after(self, at: int, upload: Apply) -> bool:
        """Return whether a download from the upload's device, which waits for it, follows node number `at`."""
        return self._last_download.get(upload.op.context_name, -1) >= at


def _has_own_results(node: Apply) -> bool:
    """Return whether no result of a node shares the memory of an input."""
    return isinstance(node.op, GpuOp) and node.op.is_compute and not node.op.view_map and not node.op.may_alias


def _is_output(client: Apply, positions: Collection[int]) -> bool:
    """Return whether a client of a variable is one of these outputs of the graph."""
    return getattr(client.op, "idx", None) in positions and type(client.op).__name__ == "Output"
