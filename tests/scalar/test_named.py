"""Functions by name against NumPy's, with the values on which conventions differ."""

from functools import partial

import numpy as np
import pytest
from pytensor import scalar as ps

from pytensor_cl.codegen.emitter import Emitter
from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.elemwise.routine import Elemwise
from pytensor_cl.scalar.base import Unsupported, element_function, emit
from pytensor_cl.scalar.named import NAMED

FLOATS, INTEGERS = ("float16", "float32", "float64"), ("int8", "uint8", "int16", "int64", "uint64")
SHIFTS = ("bitwise_left_shift", "bitwise_right_shift")
ROUNDINGS = ("ceil", "floor", "round", "trunc")
UNARY = {name: NAMED[name] for name in (*ROUNDINGS, "isfinite", "signbit")}
BINARY = {name: NAMED[name] for name in ("copysign", "hypot", "logaddexp", "nextafter")}
# Ops of PyTensor's whose special values the standard of arrays lists.
STANDARD = {
    "arctan2": ps.arctan2,
    "floor_divide": ps.int_div,
    "maximum": ps.maximum,
    "power": ps.pow,
    "remainder": ps.mod,
    "sign": ps.sign,
}
RELATIVE = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-13}


class Together:
    """Several functions of the same inputs as one element function, so that one kernel computes all."""

    itemsize = 8
    operations = 100

    def __init__(self, functions, dtypes, results):
        self.functions, self.input_dtypes, self.output_dtypes = functions, dtypes, results
        self.preambles = tuple(self._write(1)[0].preambles)

    def _write(self, lanes):
        emitter = Emitter(lanes)
        inputs = [emitter.input(f"i{k}", dtype) for k, dtype in enumerate(self.input_dtypes)]
        pairs = zip(self.functions, self.output_dtypes, strict=True)
        return emitter, [emit(emitter, op, tuple(inputs[:arity]), [t])[0] for (op, arity), t in pairs]

    def statements(self, lanes):
        emitter, outputs = self._write(lanes)
        return emitter.body(outputs)


def run(context, schedule, table, arrays):
    """Compute functions of arrays on the device and by NumPy; `table` has the Op and the arity of each name."""
    with np.errstate(all="ignore"):
        wanted = {name: getattr(np, name)(*arrays[:arity]) for name, (_, arity) in table.items()}
    function = Together(list(table.values()), [str(a.dtype) for a in arrays], [str(w.dtype) for w in wanted.values()])
    plain = (False,) * len(arrays)
    routine = Elemwise(
        context, function, tuple((False,) * arrays[0].ndim for _ in arrays), arrays[0].ndim, plain, schedule
    )
    (source,) = routine.sources()
    assert source.name.startswith("elemwise")
    return {
        n: (o.to_host(), w) for (n, w), o in zip(wanted.items(), routine(*map(context.from_host, arrays)), strict=True)
    }


@pytest.fixture(params=SCHEDULES)
def schedule(request):
    return request.param


def special(dtype):
    """Values on which conventions differ."""
    info, inf, nan = np.finfo(dtype), np.inf, np.nan
    ends = (info.max, info.tiny, info.smallest_subnormal, 1 - info.epsneg)
    some = (0.0, 0.5, 1, 1.5, 2, 2.5, 3, 7, 0.1, np.pi, inf, *ends)
    return np.array([*some, *(-x for x in some), nan], dtype)


def assert_same(got, want, name):
    """Compare signed zeros, infinities and NaN exactly, other numbers nearly."""
    assert got.dtype == want.dtype, name
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(got, want, err_msg=name)
        return
    zero = (want == 0) & ("maximum" not in name) & ("minimum" not in name)  # NumPy's depends on the position
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]), err_msg=name)
    # A driver may take subnormal numbers for zero; that sum of two terms may cancel.
    least = RELATIVE[want.dtype.name] if "logaddexp" in name else float(np.finfo(want.dtype).tiny) * 2
    np.testing.assert_allclose(got, want, rtol=RELATIVE[want.dtype.name], atol=least, err_msg=name)


@pytest.mark.parametrize("dtype", FLOATS)
def test_special_values(context, schedule, dtype):
    values = special(dtype)
    x, y = (a.ravel() for a in np.meshgrid(values, values))
    binary = {**BINARY, **{name: op for name, op in STANDARD.items() if name != "sign"}}
    table = {name: (op, 1) for name, op in {**UNARY, "sign": ps.sign}.items()} | {n: (o, 2) for n, o in binary.items()}
    results = run(context, schedule, table, (x, y))
    for name, (got, want) in results.items():
        if name == "nextafter":
            bits = f"uint{8 * want.dtype.itemsize}"
            is_number = ~np.isnan(want)
            np.testing.assert_array_equal(got.view(bits)[is_number], want.view(bits)[is_number])
            assert np.isnan(got[~is_number]).all()
            continue
        assert_same(got, want, f"{name} of {dtype}")


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(context, schedule, dtype, rng):
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, 300, dtype=dtype, endpoint=True)
    y = rng.integers(0, 2 * info.bits, 300).astype(dtype)
    x[:3], y[:3] = (info.min, info.max, 0), (info.max, info.min, info.bits)
    table = {name: (UNARY[name], 1) for name in ROUNDINGS} | {name: (NAMED[name], 2) for name in SHIFTS}
    table |= {name: (UNARY[name], 1) for name in ("isfinite", "signbit")}
    for name, (got, want) in run(context, schedule, table, (x, y)).items():
        assert_same(got, want, name)


def test_complex(context, schedule):
    parts = np.array([0, -0.0, 0.5, 1.5, -2.5, np.inf, -np.inf, np.nan], "float32")
    z = (parts[:, None] + np.zeros(8, "complex64")).astype("complex64")
    z.imag = parts
    table = {"round": (NAMED["round"], 1), "isfinite": (NAMED["isfinite"], 1), "sign": (ps.sign, 1)}
    for name, (got, want) in run(context, schedule, table, (z,)).items():
        compare = partial(assert_same, name=name)
        for part in (lambda a: a.real, lambda a: a.imag) if want.dtype.kind == "c" else (lambda a: a,):
            compare(part(got), part(want))


def test_clip_as_numpy_has_it(context, schedule):
    """NaN of a bound is kept, and the upper bound counts where they are in the wrong order."""
    x, low, high = (a.ravel() for a in np.meshgrid(*[np.array([-2, 1, 3, np.inf, np.nan], "float32")] * 3))
    ((got, want),) = run(context, schedule, {"clip": (NAMED["clip"], 3)}, (x, low, high)).values()
    np.testing.assert_array_equal(got, want)


def test_reasons():
    with pytest.raises(Unsupported, match="bitwise_left_shift is of integers, not of float32"):
        element_function(NAMED["bitwise_left_shift"], ("float32", "float32"), ("float32",))
    with pytest.raises(Unsupported, match="no OpenCL kernel for hypot of complex numbers"):
        element_function(NAMED["hypot"], ("complex64", "complex64"), ("complex64",))
