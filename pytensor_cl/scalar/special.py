"""Special functions of the scalar table that have own code in ``kernels/functions``."""

from collections.abc import Callable

from pytensor import scalar as ps
from pytensor.scalar import math as psm

from pytensor_cl.codegen.emitter import Lanes, Value
from pytensor_cl.codegen.template import render

__all__ = ["SPECIAL"]

Emit = Callable[..., Value]


def _own(family: str, function: str, *needs: str) -> Emit:
    """A function that the family has for vectors too. It calls those of `needs`."""

    def emit(lanes: Lanes, x: Value, *others: Value) -> Value:
        for other in needs:
            lanes.preambles[render(f"math/{other}", dtype=x.dtype)] = None
        return x.call_own(family, function, *others)

    return emit


def _by_lane(family: str, function: str, *needs: str) -> Emit:
    """A function that branches or loops: the family has it for scalars only. It calls those of `needs`."""

    def emit(lanes: Lanes, x: Value, *others: Value) -> Value:
        for other in needs:
            lanes.preambles[render(f"math/{other}", dtype=x.dtype)] = None
        value = x.call_own(family, function, *others)
        wrapper = render("math/by_lane", function=function, dtype=x.dtype, inputs=1 + len(others))
        lanes.preambles[wrapper] = None
        return value

    return emit


def _by_lanes(family: str, function: str, *needs: str) -> Emit:
    """A function that ``<family>`` has for scalars and ``<family>_lanes`` for vectors. They call those of `needs`."""

    def emit(lanes: Lanes, x: Value, *others: Value) -> Value:
        for other in (*needs, family, f"{family}_lanes"):
            lanes.preambles[render(f"math/{other}", dtype=x.dtype)] = None
        return x.call_own(family if lanes.count == 1 else f"{family}_lanes", function, *others)

    return emit


_BETA = ("gamma_parts", "exp", "log1p", "pow")
_GAMMA = ("gamma_parts", "exp", "expm1", "erfc", "pow")
_GAMMA_INVERSE = (*_GAMMA, "erf", "gammaln", "gammainc", "gammainc_lanes")

SPECIAL: dict[type[ps.ScalarOp], Emit] = {
    psm.BetaInc: _by_lanes("betainc", "betainc", *_BETA),
    psm.BetaIncInv: _by_lanes("betainc_inverse", "betaincinv", *_BETA, "erf", "gammaln", "betainc", "betainc_lanes"),
    psm.Erfcinv: _own("erf", "erfcinv"),
    psm.Erfcx: _own("erf", "erfcx"),
    psm.Erfinv: _own("erf", "erfinv"),
    psm.GammaInc: _by_lanes("gammainc", "gammainc", *_GAMMA),
    psm.GammaIncC: _by_lanes("gammainc", "gammaincc", *_GAMMA),
    psm.GammaIncCInv: _by_lanes("gammainc_inverse", "gammainccinv", *_GAMMA_INVERSE),
    psm.GammaIncInv: _by_lanes("gammainc_inverse", "gammaincinv", *_GAMMA_INVERSE),
    psm.GammaLn: _own("gammaln", "gammaln"),
    psm.Hyp2F1: _by_lanes("hyp2f1", "hyp2f1", "gamma_parts", "hyp2f1_parts", "pow"),
    psm.I0: _own("bessel", "bessel_i0"),
    psm.I1: _own("bessel", "bessel_i1"),
    psm.Ive: _by_lane("bessel_order", "bessel_ive"),
    psm.J0: _own("bessel", "bessel_j0"),
    psm.J1: _own("bessel", "bessel_j1"),
    psm.Jv: _by_lane("bessel_first", "bessel_jv", "bessel_first_parts"),
    psm.Kve: _by_lane("bessel_order", "bessel_kve"),
    psm.NdtriExp: _own("ndtri_exp", "ndtri_exp", "erf", "exp", "expm1"),
    psm.Owens_t: _own("owens_t", "owens_t"),
    psm.PolyGamma: _by_lanes("polygamma", "polygamma", "digamma", "pow"),
}
"""Inputs are cast to the dtype of the output first."""
