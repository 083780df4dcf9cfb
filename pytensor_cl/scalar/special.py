"""Special functions of the scalar table that have own code in ``kernels/math``."""

from collections.abc import Callable

from pytensor import scalar as ps
from pytensor.scalar import math as psm

from pytensor_cl.codegen.emitter import Emitter, Value
from pytensor_cl.codegen.template import render

Emit = Callable[..., Value]


def _library(family: str, function: str, *needs: str) -> Emit:
    """A function that the family has for vectors too. It calls those of `needs`."""

    def emit(emitter: Emitter, x: Value, *others: Value) -> Value:
        for other in needs:
            emitter.preambles[render(f"math/{other}", dtype=x.dtype)] = None
        return x.call_library(family, function, *others)

    return emit


def _apply_by_lane(family: str, function: str, *needs: str) -> Emit:
    """A function that branches or loops: the family has it for scalars only. It calls those of `needs`."""

    def emit(emitter: Emitter, x: Value, *others: Value) -> Value:
        for other in needs:
            emitter.preambles[render(f"math/{other}", dtype=x.dtype)] = None
        value = x.call_library(family, function, *others)
        wrapper = render("math/apply_by_lane", function=function, dtype=x.dtype, inputs=1 + len(others))
        emitter.preambles[wrapper] = None
        return value

    return emit


def _scalar_or_vector(family: str, function: str, *needs: str) -> Emit:
    """A function that ``<family>`` has for scalars and ``<family>_vector`` for vectors. They call those of `needs`."""

    def emit(emitter: Emitter, x: Value, *others: Value) -> Value:
        for other in (*needs, family, f"{family}_vector"):
            emitter.preambles[render(f"math/{other}", dtype=x.dtype)] = None
        return x.call_library(family if emitter.count == 1 else f"{family}_vector", function, *others)

    return emit


_BETA = ("gamma_parts", "exp", "log1p", "pow")
_BETA_INVERSE = (*_BETA, "erf", "gammaln", "betainc", "betainc_vector")
_GAMMA = ("gamma_parts", "exp", "expm1", "erfc", "pow")
_GAMMA_INVERSE = (*_GAMMA, "erf", "gammaln", "gammainc", "gammainc_vector")

SPECIAL: dict[type[ps.ScalarOp], Emit] = {
    psm.BetaInc: _scalar_or_vector("betainc", "betainc", *_BETA),
    psm.BetaIncInv: _scalar_or_vector("betainc_inverse", "betaincinv", *_BETA_INVERSE),
    psm.Erfcinv: _library("erf", "erfcinv"),
    psm.Erfcx: _library("erf", "erfcx"),
    psm.Erfinv: _library("erf", "erfinv"),
    psm.GammaInc: _scalar_or_vector("gammainc", "gammainc", *_GAMMA),
    psm.GammaIncC: _scalar_or_vector("gammainc", "gammaincc", *_GAMMA),
    psm.GammaIncCInv: _scalar_or_vector("gammainc_inverse", "gammainccinv", *_GAMMA_INVERSE),
    psm.GammaIncInv: _scalar_or_vector("gammainc_inverse", "gammaincinv", *_GAMMA_INVERSE),
    psm.GammaLn: _library("gammaln", "gammaln"),
    psm.Hyp2F1: _scalar_or_vector("hyp2f1", "hyp2f1", "gamma_parts", "hyp2f1_parts", "pow"),
    psm.I0: _library("bessel", "bessel_i0"),
    psm.I1: _library("bessel", "bessel_i1"),
    psm.Ive: _apply_by_lane("bessel_ik", "bessel_ive"),
    psm.J0: _library("bessel", "bessel_j0"),
    psm.J1: _library("bessel", "bessel_j1"),
    psm.Jv: _apply_by_lane("bessel_j", "bessel_jv", "bessel_j_parts"),
    psm.Kve: _apply_by_lane("bessel_ik", "bessel_kve"),
    psm.NdtriExp: _library("ndtri_exp", "ndtri_exp", "erf", "exp", "expm1"),
    psm.Owens_t: _library("owens_t", "owens_t"),
    psm.PolyGamma: _scalar_or_vector("polygamma", "polygamma", "digamma", "pow"),
}
"""Inputs are cast to the dtype of the output first."""

OF_PYMC: dict[str, Emit] = {
    "I0e": _library("bessel", "bessel_i0e"),
    "I1e": _library("bessel", "bessel_i1e"),
}
"""Scalar Ops of `pymc.distributions.dist_math` by the names of their classes, so that PyMC need not be imported."""
