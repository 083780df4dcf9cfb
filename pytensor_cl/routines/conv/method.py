"""The chosen method of a convolution as plain data, without device or kernel."""

from typing import NamedTuple

_APPLY_EPILOGUES = frozenset(("winograd", "pointwise", "im2col", "implicit_gemm", "simt"))


class Method(NamedTuple):
    """A way to compute a problem.

    `name`: name of the method, and of its kernel if it has one of its own.
    """

    name: str
    parameters: tuple[object, ...] = ()

    @property
    def applies_epilogue(self) -> bool:
        """Whether the method can apply an epilogue."""
        return self.name in _APPLY_EPILOGUES


class Elements(NamedTuple):
    """An NDRange whose work-items loop over elements; its size depends on the compiled kernel, too.

    `total`: number of elements; `group`: work-items of a work-group, at most.
    """

    total: int
    group: int


class Partition(NamedTuple):
    """A partition of a problem among work-items.

    `global_size`, `local_size`: the NDRange; `workspace`: elements that all work-items need; `split_k`: into how many
    parts the sums fall.
    """

    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    workspace: int = 0
    split_k: int = 1
    blocks: tuple[int, ...] = (0,) * 5
