import numpy as np
import pytest

from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.gemv import pair as pair_module
from pytensor_cl.routines.gemv.pair import GemvPair, PairFunction, is_one_pass
from pytensor_cl.routines.rowwise.program import Map, Operand, Reduce, RowFunction
from pytensor_cl.runtime.layout import Layout
from tests.routines.rowwise.test_rowwise import Code

SHAPES = [(1, 1), (7, 1), (16, 16), (33, 5), (200, 21), (150, 64), (90, 77), (1300, 3), (5, 9), (300, 200)]
SIMT_SHAPES = [(1024, 1), (1025, 1), (127, 32), (129, 32), (5000, 32), (8192, 4), (8193, 8), (2000, 64), (70, 66)]
VIEWS = {
    "rows": lambda a, n, k: a[1 : n + 1, 2 : k + 2],
    "whole rows": lambda a, n, k: a.ravel()[: n * k].reshape(n, k),
    "rows of pairs": lambda a, n, k: a.ravel()[2 : 2 + n * (k + k % 2)].reshape(n, -1)[:, :k],
    "columns": lambda a, n, k: a.reshape(a.shape[::-1])[1 : k + 1, 2 : n + 2].T,
    "gaps": lambda a, n, k: a[: 2 * n : 2, : 2 * k : 2],
    "reversed": lambda a, n, k: a[n - 1 :: -1, k - 1 :: -1][:n, :k],
}
ARGUMENTS = ("y", "alpha", "a", "x", "beta", "target", "scale", "weight", "yt", "alpha_t", "beta_t")


def step(text, *inputs, dtype):
    return Map(Code(text, len(inputs), dtype), inputs)


def residuals(dtype):
    """``r = scale (z - target)``, of which the sum of squares, times a weight, is doubled; the largest; z itself."""
    full, row, value = (Operand(kind, dtype) for kind in ("full", "row", "value"))
    steps = (
        step("i0 - i1", 1, 0, dtype=dtype),
        step("i0 * i1", 4, 2, dtype=dtype),
        step("i0 * i0 * i1", 5, 3, dtype=dtype),
        Reduce("add", 6, "float64", dtype, initial=True),
        step("i0 * 2", 7, dtype=dtype),
        Reduce("maximum", 5, dtype, dtype),
    )
    return RowFunction((full, full, row, value), steps, (5, 8, 9, 1))


def expected(host):
    """The same by NumPy, in float64."""
    h = {name: np.asarray(value, "float64") for name, value in host.items()}
    z = h["alpha"] * h["a"] @ h["x"] + h["beta"] * h["y"]
    r = h["scale"] * (z - h["target"])
    g = h["alpha_t"] * h["a"].T @ r + h["beta_t"] * h["yt"]
    return g, r, 2 * np.sum(r**2 * h["weight"]), np.max(r), z


def on_device(context, base, view):
    """A view of an array of the host as one of the device's copy of that array."""
    size = view.itemsize
    start = (view.ctypes.data - base.ctypes.data) // size
    return context.from_host(base).with_layout(Layout(view.shape, tuple(s // size for s in view.strides), start))


def routine_of(context, dtype, schedule):
    pair = PairFunction(residuals(dtype), 1, 5, (False, True, True, True))
    assert is_one_pass(pair.function, pair.factor)
    dropped, broadcast = (False, False, True, False, False, True, True, False), [(False,), (False,), (), ()]
    return GemvPair(context, dtype, pair, dropped, broadcast, is_repeated=(False, True), schedule=schedule)


def operands(rng, n, k, dtype):
    """All but the matrix."""
    vectors = {"y": n, "x": k, "target": n}
    host = {name: rng.normal(size=2 * length).astype(dtype)[::2] for name, length in vectors.items()}
    host |= {name: rng.normal(size=()).astype(dtype)[()] for name in ("alpha", "beta", "weight", "alpha_t", "beta_t")}
    return host | {"scale": np.array(rng.normal(), dtype), "yt": rng.normal(size=1).astype(dtype)}


def check(context, routine, base, host, on_host):
    """Compare with NumPy; the matrix is a view of `base`."""
    moved = {name: host[name] if name in on_host else context.from_host(host[name]) for name in host}
    moved["a"] = on_device(context, base, host["a"])
    got = routine(*(moved[name] for name in ARGUMENTS))
    wanted = expected(host)
    for array, value in zip(got, (wanted[0], *wanted[2:]), strict=True):
        tolerance = (2e-5 if base.dtype == "float32" else 1e-13) * max(1, np.abs(value).max(initial=0))
        np.testing.assert_allclose(
            context.download(array), value, rtol=0, atol=tolerance * max(1, host["a"].shape[0]) ** 0.5
        )


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_against_numpy(context, rng, schedule, dtype):
    routine = routine_of(context, dtype, schedule)
    for number, (n, k) in enumerate(SHAPES):
        base = rng.normal(size=(2 * n + 3, 2 * k + 3)).astype(dtype)
        host = operands(rng, n, k, dtype)
        on_host = ("weight", *(("alpha", "beta_t") if number % 2 else ("beta", "alpha_t")))
        for view in VIEWS.values():
            check(context, routine, base, host | {"a": view(base, n, k)}, on_host)
    variants = {"cpu": ["row", "col"], "simt": ["1", "2", "4"] if dtype == "float32" else ["1", "2"]}
    assert sorted(routine._built) == sorted(variants[schedule])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_work_groups(context, rng, monkeypatch, dtype):
    """One group, several, so many that the last launch has many parts, and lengths around those of their steps."""
    monkeypatch.setattr(pair_module, "PAIR_GROUPS_PER_UNIT", 100)
    routine, groups = routine_of(context, dtype, "simt"), []
    split = routine._split_simt
    monkeypatch.setattr(routine, "_split_simt", lambda a: groups.append(split(a)) or groups[-1])
    for n, k in SIMT_SHAPES:
        host = operands(rng, n, k, dtype)
        base = rng.normal(size=(n, k)).astype(dtype)
        host["a"] = base
        check(context, routine, base, host, ("weight",))
    numbers = [s.items for s in groups]
    assert min(numbers) == 1 and max(numbers) > 10 and len(set(numbers)) > 2


def test_infinity_stays_in_its_row_on_simt(context, rng):
    """Neither rows nor columns that do not exist turn it into NaN elsewhere."""
    routine = routine_of(context, "float32", "simt")
    host = operands(rng, 500, 12, "float32") | {"a": rng.normal(size=(500, 12)).astype("float32")}
    host["a"][499, 11] = np.inf
    g, *_, z = (
        np.asarray(array)
        for array in routine(*(host[v] if v == "weight" else context.from_host(host[v]) for v in ARGUMENTS))
    )
    np.testing.assert_array_equal(np.isfinite(z), np.arange(500) != 499)
    np.testing.assert_array_equal(np.isinf(g), np.ones(12, "bool"))


def test_rows_that_are_too_long_are_three_steps(context, rng):
    routine = routine_of(context, "float32", "simt")
    for n, k, is_pair in ((300, 256, True), (300, 260, False), (100, 65, False)):
        base = rng.normal(size=(n, k)).astype("float32")
        check(context, routine, base, operands(rng, n, k, "float32") | {"a": base}, ("weight",))
        assert bool(routine._built) == is_pair
        routine._built.clear()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_matrix_where_its_memory_ends(context, rng, schedule, dtype):
    """Vectors that reach behind a row must not reach behind the last one; what is there must not count."""
    routine = routine_of(context, dtype, schedule)
    for n, k in ((1, 1), (5, 3), (20, 1), (16, 16), (36, 17), (152, 19)):
        host = operands(rng, n, k, dtype)
        for around in ((0, 0), (2, 3)):
            base = np.full((n + around[0], k + around[1]), np.nan, dtype)
            base[around[0] :, around[1] :] = rng.normal(size=(n, k))
            check(context, routine, base, host | {"a": base[around[0] :, around[1] :]}, ("weight",))
            columns = np.ascontiguousarray(base.T)
            check(context, routine, columns, host | {"a": columns[around[1] :, around[0] :].T}, ("weight",))
    assert {"row", "col"} <= routine._built.keys() or schedule == "simt"


def test_what_takes_two_walks():
    full = Operand("full", "float32")
    centred = (Reduce("add", 0, "float32", "float32"), step("i0 - i1", 0, 1, dtype="float32"))
    assert not is_one_pass(RowFunction((full,), centred, (2,)), 2)
    assert is_one_pass(RowFunction((full,), centred[:1], (0, 1)), 0)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_sums_in_float32_alone(context, rng, schedule):
    """A device without float64 carries the rounding errors of such a sum along."""
    pair = PairFunction(residuals("float32"), 1, 5, (False, True, False, False))
    dropped, broadcast = (False, False, True, False, False, True, True, False), [(False,), (False,), (), ()]
    routine = GemvPair(context, "float32", pair, dropped, broadcast, has_fp64=False, schedule=schedule)
    assert "double" not in "".join((source := routine.sources()[0]).preambles) + source.source
    n, k = 3000, 4
    host = {name: rng.normal(size=m).astype("float32") for name, m in (("y", n), ("x", k), ("target", n), ("yt", k))}
    host |= {name: np.float32(1) for name in ("alpha", "beta", "weight", "alpha_t", "beta_t")}
    host |= {"scale": np.array(1, "float32"), "a": rng.normal(size=(n, k)).astype("float32")}
    got = routine(*(host[name] if name == "weight" else context.from_host(host[name]) for name in ARGUMENTS))
    np.testing.assert_allclose(context.download(got[1]), expected(host)[2], rtol=3e-7)
