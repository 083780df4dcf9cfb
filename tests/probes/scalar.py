"""Scalar Ops: each alone, through Elemwise, in several dtypes."""

from collections.abc import Iterator

import numpy as np
import pytensor.scalar as ps
import pytensor.scalar.basic as psb
import pytensor.scalar.math as psm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.scalar.loop import ScalarLoop
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import MulWithoutZeros

from tests.probes.probe import Probe, probe

FLOATS, INTEGERS, COMPLEX = ("float32", "float64"), ("int8", "int32", "int64", "uint8", "uint64"), ("complex64",)
N = 12

# Where the functions are defined: lowest and highest value of each input. All others take anything.
ANYWHERE = (-3.0, 3.0)
POSITIVE, UNIT, ABOVE_ONE = (0.1, 4.0), (0.05, 0.95), (1.1, 4.0)
DOMAINS = {
    psb.ArcCos: (UNIT,),
    psb.ArcCosh: (ABOVE_ONE,),
    psb.ArcSin: (UNIT,),
    psb.ArcTanh: (UNIT,),
    psb.Log: (POSITIVE,),
    psb.Log10: (POSITIVE,),
    psb.Log1p: (POSITIVE,),
    psb.Log2: (POSITIVE,),
    psb.Pow: (POSITIVE, (0.0, 3.0)),  # integers have no negative powers
    psb.Sqrt: (POSITIVE,),
    psb.Reciprocal: (POSITIVE,),
    psb.Clip: (ANYWHERE, (-2.0, -1.0), (1.0, 2.0)),
    psm.BetaInc: (POSITIVE, POSITIVE, UNIT),
    psm.BetaIncInv: (POSITIVE, POSITIVE, UNIT),
    psm.Erfcinv: (UNIT,),
    psm.Erfinv: (UNIT,),
    psm.Gamma: (POSITIVE,),
    psm.GammaInc: (POSITIVE, POSITIVE),
    psm.GammaIncC: (POSITIVE, POSITIVE),
    psm.GammaIncCInv: (POSITIVE, UNIT),
    psm.GammaIncInv: (POSITIVE, UNIT),
    psm.GammaLn: (POSITIVE,),
    psm.Hyp2F1: (POSITIVE, POSITIVE, POSITIVE, UNIT),
    psm.Ive: (POSITIVE, POSITIVE),
    psm.Jv: (POSITIVE, POSITIVE),
    psm.Kve: (POSITIVE, POSITIVE),
    psm.Log1mexp: ((-4.0, -0.1),),
    psm.NdtriExp: ((-4.0, -0.1),),
    psm.Psi: (POSITIVE,),
    psm.TriGamma: (POSITIVE,),
}
NONZERO = (psb.IntDiv, psb.Mod, psb.TrueDiv)  # integers of their second input

# Dtypes beside the floats. What is not here takes floats only.
_ARITHMETIC = (*FLOATS, *INTEGERS, *COMPLEX, "bool", "float16")
_ORDERED = (*FLOATS, *INTEGERS, "bool", "float16")
_BITS = (*INTEGERS, "bool")
DTYPES = {
    psb.Add: _ARITHMETIC,
    psb.Mul: _ARITHMETIC,
    psb.Sub: (*FLOATS, *INTEGERS, *COMPLEX, "float16"),
    psb.Neg: (*FLOATS, "int8", "int32", "int64", *COMPLEX, "float16"),
    psb.Sqr: (*FLOATS, *INTEGERS, *COMPLEX),
    psb.Abs: (*FLOATS, *INTEGERS, *COMPLEX),
    psb.TrueDiv: (*FLOATS, *INTEGERS, *COMPLEX),
    psb.Pow: (*FLOATS, "int32", "int64", *COMPLEX),
    psb.IntDiv: (*FLOATS, *INTEGERS),
    psb.Mod: (*FLOATS, *INTEGERS),
    psb.Maximum: _ORDERED,
    psb.Minimum: _ORDERED,
    psb.Clip: (*FLOATS, "int32", "uint8"),
    psb.EQ: _ARITHMETIC,
    psb.NEQ: _ARITHMETIC,
    psb.LT: _ORDERED,
    psb.LE: _ORDERED,
    psb.GT: _ORDERED,
    psb.GE: _ORDERED,
    psb.AND: _BITS,
    psb.OR: _BITS,
    psb.XOR: _BITS,
    psb.Invert: _BITS,
    psb.Sign: (*FLOATS, *INTEGERS),
    psb.Identity: (*FLOATS, "int64", *COMPLEX),
    psb.Second: (*FLOATS, "int64"),
    psb.Exp: (*FLOATS, "int32", "float16", *COMPLEX),
    psb.Log: (*FLOATS, "int32", "float16", *COMPLEX),
    psb.Sqrt: (*FLOATS, "int32", "float16", *COMPLEX),
    psb.Sin: (*FLOATS, "int32", "float16", *COMPLEX),
    psb.Cos: (*FLOATS, "int32", "float16", *COMPLEX),
    psb.Tanh: (*FLOATS, "int32", "float16", *COMPLEX),
    psm.Sigmoid: (*FLOATS, "float16"),
    psb.Real: COMPLEX + FLOATS[:1],
    psb.Imag: COMPLEX,
    psb.Conj: COMPLEX + FLOATS[:1],
}
# PyTensor takes these out of a graph that has nothing else in it.
VANISHING = (psb.Identity, psb.Second, psb.Real, psb.Conj, psb.Abs)
LOOSE = {"float16": 1e-2, "complex64": 1e-4}


def _instances() -> dict[type, ps.ScalarOp]:
    """Return a plain instance of each scalar Op class: PyTensor has one under the function's name."""
    found: dict[type, ps.ScalarOp] = {}
    for module in (psb, psm):
        for value in vars(module).values():
            if isinstance(value, ps.ScalarOp):
                found.setdefault(type(value), value)
    return found


def _values(op: ps.ScalarOp, dtype: str, rng: np.random.Generator) -> list[np.ndarray]:
    ranges = DOMAINS.get(type(op), (ANYWHERE,) * (op.nin if op.nin > 0 else 2))
    kind = np.dtype(dtype).kind
    made = []
    for number, (low, high) in enumerate(ranges):
        if kind == "b":
            value = rng.integers(0, 2, N)
        elif kind in "iu":
            lowest = 1 if low > 0 or (number and isinstance(op, NONZERO)) else 0 if kind == "u" else int(low)
            value = rng.integers(lowest, 5, N)
        else:
            value = rng.uniform(low, high, N)
        made.append((value + 1j * rng.uniform(-1, 1, N) if kind == "c" else value).astype(dtype))
    return made


def _alone(op: ps.ScalarOp):
    if isinstance(op, VANISHING):
        return lambda *inputs: 1 - Elemwise(op)(*inputs)
    return Elemwise(op)


def _elementwise() -> Iterator[Probe]:
    rng = np.random.default_rng(1)
    special = {psb.Cast, psb.Switch, psb.Complex, psm.PolyGamma}
    for kind, op in sorted(_instances().items(), key=lambda item: item[0].__name__):
        if kind not in special:
            for dtype in DTYPES.get(kind, FLOATS):
                values = _values(op, dtype, rng)
                yield probe(kind, _alone(op), *values, variant=dtype, rtol=LOOSE.get(dtype, 1e-4))


def _casts() -> Iterator[Probe]:
    source = np.linspace(0, 4, N)
    for dtype in (*FLOATS, *INTEGERS, "bool", "float16", "complex64"):
        for origin in ("float32", "int64") if dtype != "float32" else ("float64", "int64", "float16"):
            name = f"{origin}-{dtype}"
            yield probe(psb.Cast, Elemwise(getattr(psb, f"convert_to_{dtype}")), source.astype(origin), variant=name)


def _loop(*outputs: Variable, inputs: tuple[Variable, ...], constant: tuple[Variable, ...] = ()) -> ScalarLoop:
    return ScalarLoop(init=list(inputs), update=list(outputs), constant=list(constant))


def _halve(x: Variable) -> Variable:
    """Ten times ``y = y / 2 + 1``."""
    y = ps.ScalarType(x.dtype)()
    return Elemwise(_loop(y / np.asarray(2, x.dtype) + np.asarray(1, x.dtype), inputs=(y,)))(pt.constant(10), x)


def _composite(x: Variable, y: Variable) -> Variable:
    a, b = (ps.ScalarType(v.dtype)() for v in (x, y))
    return Elemwise(ps.Composite([a, b], [ps.exp(a) * b + a]))(x, y)


def _others() -> Iterator[Probe]:
    rng = np.random.default_rng(2)
    for dtype in FLOATS:
        x, y = (rng.uniform(0.1, 2, N).astype(dtype) for _ in range(2))
        yield probe(psb.Composite, _composite, x, y, variant=dtype)
        yield probe(psb.Complex, Elemwise(psb.complex), x, y, variant=dtype)
        yield probe(MulWithoutZeros, Elemwise(MulWithoutZeros(psb.upcast_out)), x, y * (y > 1), variant=dtype)
        yield probe(psb.Switch, pt.switch, x > 1, x, y, variant=dtype)
        yield probe(ScalarLoop, _halve, x, variant=dtype)
        n = np.arange(N, dtype="int64") % 3
        yield probe(psm.PolyGamma, Elemwise(psm.polygamma), n, x, variant=dtype)
        parameters = [rng.uniform(0.3, 0.8, 3).astype(dtype) for _ in range(4)]
        yield probe(
            psm.Grad2F1Loop,
            lambda *v: pt.grad(pt.hyp2f1(*v).sum(), v[0]),
            *parameters,
            variant=dtype,
            rtol=1e-3,
        )
    yield probe(psb.Switch, pt.switch, np.arange(N) % 2 == 0, np.arange(N), np.arange(N)[::-1].copy(), variant="int64")


PROBES = (*_elementwise(), *_casts(), *_others())
