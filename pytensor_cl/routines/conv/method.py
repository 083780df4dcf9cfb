"""What the choice of a method for a convolution returns: no device, no kernel."""

from typing import NamedTuple

__all__ = ["Elements", "Method", "Partition"]

_APPLY_EPILOGUES = frozenset(("winograd", "pointwise", "im2col", "implicit_gemm", "simt"))


class Method(NamedTuple):
    """A way to compute a problem.

    Attributes
    ----------
    name
        Of the method; for those with a kernel of their own, that of the kernel too.
    parameters
        Of the kernel.
    """

    name: str
    parameters: tuple[object, ...] = ()

    @property
    def applies_epilogue(self) -> bool:
        """Whether it can apply an epilogue."""
        return self.name in _APPLY_EPILOGUES


class Elements(NamedTuple):
    """An NDRange whose work-items loop over elements; its size depends on the compiled kernel, too.

    Attributes
    ----------
    total
        Number of elements.
    group
        Work-items of a work-group, at most.
    """

    total: int
    group: int


class Partition(NamedTuple):
    """A partition of a problem among work-items.

    Attributes
    ----------
    global_size, local_size
        The NDRange.
    workspace
        Elements that all work-items need.
    split_k
        Into how many parts the sums fall.
    blocks
        What `pytensor_cl.routines.conv.plan.encode` takes.
    """

    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    workspace: int = 0
    split_k: int = 1
    blocks: tuple[int, ...] = (0,) * 5
