"""Launches the kernels of the conv family; schedule_cpu.py and schedule_simt.py choose them."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from math import prod
from typing import NamedTuple

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.errors import UnsupportedDtype
from pytensor_cl.routines.base.blas import lanes_of, register_bytes
from pytensor_cl.routines.base.ndrange import WorkGroupLimits, ndrange
from pytensor_cl.routines.base.routine import Plans
from pytensor_cl.routines.conv.epilogue import ConvEpilogue
from pytensor_cl.routines.conv.fourier import Fourier
from pytensor_cl.routines.conv.kernels import ConvKernels
from pytensor_cl.routines.conv.launch import FusedGradient, Launch, col2im_launch, grad_weights_launch, with_split_k
from pytensor_cl.routines.conv.limits import DEPTHWISE_ROWS, DIRECT_BLOCKS, NAIVE_GROUPS_PER_UNIT
from pytensor_cl.routines.conv.method import Elements, Method
from pytensor_cl.routines.conv.plan import CALL, Problem, simplify, spans_of
from pytensor_cl.routines.conv.schedule_cpu import CpuSchedule
from pytensor_cl.routines.conv.schedule_simt import SimtSchedule
from pytensor_cl.routines.conv.winograd import Winograd
from pytensor_cl.routines.conv.winograd_simt import WinogradSimt
from pytensor_cl.routines.elemwise.routine import contiguous
from pytensor_cl.routines.gemm.routine import BatchedGemm
from pytensor_cl.routines.reduction.routine import Reduction
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel

Problems = Callable[[Layout, Layout, Layout], tuple[Problem, ...]]
Arrays = Sequence[GpuArray]
_Step = Callable[[GpuArray, GpuArray, GpuArray, Arrays], None]  # enqueues a problem, given x, w, y and extra arrays


class _Plan(NamedTuple):
    """Plan of the problems of one set of layouts; `stores`: the kernels store final sums, and can apply an epilogue."""

    steps: tuple[_Step, ...]
    stores: bool


class Engine:
    """Kernels for problems of one dtype.

    `epilogue`: function of each element before it is stored; for float32 and float64; `direct`: whether all methods
    but Fourier transforms may be chosen.

    Raises `UnsupportedDtype`: the dtype is bool, float16 or complex.
    """

    def __init__(
        self, context: Context, dtype: str, schedule: str, epilogue: ConvEpilogue | None = None, direct: bool = False
    ) -> None:
        self.context = context
        self.epilogue = epilogue
        self.direct = direct
        self.dtype = context.check_dtype(dtype)
        if self.dtype.kind not in "fiu" or self.dtype.name == "float16":
            raise UnsupportedDtype(f"convolutions of {self.dtype} are not supported")
        self.schedule = schedule
        self.limits = WorkGroupLimits(context)
        lanes, units = lanes_of(context, self.dtype), context.info.compute_units
        self._cpu = CpuSchedule(self.dtype, register_bytes(context), lanes, units, context.tuning, direct)
        self._rendered = ConvKernels(self.dtype, lanes, self._cpu.im2col, epilogue)
        self._plans: Plans[_Plan] = Plans()
        self._used: set[str] = set()
        self._kernels: dict[Method, Kernel] = {}
        self._fourier = Fourier(context, dtype, schedule)
        self._composed = {"pointwise": self._pointwise, "fourier": self._fourier.plan}
        if schedule == "cpu":
            self._composed["winograd"] = Winograd(context, dtype, epilogue).plan
        else:
            winograd = WinogradSimt(context, dtype, epilogue)
            self._composed |= {"winograd": winograd.plan, "winograd_weights": winograd.plan_weights}
        self._fused_gradients = {"col2im": self._plan_col2im, "grad_weights": self._plan_grad_weights}

    @property
    def _simt(self) -> SimtSchedule:
        """The schedule within the limits of the kernels that have been built."""
        return SimtSchedule(self.dtype, self.limits.info, self.context.tuning, self.direct)

    @property
    def _chooser(self) -> CpuSchedule | SimtSchedule:
        return self._cpu if self.schedule == "cpu" else self._simt

    def method(self, p: Problem) -> Method:
        """Return the method for a simplified problem."""
        return self._chooser.method(p)

    @property
    def methods(self) -> set[str]:
        """Names of the methods that were planned so far."""
        return self._used if "_plain" not in self.__dict__ else self._used | self._plain.methods

    # --- kernels ---

    def sources(self, signals: int = 0) -> tuple[KernelSource, ...]:
        """Return the kernel that most problems need, or most convolutions with this number of spatial dimensions."""
        return (self._rendered.source(self._usual_method(signals)),)

    def _usual_method(self, signals: int) -> Method:
        if self.dtype.kind != "f" or (signals and self.schedule == "simt"):
            return Method("naive")
        if self.schedule == "simt":
            return self._simt.tiles(None)
        if signals:
            return Method("depthwise", (1 if signals == 1 else DEPTHWISE_ROWS, max(DIRECT_BLOCKS[1])))
        return Method("implicit_gemm", ("rows", *self._cpu.tiles[0]))

    def _kernel(self, method: Method, work_items: int = 1) -> Kernel:
        if method not in self._kernels:
            self._kernels[method] = self.limits.kernel(self._rendered.source(method), None, work_items)
        return self._kernels[method]

    # --- plans ---

    def _plan(self, problems: Problems, whole: FusedGradient | None, x: Layout, w: Layout, y: Layout) -> _Plan:
        simple = [simplify(p) for p in problems(x, w, y) if p.size]
        if whole is not None and simple and self.schedule == "cpu":
            convolution = simplify(whole.convolution(x, w, y))
            launch = self._fused_gradients[whole.name](simple, convolution, spans_of(convolution, x, w))
            if launch is not None:
                self._used.add(whole.name)
                return _Plan((partial(self._launch, launch),), self.epilogue is None or self.epilogue.fits)
        methods = [self.method(p) for p in simple]
        if self.epilogue is not None and not (self.epilogue.fits and all(m.applies_epilogue for m in methods)):
            return _Plan((), False)
        self._used.update(m.name for m in methods)
        steps, stores = [], True
        for p, method in zip(simple, methods, strict=True):
            span = spans_of(p, x, w)
            if method.name in self._composed:
                steps.append(self._composed[method.name](p, span))
                continue
            launch = self._plan_problem(p, span, method)
            stores = stores and launch.split_k == 1
            steps.append(partial(self._launch, launch))
        return _Plan(tuple(steps), stores)

    def _plan_problem(self, p: Problem, span: Sequence[int], method: Method) -> Launch:
        """Return the launch of a method with a kernel of its own."""
        part = self._chooser.partition(p, method)
        if isinstance(part, Elements):
            kernel = self._kernel(method)
            size = ndrange(self.context, kernel, part.total, part.group, NAIVE_GROUPS_PER_UNIT)
            return with_split_k(Launch(kernel, b"", (), *size), p, span, 1)
        kernel = self._kernel(method, prod(part.local_size))
        launch = Launch(kernel, b"", (), part.global_size, part.local_size, part.workspace)
        return with_split_k(launch, p, span, part.split_k, part.blocks)

    def _plan_col2im(self, phases: Sequence[Problem], p: Problem, span: Sequence[int]) -> Launch | None:
        blocks = self._cpu.col2im(phases, p)
        if blocks is None:
            return None
        return col2im_launch(self._kernel(Method("col2im")), p, blocks, self._cpu.lanes, self._cpu.units)

    def _plan_grad_weights(self, problems: Sequence[Problem], p: Problem, span: Sequence[int]) -> Launch | None:
        blocks = self._cpu.grad_weights(problems, p)
        if blocks is None:
            return None
        return grad_weights_launch(self._kernel(Method("grad_weights")), p, blocks, self._cpu.lanes, span)

    def _pointwise(self, p: Problem, span: Sequence[int]) -> _Step:
        """Kernels of one tap: products of matrices that are read in place."""
        last, batch = p.axes[-1], (p.batch, p.groups)
        layouts = (
            Layout((*batch, p.c, last.out), (*p.x, last.x), p.starts[0]),
            Layout((*batch, p.m, p.c), (0, *p.w), p.starts[1]),
            Layout((*batch, p.m, last.out), (*p.y, last.y), p.starts[2]),
        )
        return partial(self._multiply, layouts)

    def _multiply(self, layouts: Sequence[Layout], x: GpuArray, w: GpuArray, y: GpuArray, extra: Arrays) -> None:
        x, w, y = (
            a.with_layout(layout._replace(offset=layout.offset + a.layout.offset))
            for layout, a in zip(layouts, (x, w, y), strict=True)
        )
        others = () if self.epilogue is None else self.epilogue.views(y.layout, extra)
        self._gemm.launch((y,), (w, x, *others))

    @cached_property
    def _gemm(self) -> BatchedGemm:
        epilogue = None if self.epilogue is None else self.epilogue.product
        return BatchedGemm(self.context, self.dtype, schedule=self.schedule, epilogue=epilogue)

    # --- launch ---

    def run(
        self,
        problems: Problems,
        x: GpuArray,
        w: GpuArray,
        outputs: Arrays,
        extra: Arrays = (),
        whole: FusedGradient | None = None,
    ) -> None:
        """Enqueue what computes the outputs: y, or what the epilogue makes of it.

        `problems`: makes the problems from the layouts of the arrays; `x`, `w`: arrays in their roles in the problems;
        `outputs`: one, unless an epilogue has several; `whole`: the convolution whose gradient the problems are.
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
            arrays = self.epilogue.prepared(extra)
            for step in plan.steps:
                step(x, w, y, arrays)
        else:
            product = self.context.empty(y.shape, self.dtype)
            self._plain.run(problems, x, w, (product,), (), whole)
            self.epilogue.unfused.launch(outputs, (product, *extra))

    @cached_property
    def _plain(self) -> "Engine":
        """The engine without an epilogue."""
        return Engine(self.context, self.dtype.name, self.schedule)

    def _launch(self, launch: Launch, x: GpuArray, w: GpuArray, y: GpuArray, extra: Arrays) -> None:
        if launch.split_k > 1 and launch.target is not None:
            target = y.with_layout(launch.target._replace(offset=y.layout.offset + launch.target.offset))
            y = self.context.empty((launch.split_k, *target.shape), self.dtype)
        offsets = (a.layout.offset + start for a, start in zip((x, w, y), launch.starts, strict=True))
        # The queue is in order, so the workspace space may be dropped once the launch is enqueued.
        workspace = self.context.empty((launch.workspace,), self.dtype).buffer if launch.workspace else None
        bound = () if self.epilogue is None else self.epilogue.bind(y, extra)
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
