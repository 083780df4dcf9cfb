"""Choose and launch the kernels of the conv family."""

import struct
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from math import lcm, prod
from typing import NamedTuple

from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.errors import UnsupportedDtype
from pytensor_cl.routines.base.blas import arithmetic_types, lanes_of, register_bytes
from pytensor_cl.routines.base.ndrange import MAX_GROUPS, WorkGroupLimits, ndrange
from pytensor_cl.routines.base.routine import Plans
from pytensor_cl.routines.conv.col2im import MOST_TAPS, fold_blocks, folds
from pytensor_cl.routines.conv.epilogue import ConvEpilogue
from pytensor_cl.routines.conv.grad_weights import suits_weights, weights_blocks
from pytensor_cl.routines.conv.im2col import EDGE, Unfolded
from pytensor_cl.routines.conv.launch import Launch, Whole, fold_launch, in_parts, weights_launch
from pytensor_cl.routines.conv.plan import Problem, encode, simplify
from pytensor_cl.routines.conv.simt import Tile, is_small, tile_of
from pytensor_cl.routines.conv.winograd import Winograd, pays, suits
from pytensor_cl.routines.elemwise.routine import contiguous
from pytensor_cl.routines.gemm.routine import BatchedGemm
from pytensor_cl.routines.reduction.routine import Reduction
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel

__all__ = ["Engine"]

Problems = Callable[[Layout, Layout, Layout], tuple[Problem, ...]]
Variant = tuple[object, ...]  # name of a variant, and its parameters
Arrays = Sequence[GpuArray]
_Step = Callable[[GpuArray, GpuArray, GpuArray, Arrays], None]  # enqueues a problem, given x, w, y and further arrays

_CALL = struct.Struct("3q")  # conv_call
_STORING = ("pointwise", "product", "simt", "unfolded", "winograd")  # variants that can apply an epilogue

# Register tiles of the cpu schedule, rows and vectors, by bytes of the device's vector registers; see gemm.py.
# The second one wastes less where there are few rows.
_TILES = {64: ((12, 2), (8, 3)), 32: ((4, 3),), 16: ((4, 2),)}

_GATHERING, _PACKING = 10, 0.7  # cost of a vector of x, and of an element of w, in vector multiply-adds

# Channels of the output in a group that do not repay packing; twice as many if a group of the input has few, too.
_FEW, _FEW_CHANNELS = 8, 4
# Rows (channels, if there is one channel then rows of the image) and vectors along a row that the direct kernels
# compute at a time.
_DIRECT = {1: (4, 2, 1), 4: (4, 2, 1), 8: (2, 1)}
_DEPTHWISE_ROWS = 4  # of the output
_MANY = 512  # positions of an image that are worth a matrix product of their own
_ITEMS_OF_ANY = 64  # work-items of a work-group of schedule simt, where there is a kernel for anything
_ITEMS_OF_FEW = 128  # work-items of a work-group of schedule simt, where there are few channels
_DOT_COUNT = 4  # outputs along a row that the dot kernel computes at a time


class _Plan(NamedTuple):
    """What computes the problems of one set of layouts, and whether an epilogue is applied on the way."""

    steps: tuple[_Step, ...]
    stores: bool


def _balanced(total: int, limit: int, unit: int) -> int:
    """Size of the fewest equal blocks of at most `limit`, in whole units."""
    count = -(-total // limit) or 1
    return -(-total // (count * unit)) * unit or unit


def _grid(p: Problem, rows: int, vectors: int, lanes: int, items: int, packed: int) -> tuple[int, int, int]:
    """Split a problem among work-items along columns, rows and groups, for the least work of the slowest one.

    `packed` columns are packed at a time.
    """
    z = min(p.groups, items)
    tiles_m, tiles_n = -(-p.m // rows), -(-p.columns // (vectors * lanes))
    left = -(-items // z)

    def cost(x: int) -> float:
        y = min(left // x, tiles_m)
        tiles = -(-tiles_n // x) * -(-tiles_m // y)
        columns, blocks = p.columns / x, -(-p.columns // (x * packed))
        return tiles * rows * vectors + _GATHERING * columns / lanes + _PACKING * p.m / y * blocks

    x = min(range(1, min(left, tiles_n) + 1), key=cost)
    return x, max(1, min(left // x, tiles_m)), z


def _depths(p: Problem, depth: int, limit: int, step: int, gather: str) -> tuple[int, int]:
    """Return how much of `depth` is packed, and how much of that is read, at a time: whole channels if they fit."""
    taps = prod(a.taps for a in p.axes)
    unit = lcm(taps, 4)  # whole vectors of packed w
    if unit > limit:
        taps, unit = 1, 16
    block = _balanced(depth, limit, unit)
    return block, block if gather == "columns" else taps * max(1, step // taps)


def _is_pointwise(p: Problem) -> bool:
    """Whether a simplified problem multiplies a matrix by each image as it is."""
    *outer, last = p.axes
    return (
        all(a.out == a.taps == a.image == 1 for a in outer)
        and last[:4] == (last.image, 1, last.image, 1)
        and not last.pad
    )


def _spans(p: Problem, x: Layout, w: Layout) -> tuple[int, ...]:
    """Return first and one past the last elements of x and w, relative to where the problem starts in them."""
    arrays = zip((x, w), p.starts, strict=False)
    return tuple(end - layout.offset - start for layout, start in arrays for end in layout.span)


class Engine:
    """Kernels for problems of one dtype.

    Parameters
    ----------
    context, dtype
        Where the arrays live, and their dtype.
    schedule
        ``"cpu"`` or ``"simt"``.
    epilogue
        What is computed of each element before it is stored; for float32 and float64.

    Raises
    ------
    UnsupportedDtype
        The dtype is bool, float16 or complex.
    """

    def __init__(self, context: Context, dtype: str, schedule: str, epilogue: ConvEpilogue | None = None) -> None:
        self.context = context
        self.epilogue = epilogue
        self.dtype = context.check_dtype(dtype)
        if self.dtype.kind not in "fiu" or self.dtype.name == "float16":
            raise UnsupportedDtype(f"convolutions of {self.dtype} are not supported")
        self.schedule = schedule
        self.limits = WorkGroupLimits(context)
        self._plans: Plans[_Plan] = Plans()
        self._kernels: dict[Variant, Kernel] = {}
        self._sources: dict[str, Callable[..., KernelSource]] = {
            "general": self._general_source,
            "few": self._few_source,
            "depthwise": partial(self._direct_source, template="conv/depthwise"),
            "direct": self._direct_source,
            "dot": self._dot_source,
            "product": self._product_source,
            "simt": self._simt_source,
            "unfolded": self._unfolded_source,
            "fold": self._fold_source,
            "weights": self._weights_source,
        }
        self._planners: dict[str, Callable[[Problem, Sequence[int], Variant], Launch]] = {
            "general": self._plan_general,
            "few": self._plan_few,
            "depthwise": self._plan_direct,
            "direct": self._plan_direct,
            "dot": self._plan_direct,
            "product": self._plan_product,
            "simt": self._plan_simt,
            "unfolded": self._plan_unfolded,
        }
        self._wholes = {"fold": self._plan_fold, "weights": self._plan_weights}
        self._composed = {"pointwise": self._pointwise, "winograd": Winograd(context, dtype, epilogue).plan}

    # --- which variant ---

    def variant(self, p: Problem) -> Variant:
        """Return the name and the parameters of the kernel for a simplified problem."""
        last = p.axes[-1]
        along_taps = last.taps > last.out and last.dilation > 0
        is_float = self.dtype.kind == "f"
        is_matrix = _is_pointwise(p) and last.out >= _MANY
        few = p.m <= _FEW or (p.m <= 2 * _FEW and p.c <= _FEW_CHANNELS)
        if self.schedule == "simt":
            conditions = {
                "few": is_float and p.m < _FEW and is_small(p),
                "general": not is_float or p.m < _FEW,
                "pointwise": is_matrix,
                "simt": True,
            }
        else:
            conditions = {
                "general": not is_float,
                "dot": along_taps and p.m <= _FEW // 2,
                "depthwise": p.m == 1 and not along_taps,
                "direct": few and not along_taps,
                "winograd": suits(p) and pays(p),
                "pointwise": is_matrix,
                "unfolded": not along_taps and self._unfolded.suits(p),
                "product": True,
            }
        name = next(name for name, holds in conditions.items() if holds)
        parameters: dict[str, tuple[object, ...]] = {
            "few": (p.m,),
            "dot": (min(last.out, _DOT_COUNT),),
            "depthwise": self._block(p, 1 if p.axes[-2].out == 1 else _DEPTHWISE_ROWS),
            "direct": self._block(p, p.m),
            "product": ("columns" if along_taps else "rows", *self._tile(p)),
            "simt": (tile_of(p, self.limits.info, self.dtype),),
        }
        return (name, *parameters.get(name, ()))

    def _block(self, p: Problem, count: int) -> tuple[int, int]:
        """Return rows and vectors of what the direct kernels compute at a time, if there are `count` rows."""
        rows = next(r for r in _DIRECT if count <= r or r == max(_DIRECT))
        needed = -(-p.axes[-1].out // lanes_of(self.context, self.dtype))
        return rows, next(v for v in _DIRECT[rows] if v < 2 * needed)

    def _tile(self, p: Problem) -> tuple[int, int]:
        """Return rows and vectors of the register tile that computes least for nothing."""
        tiles = _TILES.get(register_bytes(self.context), _TILES[16])
        lanes = lanes_of(self.context, self.dtype)

        def computed(tile: tuple[int, int]) -> int:
            rows, vectors = tile
            whole, rest = divmod(-(-p.columns // lanes), vectors)
            return -(-p.m // rows) * rows * (whole * vectors + (min(rest, 1) if rest < 2 else vectors))

        return min(tiles, key=computed)

    # --- kernels ---

    def _epilogue_arguments(self, lanes: int) -> dict[str, object]:
        return self.epilogue.arguments(lanes) if self.epilogue is not None and self.epilogue.fits else {}

    @property
    def _epilogue_preambles(self) -> tuple[str, ...]:
        return () if self.epilogue is None else self.epilogue.preambles

    def _source(self, variant: Variant) -> KernelSource:
        name, *parameters = variant
        return self._sources[str(name)](*parameters)

    def _cpu_source(self, template: str, *functions: str, **extra: object) -> KernelSource:
        lanes = lanes_of(self.context, self.dtype)
        types = {"ctype": arithmetic_types(self.dtype)["ctype"]}
        vectors = render("conv/vector_types", **types, itemsize=self.dtype.itemsize, lanes=lanes)
        others = self._epilogue_preambles if "statements" in extra else ()
        preambles = (render("conv/plan"), vectors, *functions, *others)
        return kernel_source(template, preambles=preambles, **types, lanes=lanes, **extra)

    def _general_source(self) -> KernelSource:
        return kernel_source("conv/naive", preambles=(render("conv/plan"),), **arithmetic_types(self.dtype))

    def _few_source(self, rows: int) -> KernelSource:
        types = arithmetic_types(self.dtype)
        return kernel_source("conv/simt_small_m", preambles=(render("conv/plan"),), **types, rows=rows)

    def _direct_source(self, rows: int, vectors: int, template: str = "conv/direct") -> KernelSource:
        return self._cpu_source(template, rows=rows, vectors=vectors)

    def _dot_source(self, count: int) -> KernelSource:
        return self._cpu_source("conv/dot", count=count)

    def _product_source(self, gather: str, rows: int, vectors: int) -> KernelSource:
        sizes = {"itemsize": self.dtype.itemsize, "rows": rows, "vectors": vectors}
        lanes = lanes_of(self.context, self.dtype)
        return self._cpu_source("conv/implicit_gemm", **sizes, gather=gather, **self._epilogue_arguments(lanes))

    def _unfolded_source(self) -> KernelSource:
        lanes = lanes_of(self.context, self.dtype)
        sizes = {"itemsize": self.dtype.itemsize, **self._unfolded.tile(), "edge": EDGE}
        functions, final = self._unfolded.preambles(), self._epilogue_arguments(lanes)
        return self._cpu_source("conv/im2col_gemm", *functions, **sizes, **final)

    def _fold_source(self) -> KernelSource:
        functions, final = self._unfolded.preambles(), self._epilogue_arguments(self._unfolded.lanes)
        sizes = {"itemsize": self.dtype.itemsize, **self._unfolded.tile(), "most": MOST_TAPS}
        return self._cpu_source("conv/col2im", *functions, **sizes, **final)

    def _weights_source(self) -> KernelSource:
        sizes = {"itemsize": self.dtype.itemsize, **self._unfolded.tile()}
        return self._cpu_source("conv/grad_weights", *self._unfolded.preambles(), **sizes)

    @cached_property
    def _unfolded(self) -> Unfolded:
        return Unfolded(self.context, self.dtype.name)

    def _simt_source(self, tile: Tile) -> KernelSource:
        arguments = {**arithmetic_types(self.dtype), **self._epilogue_arguments(1), **dict(tile.parameters)}
        preambles = (render("conv/plan"), *self._epilogue_preambles)
        return kernel_source(tile.template, preambles=preambles, **arguments)

    def sources(self, signals: int = 0) -> tuple[KernelSource, ...]:
        """Return the kernel that most problems need, or most convolutions of signals of so many dimensions."""
        if self.dtype.kind != "f" or (signals and self.schedule == "simt"):
            return (self._general_source(),)
        if self.schedule == "simt":
            return (self._simt_source(tile_of(None, self.limits.info, self.dtype)),)
        if signals:
            return (self._source(("depthwise", 1 if signals == 1 else _DEPTHWISE_ROWS, max(_DIRECT[1]))),)
        tile = _TILES.get(register_bytes(self.context), _TILES[16])[0]
        return (self._product_source("rows", *tile),)

    def _kernel(self, variant: Variant, work_items: int = 1) -> Kernel:
        if variant not in self._kernels:
            self._kernels[variant] = self.limits.kernel(self._source(variant), None, work_items)
        return self._kernels[variant]

    # --- plans ---

    def _plan(self, problems: Problems, whole: Whole | None, x: Layout, w: Layout, y: Layout) -> _Plan:
        simple = [simplify(p) for p in problems(x, w, y) if p.size]
        if whole is not None and simple:
            convolution = simplify(whole.convolution(x, w, y))
            launch = self._wholes[whole.name](simple, convolution, _spans(convolution, x, w))
            if launch is not None:
                return _Plan((partial(self._launch, launch),), self.epilogue is None or self.epilogue.fits)
        if self.epilogue is not None and not (
            self.epilogue.fits and all(self.variant(p)[0] in _STORING for p in simple)
        ):
            return _Plan((), False)
        steps, launches = [], []
        for p in simple:
            variant, span = self.variant(p), _spans(p, x, w)
            compose = self._composed.get(str(variant[0]))
            if compose is not None:
                steps.append(compose(p, span))
            else:
                launches.append(self._planners[str(variant[0])](p, span, variant))
                steps.append(partial(self._launch, launches[-1]))
        return _Plan(tuple(steps), all(launch.parts == 1 for launch in launches))

    def _is_product(self, problems: Sequence[Problem]) -> bool:
        names = (self.variant(p)[0] for p in problems if p.depth)
        return self.schedule == "cpu" and all(name in ("product", "unfolded") for name in names)

    def _plan_fold(self, phases: Sequence[Problem], p: Problem, span: Sequence[int]) -> Launch | None:
        """Gradients of inputs in one kernel for all phases; None where that is no way."""
        unfolded, itemsize = self._unfolded, self.dtype.itemsize
        if not (self._is_product(phases) and folds(p, unfolded.lanes, unfolded.rows, itemsize)):
            return None
        blocks = fold_blocks(p, unfolded.lanes, unfolded.vectors, itemsize, self.context.info.compute_units)
        return fold_launch(self._kernel(("fold",)), p, blocks, unfolded.lanes, self.context.info.compute_units)

    def _plan_weights(self, problems: Sequence[Problem], p: Problem, span: Sequence[int]) -> Launch | None:
        """Gradients of weights from x that is unfolded; None where that is no way."""
        lanes = self._unfolded.lanes
        if not (self._is_product(problems) and suits_weights(p, lanes)):
            return None
        items = min(self.context.info.compute_units, p.size * p.depth // self.context.tuning["conv.grain"] + 1)
        return weights_launch(self._kernel(("weights",)), p, weights_blocks(p, lanes, items), lanes, span)

    def _pointwise(self, p: Problem, span: Sequence[int]) -> _Step:
        """Kernels of one tap: products of matrices that lie in the arrays as they are."""
        last, batch = p.axes[-1], (p.batch, p.groups)
        layouts = (
            Layout((*batch, p.c, last.out), (*p.x, last.x), p.starts[0]),
            Layout((*batch, p.m, p.c), (0, *p.w), p.starts[1]),
            Layout((*batch, p.m, last.out), (*p.y, last.y), p.starts[2]),
        )
        return partial(self._multiply, layouts)

    def _multiply(self, layouts: Sequence[Layout], x: GpuArray, w: GpuArray, y: GpuArray, further: Arrays) -> None:
        x, w, y = (
            a.view(layout._replace(offset=layout.offset + a.layout.offset))
            for layout, a in zip(layouts, (x, w, y), strict=True)
        )
        others = () if self.epilogue is None else self.epilogue.views(y.layout, further)
        self._gemm.launch((y,), (w, x, *others))

    @cached_property
    def _gemm(self) -> BatchedGemm:
        epilogue = None if self.epilogue is None else self.epilogue.product
        return BatchedGemm(self.context, self.dtype, schedule=self.schedule, epilogue=epilogue)

    def _plan_general(self, p: Problem, span: Sequence[int], variant: Variant) -> Launch:
        kernel, most = self._kernel(variant), 1 if self.schedule == "cpu" else _ITEMS_OF_ANY
        return Launch(kernel, encode(p, span), p.starts, *ndrange(self.context, kernel, p.size, most, 64))

    def _plan_few(self, p: Problem, span: Sequence[int], variant: Variant) -> Launch:
        kernel, size = self._kernel(variant), -(-p.size // p.m)
        return Launch(kernel, encode(p, span), p.starts, *ndrange(self.context, kernel, size, _ITEMS_OF_FEW, 64))

    def _plan_direct(self, p: Problem, span: Sequence[int], variant: Variant) -> Launch:
        items = max(1, min(4 * self.context.info.compute_units, p.size * p.depth // self.context.tuning["conv.grain"]))
        return Launch(self._kernel(variant), encode(p, span), p.starts, (items,), (1,))

    def _plan_product(self, p: Problem, span: Sequence[int], variant: Variant) -> Launch:
        rows, vectors, lanes = int(str(variant[2])), int(str(variant[3])), lanes_of(self.context, self.dtype)
        tuning = self.context.tuning
        items = min(self.context.info.compute_units, p.size * p.depth // tuning["conv.grain"] + 1)
        x, y, z = grid = _grid(p, rows, vectors, lanes, items, tuning["conv.block_columns"])
        parts = max(1, min(items // prod(grid), p.depth // tuning["conv.part"])) if z == p.groups else 1
        limit = tuning["conv.depth_bytes"] // self.dtype.itemsize
        kb, step = _depths(p, -(-p.depth // parts), limit, tuning["conv.step"], str(variant[1]))
        mb = _balanced(-(-p.m // y), tuning["conv.block_rows"], rows)
        nb = _balanced(-(-p.columns // x), tuning["conv.block_columns"], vectors * lanes)
        scratch = kb * (mb + nb)
        grid = x, y, z * parts
        launch = Launch(self._kernel(variant), b"", (), grid, (1, 1, 1), scratch * prod(grid))
        return in_parts(launch, p, span, parts, (mb, nb, kb, step, scratch))

    def _plan_unfolded(self, p: Problem, span: Sequence[int], variant: Variant) -> Launch:
        tuning, unfolded = self.context.tuning, self._unfolded
        items = min(self.context.info.compute_units, p.size * p.depth // tuning["conv.grain"] + 1)
        blocks = unfolded.split(p, items)
        x, y, z = blocks.grid
        parts = max(1, min(items // prod(blocks.grid), p.depth // tuning["conv.part"])) if z == p.groups else 1
        blocks = unfolded.split(p, items, parts)
        scratch = unfolded.scratch(blocks)
        launch = Launch(self._kernel(variant), b"", (), (x, y, z * parts), (1, 1, 1), scratch * x * y * z * parts)
        return in_parts(launch, p, span, parts, (0, blocks.columns, blocks.depth, 0, scratch))

    def _plan_simt(self, p: Problem, span: Sequence[int], variant: Variant) -> Launch:
        tile = tile_of(p, self.limits.info, self.dtype)
        parts = tile.parts(p, self.context.info.compute_units, self.context.tuning)
        across, down = tile.group
        size = (tile.count(p) * across, min(p.groups * parts, MAX_GROUPS) * down)
        kernel = self._kernel(variant, across * down)
        return in_parts(Launch(kernel, b"", (), size, tile.group), p, span, parts)

    # --- launch ---

    def run(
        self,
        problems: Problems,
        x: GpuArray,
        w: GpuArray,
        outputs: Arrays,
        further: Arrays = (),
        whole: Whole | None = None,
    ) -> None:
        """Enqueue what computes the outputs: y, or what the epilogue makes of it.

        Parameters
        ----------
        problems
            Makes the problems from the layouts of the arrays.
        x, w
            In the roles that they have in the problems.
        outputs
            One, unless an epilogue has several.
        further
            What the epilogue reads besides.
        whole
            The convolution whose gradient the problems are.
        """
        if self.schedule == "cpu" and x.shape[-1] > 1 and x.layout.strides[-1] != 1:
            x = contiguous(x)
        y = outputs[0]
        layouts = x.layout, w.layout, y.layout
        key = tuple(layout[:2] for layout in layouts)
        plan = self._plans.get(key)
        if plan is None:
            make = partial(self._plan, problems, whole, *layouts)
            plan = self._plans.remember(key, self.limits.settle(make, self._kernels.clear))
        if self.epilogue is None:
            for step in plan.steps:
                step(x, w, y, ())
        elif plan.stores and y.layout.is_contiguous:
            arrays = self.epilogue.prepared(further)
            for step in plan.steps:
                step(x, w, y, arrays)
        else:
            product = self.context.empty(y.shape, self.dtype)
            self._plain.run(problems, x, w, (product,), (), whole)
            self.epilogue.apart.launch(outputs, (product, *further))

    @cached_property
    def _plain(self) -> "Engine":
        """The same without an epilogue."""
        return Engine(self.context, self.dtype.name, self.schedule)

    def _launch(self, launch: Launch, x: GpuArray, w: GpuArray, y: GpuArray, further: Arrays) -> None:
        if launch.parts > 1 and launch.target is not None:
            target = y.view(launch.target._replace(offset=y.layout.offset + launch.target.offset))
            y = self.context.empty((launch.parts, *target.shape), self.dtype)
        offsets = (a.layout.offset + start for a, start in zip((x, w, y), launch.starts, strict=True))
        # The queue is in order, so the scratch space may be dropped once the launch is enqueued.
        scratch = self.context.empty((launch.scratch,), self.dtype).buffer if launch.scratch else None
        bound = () if self.epilogue is None else self.epilogue.bind(y, further)
        buffers = (x.buffer, w.buffer, y.buffer, scratch, *bound)
        call = _CALL.pack(*offsets)
        launch.kernel.launch(self.context.queue, launch.global_size, launch.local_size, launch.encoded, call, *buffers)
        if launch.parts > 1:
            self._sum.launch((target,), (y,))

    @cached_property
    def _sum(self) -> Reduction:
        """The sum of the parts."""
        name = self.dtype.name
        return Reduction(self.context, "add", name, name, name, ndim=7, axes=(0,), schedule=self.schedule)
