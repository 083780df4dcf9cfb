"""Attention and its gradients: scaled and masked products, softmax and the product with values, block by block."""

from collections.abc import Sequence
from functools import cache, partial
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.dtypes import ctype
from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.integers import ceil_div, round_up
from pytensor_cl.routines.attention.limits import BLOCK_TILES, ITEMS_PER_UNIT, SIMT_STEP, SIMT_TALL_TILE, SIMT_TILES
from pytensor_cl.routines.base.blas import lanes_of, register_bytes
from pytensor_cl.routines.base.ndrange import MAX_GROUPS, index_type, local_memory
from pytensor_cl.routines.base.routine import Plans, Routine
from pytensor_cl.routines.base.two_pass import KernelLaunch
from pytensor_cl.routines.gemm.problem import plan_preamble as gemm_preamble
from pytensor_cl.routines.gemm.schedule_cpu import Tile, register_tile
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel

_OPERAND = Struct(("long", "batch head row col"), name="attention_operand")
_OPERANDS = "q k v mask grad sums correction"
_CALL = Struct(("long", f"{_OPERANDS} seed"), name="attention_call")
_SIZES = "batch heads group queries keys features values offset workspace_size"
_NDIM = 4
_SIMT_GRADIENTS = ("query_gradient", "key_gradient", "value_gradient")
_MASK_TYPES = {"bool": "uchar", "float32": "float", "float64": "double"}


@cache
def _plan_struct(kind: str) -> Struct:
    """Return the struct of sizes and strides, with factors of this C type; see kernels/attention/plan.mako."""
    factors = (kind, "scale kept")
    return Struct(
        ("long", _SIZES), (_OPERAND, _OPERANDS), ("uint", "threshold"), factors, name=f"attention_plan_{kind}"
    )


class Form(NamedTuple):
    """Properties to which kernels of attention are specialised.

    `causal`: None, "upper_left" or "lower_right"; `grouped`: whether query heads may share a key head; `mask`: dtype
    of the mask, or None; `scale`: factor of the scores; None: the inverse root of the features; `dropout`: rate.
    """

    causal: str | None = None
    grouped: bool = False
    mask: str | None = None
    scale: float | None = None
    dropout: float = 0.0


class _SimtTile(NamedTuple):
    """A tile of schedule simt: own rows, others at a time, and own rows of a work-item, which has four others."""

    own: int
    other: int
    height: int

    @property
    def items(self) -> int:
        """Work-items of a work-group."""
        return self.own // self.height * self.other // 4

    def vectors(self, depth: int) -> int:
        """Return how many vectors of four features a work-item adds up."""
        return 2 if depth > self.other else 1

    @property
    def elements(self) -> int:
        """Elements in local memory, at most."""
        own, other = self.own + 4, self.other + 4
        run = min(SIMT_STEP, self.other) * (2 * self.other + 4)
        return other * own + max(SIMT_STEP * (own + other), self.other // 4 * own, run)


class _Inputs(NamedTuple):
    """The inputs of a call, or their layouts, by name."""

    q: Any
    k: Any
    v: Any
    mask: Any = None
    seed: Any = None
    sums: Any = None
    correction: Any = None
    grad: Any = None


class _Launches(NamedTuple):
    """The launches for a set of layouts, each with its plan and the positions of its outputs."""

    launches: tuple[tuple[KernelLaunch, bytes, tuple[int, ...], int], ...] = ()


class _AttentionRoutine(Routine):
    """Base class of attention and of its gradients, in float32 or float64.

    `dtype`: dtype of all floating arrays; `form`: what the kernels are specialised to.
    """

    extra: tuple[str, ...] = ()
    """Names of the inputs that follow query, key, value, mask and seed."""

    def __init__(self, context: Context, dtype: str, form: Form, *, schedule: str | None = None) -> None:
        super().__init__(context, schedule)
        self.dtype = context.check_dtype(dtype)
        self.form = form
        names = ["q", "k", "v", *["mask"] * bool(form.mask), *["seed"] * bool(form.dropout), *self.extra]
        self._names = tuple(names)
        self._struct = _plan_struct(ctype(self.dtype))
        self._plans: Plans[_Launches] = Plans()
        self._kernels: dict[KernelSource, Kernel] = {}

    # --- shapes ---

    def _named(self, values: Sequence[Any]) -> _Inputs:
        return _Inputs(**dict(zip(self._names, values, strict=True)))

    def _check(self, x: _Inputs) -> None:
        """Raise `ValueError` if the shapes do not fit together."""
        (n, heads, queries, features), (_, shared, keys, _), values = x.q.shape, x.k.shape, x.v.shape[-1]
        shapes = f"query {x.q.shape}, key {x.k.shape}, value {x.v.shape}"
        if x.k.shape[0] != n or x.k.shape[-1] != features or x.v.shape != (n, shared, keys, values):
            raise ValueError(f"Shape mismatch: {shapes}")
        if (heads % shared if shared else heads) if self.form.grouped else heads != shared:
            raise ValueError(f"Shape mismatch: heads of query and key do not fit: {shapes}")
        scores = (n, heads, queries, keys)
        if x.mask is not None and any(m not in (1, s) for m, s in zip(x.mask.shape, scores, strict=True)):
            raise ValueError(f"Shape mismatch: the mask {x.mask.shape} does not broadcast to {scores}")
        rows = (n, heads, queries)
        if x.grad is not None and (x.grad.shape, x.sums.shape, x.correction.shape) != ((*rows, values), rows, rows):
            raise ValueError(f"Shape mismatch: gradient {x.grad.shape}, sums {x.sums.shape}; {shapes}")

    # --- kernels ---

    @property
    def tile(self) -> Tile:
        """The register tile of schedule cpu, that of matrix products."""
        lanes = lanes_of(self.context, self.dtype)
        return register_tile("f", register_bytes(self.context), lanes, self.context.tuning["gemm.tile"])

    def _preambles(self, *vectors: str) -> tuple[str, ...]:
        """Return what kernels of this form share; `vectors`: types of hashes besides uint."""
        structs = (render("attention/plan", structs=s) for s in ((_OPERAND, _CALL), (self._struct,)))
        types = ("uint", *vectors) if self.form.dropout else ()
        return (*structs, *(render("attention/dropout", type=t) for t in types))

    def _source(self, kind: str) -> KernelSource:
        tile, c = self.tile, ctype(self.dtype)
        micro = f"attention_{c}_{'x'.join(map(str, tile))}"
        micro_kernels = render(
            "gemm/microkernel",
            micro=micro,
            ctype=c,
            itemsize=self.dtype.itemsize,
            lanes=tile.lanes,
            shapes=tuple((tile.mr, 2 * count) for count in range(1, tile.vectors + 1)),
        )
        own_exp = (self.dtype.name, tile.lanes) in (("float32", 8), ("float32", 16), ("float64", 8))
        preambles = [gemm_preamble(), *self._preambles(f"uint{tile.lanes}"), micro_kernels]
        if own_exp:
            preambles.append(render("math/exp", dtype=self.dtype.name))
        return kernel_source(
            "attention/cpu",
            preambles=tuple(preambles),
            kind=kind,
            micro=micro,
            ctype=c,
            itype="long" if c == "double" else "int",
            itemsize=self.dtype.itemsize,
            lanes=tile.lanes,
            mr=tile.mr,
            vectors=tile.vectors,
            block=self._block,
            causal=self.form.causal is not None,
            mask_type=_MASK_TYPES[self.form.mask] if self.form.mask else None,
            dropout=bool(self.form.dropout),
            exp=f"exp_{c}{tile.lanes}" if own_exp else "exp",
        )

    def _simt_source(self, kind: str, tile: _SimtTile, vectors: int, index: str) -> KernelSource:
        return kernel_source(
            "attention/simt",
            preambles=self._preambles(),
            kind=kind,
            ctype=ctype(self.dtype),
            index=index,
            vectors=vectors,
            step=SIMT_STEP,
            causal=self.form.causal is not None,
            mask_type=_MASK_TYPES[self.form.mask] if self.form.mask else None,
            dropout=bool(self.form.dropout),
            **tile._asdict(),
        )

    def _simt_tile(self, kind: str, depth: int = 1, rows: int = 1, matrices: int = 1) -> _SimtTile:
        """Return the tile for a kernel that adds up rows of `depth` features, for `matrices` times so many own rows."""
        info, tiles = self.limits.info, [_SimtTile(*t) for t in SIMT_TILES[self.dtype.itemsize]]
        tall = _SimtTile(*SIMT_TALL_TILE)
        holds_few = kind in ("forward", "value_gradient") and tall.vectors(depth) == 1
        is_enough = ceil_div(rows, tall.own) * matrices >= info.compute_units
        if self.dtype == np.float32 and holds_few and is_enough:
            tiles = [tall, *tiles]
        room = local_memory(info) // self.dtype.itemsize
        return next((t for t in tiles if t.items <= info.max_work_group_size and t.elements <= room), tiles[-1])

    @property
    def _block(self) -> int:
        return BLOCK_TILES * self.tile.nr

    def _sources(self, *kinds: str) -> tuple[KernelSource, ...]:
        if self.schedule == "cpu":
            return tuple(map(self._source, kinds))
        return tuple(self._simt_source(kind, self._simt_tile(kind), 1, "int") for kind in kinds)

    def _kernel(self, source: KernelSource, work_items: int = 1) -> Kernel:
        if source not in self._kernels:
            self._kernels[source] = self.limits.kernel(source, source.name, work_items)
        return self._kernels[source]

    # --- launches ---

    def _pack(self, x: _Inputs, workspace: int) -> bytes:
        """Return the plan of a kernel."""
        (batch, heads, queries, features), (_, shared, keys, _) = x.q.shape, x.k.shape
        form = self.form
        operands = {}
        for name in _OPERANDS.split():
            layout = getattr(x, name)
            strides = (0, 0, 0, 0) if layout is None else (*layout.strides, 0)[:4]
            if name == "mask" and layout is not None:
                strides = tuple(0 if n == 1 else s for n, s in zip(layout.shape, layout.strides, strict=True))
            operands[name] = dict(zip(("batch", "head", "row", "col"), strides, strict=True))
        return self._struct.pack(
            batch=batch,
            heads=heads,
            group=heads // shared if shared else 1,
            queries=queries,
            keys=keys,
            features=features,
            values=x.v.shape[-1],
            offset=keys - queries if form.causal == "lower_right" else 0,
            workspace_size=workspace,
            threshold=min(2**32 - 1, round(form.dropout * 2**32)),
            scale=1 / sqrt(max(features, 1)) if form.scale is None else form.scale,
            kept=1 / (1 - form.dropout),
            **operands,
        )

    def _cpu_launch(self, kind: str, x: _Inputs, outputs: tuple[int, ...]) -> tuple[Any, ...]:
        """Return a launch of schedule cpu, its plan, its outputs, and the elements of its workspace."""
        tile, (batch, heads, queries, features), (_, shared, keys, _) = self.tile, x.q.shape, x.k.shape
        nr, mr = tile.nr, tile.mr
        panel = (self._block + mr) * nr
        size_e, size_v = (round_up(n, mr) * nr for n in (features, x.v.shape[-1]))
        is_forward, adds_query = kind == "forward", kind == "gradients"
        size = panel + 4 * nr + size_e + size_v
        if not is_forward:
            size += panel + (size_e if kind == "query_gradient" else size_e + size_v)
        query_tiles, key_tiles = ceil_div(queries, nr), ceil_div(keys, nr)
        if adds_query:
            size += nr * nr + (heads // max(shared, 1)) * query_tiles * size_e
        count = {
            "key_gradients": batch * shared * key_tiles,
            "gradients": batch * shared,
        }.get(kind, batch * heads * query_tiles)
        items = min(count, ITEMS_PER_UNIT * self.context.info.compute_units)
        launch = KernelLaunch(self._kernel(self._source(kind)), (items,), (1,))
        return launch, self._pack(x, size), outputs, size * items

    def _simt_launch(self, kind: str, x: _Inputs, outputs: tuple[int, ...]) -> tuple[Any, ...]:
        """Return a launch of schedule simt, its plan, its outputs, and the elements of its workspace: none."""
        (batch, heads, queries, features), (_, shared, keys, _) = x.q.shape, x.k.shape
        owns_queries = kind in ("forward", "query_gradient")
        depth = x.v.shape[-1] if kind in ("forward", "value_gradient") else features
        rows, matrices = (queries, batch * heads) if owns_queries else (keys, batch * shared)
        tile = self._simt_tile(kind, depth, rows, matrices)
        # The sums of gradients of float64 that are twice as wide do not fit into registers.
        is_narrow = self.dtype == np.float64 and kind in ("query_gradient", "key_gradient")
        vectors = 1 if is_narrow else tile.vectors(depth)
        tiles = ceil_div(rows, tile.own) * ceil_div(depth, vectors * tile.other)
        margin = tile.own + vectors * tile.other + SIMT_STEP
        layouts = (v for v in x if v is not None and len(v.shape) == _NDIM)
        reach = max((max(v.shape[-2:]) + margin) * max(1, *map(abs, v.strides[-2:])) for v in layouts)
        kernel = self._kernel(self._simt_source(kind, tile, vectors, index_type(2 * reach)), tile.items)
        launch = KernelLaunch(kernel, (tiles * tile.items, min(matrices, MAX_GROUPS)), (tile.items, 1))
        return launch, self._pack(x, 0), outputs, 0

    def _kinds(self, x: _Inputs) -> dict[str, tuple[int, ...]]:
        """Return the kernels of a call, and for each the positions of its outputs."""
        raise NotImplementedError

    def _plan(self, x: _Inputs) -> _Launches:
        make = self._cpu_launch if self.schedule == "cpu" else self._simt_launch
        made = (make(kind, x, places) for kind, places in self._kinds(x).items())
        return _Launches(tuple(launch for launch in made if all(launch[0].global_size)))

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernels; outputs are contiguous."""
        x = self._named(inputs)
        if not any(o.layout.size for o in outputs):
            return
        layouts = _Inputs(*(None if v is None else v.layout for v in x))
        key = tuple(None if v is None else v[:2] for v in layouts)
        plan = self._plans.get(key)
        if plan is None:
            made = self.limits.with_fitting_groups(partial(self._plan, layouts), self._kernels.clear)
            plan = self._plans.store(key, made)
        starts = (0 if v is None else v.layout.offset for v in (getattr(x, n) for n in _OPERANDS.split()))
        call = _CALL.pack_values(*starts, 0 if x.seed is None else x.seed.layout.offset)
        arrays = (x.q, x.k, x.v, x.mask, x.seed, x.sums, x.correction, x.grad)
        buffers = [None if v is None else v.buffer for v in arrays]
        for launch, packed, places, size in plan.launches:
            results = [outputs[i].buffer if i >= 0 else None for i in places]
            workspace = (self.context.empty((size,), self.dtype).buffer,) if size else ()
            launch.enqueue(self.context.queue, packed, call, *buffers, *results, *workspace)


class Attention(_AttentionRoutine):
    """Attention, and the log of each row's sum; zero in rows without a key.

    Called with query (N, H, L, E), key (N, Hk, S, E), value (N, Hk, S, Ev), of any strides, then the mask, which
    broadcasts to (N, H, L, S), and the seed of the dropout, two int64, where the form has them.
    """

    def __init__(self, context: Context, dtype: str, form: Form, *, schedule: str | None = None) -> None:
        super().__init__(context, dtype, form, schedule=schedule)
        self.output_dtypes = (self.dtype.name, self.dtype.name)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel."""
        return self._sources("forward")

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layouts of result and sums.

        Raises `ValueError`: the shapes do not fit together.
        """
        x = self._named(inputs)
        self._check(x)
        rows = x.q.shape[:-1]
        return Layout.contiguous((*rows, x.v.shape[-1])), Layout.contiguous(rows)

    def _kinds(self, x: _Inputs) -> dict[str, tuple[int, ...]]:
        return {"forward": (0, 1, -1) if self.schedule == "cpu" else (0, 1)}


class AttentionGrad(_AttentionRoutine):
    """Gradients of attention by query, key and value.

    Called as `Attention`, with three more arrays: the logs of the sums (N, H, L), the correction (N, H, L), which is
    the sum of result times gradient along each row, and the gradient of the result.
    """

    extra = ("sums", "correction", "grad")

    def __init__(self, context: Context, dtype: str, form: Form, *, schedule: str | None = None) -> None:
        super().__init__(context, dtype, form, schedule=schedule)
        self.output_dtypes = (self.dtype.name,) * 3

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels of ordinary calls."""
        return self._sources(*(("gradients",) if self.schedule == "cpu" else _SIMT_GRADIENTS))

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layouts of the gradients.

        Raises `ValueError`: the shapes do not fit together.
        """
        x = self._named(inputs)
        self._check(x)
        return tuple(Layout.contiguous(v.shape) for v in (x.q, x.k, x.v))

    def _kinds(self, x: _Inputs) -> dict[str, tuple[int, ...]]:
        if self.schedule == "simt":
            return {kind: (place, -1) for place, kind in enumerate(_SIMT_GRADIENTS)}
        if self._fills_device(x.k.shape[0] * x.k.shape[1]):
            return {"gradients": (0, 1, 2)}
        return {"query_gradient": (0, -1, -1), "key_gradients": (-1, 1, 2)}

    def _fills_device(self, heads: int) -> bool:
        """Return whether all compute units have the same to do if each computes whole heads, or nearly so."""
        units = self.context.info.compute_units
        return heads % units == 0 or heads >= ITEMS_PER_UNIT * units
