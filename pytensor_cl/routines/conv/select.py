"""Choose and launch the kernels of the conv family."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from math import lcm, prod
from typing import NamedTuple

from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.errors import UnsupportedDtype
from pytensor_cl.routines.base.blas import arithmetic_types, lanes_of, register_bytes
from pytensor_cl.routines.base.ndrange import MAX_GROUPS, WorkGroupLimits, ndrange
from pytensor_cl.routines.base.routine import Plans
from pytensor_cl.routines.conv import col2im, grad_weights, winograd
from pytensor_cl.routines.conv.epilogue import ConvEpilogue
from pytensor_cl.routines.conv.im2col import EDGE, Im2colSchedule
from pytensor_cl.routines.conv.launch import FusedGradient, Launch, col2im_launch, grad_weights_launch, with_split_k
from pytensor_cl.routines.conv.plan import CALL, Problem, encode, plan_preamble, simplify
from pytensor_cl.routines.conv.simt import Tile, is_small, tile_of
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


# Register tiles of the cpu schedule, rows and vectors, by bytes of the device's vector registers; see gemm.py.
# The second one wastes less where there are few rows.
_TILES = {64: ((12, 2), (8, 3)), 32: ((4, 3),), 16: ((4, 2),)}

_LOADING, _PACKING = 10, 0.7  # cost of a vector of x, and of an element of w, in vector multiply-adds

# Channels of the output in a group that do not justify packing; twice as many if a group of the input has few, too.
_SMALL_M, _FEW_CHANNELS = 8, 4
# Rows (channels, if there is one channel then rows of the image) and vectors along a row that the direct kernels
# compute at a time.
_DIRECT = {1: (4, 2, 1), 4: (4, 2, 1), 8: (2, 1)}
_DEPTHWISE_ROWS = 4  # of the output
_MANY_PIXELS = 512  # positions of an image that are worth a matrix product of their own
_NAIVE_GROUP = 64  # work-items of a work-group of schedule simt, where there is a kernel for anything
_SMALL_M_GROUP = 128  # work-items of a work-group of schedule simt, where there are few channels
_DOT_COUNT = 4  # outputs along a row that the dot kernel computes at a time


class _Algorithm(NamedTuple):
    """A way to compute problems; the first applicable one of a schedule is taken.

    Attributes
    ----------
    name
        Of the algorithm.
    is_applicable
        Whether it computes a simplified problem, and does so faster than those that come later.
    source
        Returns the kernel for the parameters.
    plan
        Returns how to launch the kernel for a problem, the spans of x and w, and a variant.
    compose
        Returns a step of several launches instead, for algorithms without a kernel of their own.
    parameters
        Returns the parameters of the kernel for a problem.
    applies_epilogue
        Whether it can apply an epilogue.
    """

    name: str
    is_applicable: Callable[[Problem], bool]
    source: Callable[..., KernelSource] | None = None
    plan: Callable[[Problem, Sequence[int], Variant], Launch] | None = None
    compose: Callable[[Problem, Sequence[int]], _Step] | None = None
    parameters: Callable[[Problem], tuple[object, ...]] = lambda p: ()
    applies_epilogue: bool = False


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
        return tiles * rows * vectors + _LOADING * columns / lanes + _PACKING * p.m / y * blocks

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


def _is_large_pointwise(p: Problem) -> bool:
    return _is_pointwise(p) and p.axes[-1].out >= _MANY_PIXELS


def _is_along_taps(p: Problem) -> bool:
    """Whether rows of taps are longer than rows of output pixels, as in gradients of weights."""
    last = p.axes[-1]
    return last.taps > last.out and last.dilation > 0


def _has_few_channels(p: Problem) -> bool:
    return p.m <= _SMALL_M or (p.m <= 2 * _SMALL_M and p.c <= _FEW_CHANNELS)


def _spans(p: Problem, x: Layout, w: Layout) -> tuple[int, ...]:
    """Return first and one past the last elements of x and w, relative to where the problem starts in them."""
    arrays = zip((x, w), p.starts, strict=False)
    return tuple(end - layout.offset - start for layout, start in arrays for end in layout.span)


class Engine:
    """Kernels for problems of one dtype.

    Parameters
    ----------
    context, dtype
        The context of the arrays, and their dtype.
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
        self._winograd = winograd.Winograd(context, dtype, epilogue)
        self._algorithms = self._cpu_algorithms() if schedule == "cpu" else self._simt_algorithms()
        self._fused_gradients = {
            "col2im": (self._col2im_source, self._plan_col2im),
            "grad_weights": (self._grad_weights_source, self._plan_grad_weights),
        }

    # --- which algorithm ---

    def _cpu_algorithms(self) -> tuple["_Algorithm", ...]:
        def rows(p: Problem) -> int:
            return 1 if p.axes[-2].out == 1 else _DEPTHWISE_ROWS

        return (
            _Algorithm("naive", lambda p: self.dtype.kind != "f", self._naive_source, self._plan_naive),
            _Algorithm(
                "dot",
                lambda p: _is_along_taps(p) and p.m <= _SMALL_M // 2,
                self._dot_source,
                self._plan_direct,
                parameters=lambda p: (min(p.axes[-1].out, _DOT_COUNT),),
            ),
            _Algorithm(
                "depthwise",
                lambda p: p.m == 1 and not _is_along_taps(p),
                partial(self._direct_source, template="conv/depthwise"),
                self._plan_direct,
                parameters=lambda p: self._block(p, rows(p)),
            ),
            _Algorithm(
                "direct",
                lambda p: _has_few_channels(p) and not _is_along_taps(p),
                self._direct_source,
                self._plan_direct,
                parameters=lambda p: self._block(p, p.m),
            ),
            _Algorithm(
                "winograd",
                lambda p: winograd.is_applicable(p) and winograd.is_profitable(p),
                compose=self._winograd.plan,
                applies_epilogue=True,
            ),
            _Algorithm("pointwise", _is_large_pointwise, compose=self._pointwise, applies_epilogue=True),
            _Algorithm(
                "im2col",
                lambda p: not _is_along_taps(p) and self._im2col.is_applicable(p),
                self._im2col_source,
                self._plan_im2col,
                applies_epilogue=True,
            ),
            _Algorithm(
                "implicit_gemm",
                lambda p: True,
                self._implicit_gemm_source,
                self._plan_implicit_gemm,
                parameters=lambda p: ("columns" if _is_along_taps(p) else "rows", *self._tile(p)),
                applies_epilogue=True,
            ),
        )

    def _simt_algorithms(self) -> tuple["_Algorithm", ...]:
        is_float = self.dtype.kind == "f"
        return (
            _Algorithm(
                "small_m",
                lambda p: is_float and p.m < _SMALL_M and is_small(p),
                self._small_m_source,
                self._plan_small_m,
                parameters=lambda p: (p.m,),
            ),
            _Algorithm("naive", lambda p: not is_float or p.m < _SMALL_M, self._naive_source, self._plan_naive),
            _Algorithm("pointwise", _is_large_pointwise, compose=self._pointwise, applies_epilogue=True),
            _Algorithm(
                "simt",
                lambda p: True,
                self._simt_source,
                self._plan_simt,
                parameters=lambda p: (tile_of(p, self.limits.info, self.dtype),),
                applies_epilogue=True,
            ),
        )

    def _select(self, p: Problem) -> "_Algorithm":
        return next(algorithm for algorithm in self._algorithms if algorithm.is_applicable(p))

    def variant(self, p: Problem) -> Variant:
        """Return the name of the algorithm and the parameters of its kernel for a simplified problem."""
        algorithm = self._select(p)
        return (algorithm.name, *algorithm.parameters(p))

    def _block(self, p: Problem, count: int) -> tuple[int, int]:
        """Return rows and vectors of what the direct kernels compute at a time, if there are `count` rows."""
        rows = next(r for r in _DIRECT if count <= r or r == max(_DIRECT))
        needed = -(-p.axes[-1].out // lanes_of(self.context, self.dtype))
        return rows, next(v for v in _DIRECT[rows] if v < 2 * needed)

    def _tile(self, p: Problem) -> tuple[int, int]:
        """Return rows and vectors of the register tile with the least redundant work."""
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
        if name in self._fused_gradients:
            return self._fused_gradients[str(name)][0]()
        source = next(algorithm.source for algorithm in self._algorithms if algorithm.name == name)
        assert source is not None
        return source(*parameters)

    def _cpu_source(self, template: str, *functions: str, **extra: object) -> KernelSource:
        lanes = lanes_of(self.context, self.dtype)
        types = {"ctype": arithmetic_types(self.dtype)["ctype"]}
        vectors = render("conv/vector_types", **types, itemsize=self.dtype.itemsize, lanes=lanes)
        others = self._epilogue_preambles if "statements" in extra else ()
        preambles = (plan_preamble(), vectors, *functions, *others)
        return kernel_source(template, preambles=preambles, **types, lanes=lanes, **extra)

    def _naive_source(self) -> KernelSource:
        return kernel_source("conv/naive", preambles=(plan_preamble(),), **arithmetic_types(self.dtype))

    def _small_m_source(self, rows: int) -> KernelSource:
        types = arithmetic_types(self.dtype)
        return kernel_source("conv/simt_small_m", preambles=(plan_preamble(),), **types, rows=rows)

    def _direct_source(self, rows: int, vectors: int, template: str = "conv/direct") -> KernelSource:
        return self._cpu_source(template, rows=rows, vectors=vectors)

    def _dot_source(self, count: int) -> KernelSource:
        return self._cpu_source("conv/dot", count=count)

    def _implicit_gemm_source(self, gather: str, rows: int, vectors: int) -> KernelSource:
        sizes = {"itemsize": self.dtype.itemsize, "mr": rows, "vectors": vectors}
        lanes = lanes_of(self.context, self.dtype)
        return self._cpu_source("conv/implicit_gemm", **sizes, gather=gather, **self._epilogue_arguments(lanes))

    def _im2col_source(self) -> KernelSource:
        lanes = lanes_of(self.context, self.dtype)
        sizes = {"itemsize": self.dtype.itemsize, **self._im2col.tile(), "edge": EDGE}
        functions, final = self._im2col.preambles(), self._epilogue_arguments(lanes)
        return self._cpu_source("conv/im2col_gemm", *functions, **sizes, **final)

    def _col2im_source(self) -> KernelSource:
        functions, final = self._im2col.preambles(), self._epilogue_arguments(self._im2col.lanes)
        sizes = {"itemsize": self.dtype.itemsize, **self._im2col.tile(), "most": col2im.MOST_TAPS}
        return self._cpu_source("conv/col2im", *functions, **sizes, **final)

    def _grad_weights_source(self) -> KernelSource:
        sizes = {"itemsize": self.dtype.itemsize, **self._im2col.tile()}
        return self._cpu_source("conv/grad_weights", *self._im2col.preambles(), **sizes)

    @cached_property
    def _im2col(self) -> Im2colSchedule:
        return Im2colSchedule(self.context, self.dtype.name)

    def _simt_source(self, tile: Tile) -> KernelSource:
        arguments = {**arithmetic_types(self.dtype), **self._epilogue_arguments(1), **dict(tile.parameters)}
        preambles = (plan_preamble(), *self._epilogue_preambles)
        return kernel_source(tile.template, preambles=preambles, **arguments)

    def sources(self, signals: int = 0) -> tuple[KernelSource, ...]:
        """Return the kernel that most problems need, or most convolutions of signals of so many dimensions."""
        if self.dtype.kind != "f" or (signals and self.schedule == "simt"):
            return (self._naive_source(),)
        if self.schedule == "simt":
            return (self._simt_source(tile_of(None, self.limits.info, self.dtype)),)
        if signals:
            return (self._source(("depthwise", 1 if signals == 1 else _DEPTHWISE_ROWS, max(_DIRECT[1]))),)
        tile = _TILES.get(register_bytes(self.context), _TILES[16])[0]
        return (self._implicit_gemm_source("rows", *tile),)

    def _kernel(self, variant: Variant, work_items: int = 1) -> Kernel:
        if variant not in self._kernels:
            self._kernels[variant] = self.limits.kernel(self._source(variant), None, work_items)
        return self._kernels[variant]

    # --- plans ---

    def _plan(self, problems: Problems, whole: FusedGradient | None, x: Layout, w: Layout, y: Layout) -> _Plan:
        simple = [simplify(p) for p in problems(x, w, y) if p.size]
        if whole is not None and simple:
            convolution = simplify(whole.convolution(x, w, y))
            _, plan = self._fused_gradients[whole.name]
            launch = plan(simple, convolution, _spans(convolution, x, w))
            if launch is not None:
                return _Plan((partial(self._launch, launch),), self.epilogue is None or self.epilogue.fits)
        algorithms = [self._select(p) for p in simple]
        if self.epilogue is not None and not (self.epilogue.fits and all(a.applies_epilogue for a in algorithms)):
            return _Plan((), False)
        steps, launches = [], []
        for p, algorithm in zip(simple, algorithms, strict=True):
            span = _spans(p, x, w)
            if algorithm.compose is not None:
                steps.append(algorithm.compose(p, span))
                continue
            assert algorithm.plan is not None
            launches.append(algorithm.plan(p, span, (algorithm.name, *algorithm.parameters(p))))
            steps.append(partial(self._launch, launches[-1]))
        return _Plan(tuple(steps), all(launch.split_k == 1 for launch in launches))

    def _is_product(self, problems: Sequence[Problem]) -> bool:
        names = (self.variant(p)[0] for p in problems if p.depth)
        return self.schedule == "cpu" and all(name in ("implicit_gemm", "im2col") for name in names)

    def _plan_col2im(self, phases: Sequence[Problem], p: Problem, span: Sequence[int]) -> Launch | None:
        """Gradients of inputs in one kernel for all phases; None where that is no way."""
        im2col, itemsize = self._im2col, self.dtype.itemsize
        if not (self._is_product(phases) and col2im.is_applicable(p, im2col.lanes, im2col.mr, itemsize)):
            return None
        blocks = col2im.split_blocks(p, im2col.lanes, im2col.vectors, itemsize, self.context.info.compute_units)
        return col2im_launch(self._kernel(("col2im",)), p, blocks, im2col.lanes, self.context.info.compute_units)

    def _plan_grad_weights(self, problems: Sequence[Problem], p: Problem, span: Sequence[int]) -> Launch | None:
        """Gradients of weights from x that is im2col; None where that is no way."""
        lanes = self._im2col.lanes
        if not (self._is_product(problems) and grad_weights.is_applicable(p, lanes)):
            return None
        items = min(self.context.info.compute_units, p.size * p.depth // self.context.tuning["conv.grain"] + 1)
        return grad_weights_launch(
            self._kernel(("grad_weights",)), p, grad_weights.split_blocks(p, lanes, items), lanes, span
        )

    def _pointwise(self, p: Problem, span: Sequence[int]) -> _Step:
        """Kernels of one tap: products of matrices that are read in place."""
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

    def _plan_naive(self, p: Problem, span: Sequence[int], variant: Variant) -> Launch:
        kernel, most = self._kernel(variant), 1 if self.schedule == "cpu" else _NAIVE_GROUP
        return Launch(kernel, encode(p, span), p.starts, *ndrange(self.context, kernel, p.size, most, 64))

    def _plan_small_m(self, p: Problem, span: Sequence[int], variant: Variant) -> Launch:
        kernel, size = self._kernel(variant), -(-p.size // p.m)
        return Launch(kernel, encode(p, span), p.starts, *ndrange(self.context, kernel, size, _SMALL_M_GROUP, 64))

    def _plan_direct(self, p: Problem, span: Sequence[int], variant: Variant) -> Launch:
        items = max(1, min(4 * self.context.info.compute_units, p.size * p.depth // self.context.tuning["conv.grain"]))
        return Launch(self._kernel(variant), encode(p, span), p.starts, (items,), (1,))

    def _plan_implicit_gemm(self, p: Problem, span: Sequence[int], variant: Variant) -> Launch:
        rows, vectors, lanes = int(str(variant[2])), int(str(variant[3])), lanes_of(self.context, self.dtype)
        tuning = self.context.tuning
        items = min(self.context.info.compute_units, p.size * p.depth // tuning["conv.grain"] + 1)
        x, y, z = grid = _grid(p, rows, vectors, lanes, items, tuning["conv.block_columns"])
        split_k = max(1, min(items // prod(grid), p.depth // tuning["conv.part"])) if z == p.groups else 1
        limit = tuning["conv.depth_bytes"] // self.dtype.itemsize
        kc, step = _depths(p, -(-p.depth // split_k), limit, tuning["conv.step"], str(variant[1]))
        mc = _balanced(-(-p.m // y), tuning["conv.block_rows"], rows)
        nc = _balanced(-(-p.columns // x), tuning["conv.block_columns"], vectors * lanes)
        workspace_size = kc * (mc + nc)
        grid = x, y, z * split_k
        launch = Launch(self._kernel(variant), b"", (), grid, (1, 1, 1), workspace_size * prod(grid))
        return with_split_k(launch, p, span, split_k, (mc, nc, kc, step, workspace_size))

    def _plan_im2col(self, p: Problem, span: Sequence[int], variant: Variant) -> Launch:
        tuning, im2col = self.context.tuning, self._im2col
        items = min(self.context.info.compute_units, p.size * p.depth // tuning["conv.grain"] + 1)
        blocks = im2col.split(p, items)
        x, y, z = blocks.grid
        split_k = max(1, min(items // prod(blocks.grid), p.depth // tuning["conv.part"])) if z == p.groups else 1
        blocks = im2col.split(p, items, split_k)
        workspace_size = im2col.workspace_size(blocks)
        launch = Launch(
            self._kernel(variant), b"", (), (x, y, z * split_k), (1, 1, 1), workspace_size * x * y * z * split_k
        )
        return with_split_k(launch, p, span, split_k, (0, blocks.columns, blocks.depth, 0, workspace_size))

    def _plan_simt(self, p: Problem, span: Sequence[int], variant: Variant) -> Launch:
        tile = tile_of(p, self.limits.info, self.dtype)
        split_k = tile.split_k(p, self.context.info.compute_units, self.context.tuning)
        columns, rows = tile.group
        size = (tile.count(p) * columns, min(p.groups * split_k, MAX_GROUPS) * rows)
        kernel = self._kernel(variant, columns * rows)
        return with_split_k(Launch(kernel, b"", (), size, tile.group), p, span, split_k)

    # --- launch ---

    def run(
        self,
        problems: Problems,
        x: GpuArray,
        w: GpuArray,
        outputs: Arrays,
        further: Arrays = (),
        whole: FusedGradient | None = None,
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
            plan = self._plans.store(key, self.limits.with_fitting_groups(make, self._kernels.clear))
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
            self.epilogue.unfused.launch(outputs, (product, *further))

    @cached_property
    def _plain(self) -> "Engine":
        """The same without an epilogue."""
        return Engine(self.context, self.dtype.name, self.schedule)

    def _launch(self, launch: Launch, x: GpuArray, w: GpuArray, y: GpuArray, further: Arrays) -> None:
        if launch.split_k > 1 and launch.target is not None:
            target = y.view(launch.target._replace(offset=y.layout.offset + launch.target.offset))
            y = self.context.empty((launch.split_k, *target.shape), self.dtype)
        offsets = (a.layout.offset + start for a, start in zip((x, w, y), launch.starts, strict=True))
        # The queue is in order, so the workspace space may be dropped once the launch is enqueued.
        workspace = self.context.empty((launch.workspace,), self.dtype).buffer if launch.workspace else None
        bound = () if self.epilogue is None else self.epilogue.bind(y, further)
        buffers = (x.buffer, w.buffer, y.buffer, workspace, *bound)
        call = CALL.pack_values(*offsets)
        launch.kernel.launch(self.context.queue, launch.global_size, launch.local_size, launch.encoded, call, *buffers)
        if launch.split_k > 1:
            self._sum.launch((target,), (y,))

    @cached_property
    def _sum(self) -> Reduction:
        """The sum of the parts."""
        name = self.dtype.name
        return Reduction(self.context, "add", name, name, name, ndim=7, axes=(0,), schedule=self.schedule)
