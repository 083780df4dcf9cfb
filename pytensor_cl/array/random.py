"""Random numbers on the device, with the methods of NumPy's Generator.

``default_rng(seed)`` draws the same numbers as ``numpy.random.default_rng(seed)``. ``default_rng(seed, kind="philox")``
draws other numbers, all in parallel.
"""

from collections.abc import Callable, Sequence
from math import prod
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from pytensor_cl.array import elementwise
from pytensor_cl.array.creation import asarray, full
from pytensor_cl.array.device import Device, context_of
from pytensor_cl.array.dispatch import assign_result, check_writable
from pytensor_cl.array.dtypes import DTypeLike
from pytensor_cl.array.indexing import take
from pytensor_cl.array.launches import copy_into
from pytensor_cl.array.manipulation import reshape
from pytensor_cl.array.numpy_names import raise_missing
from pytensor_cl.array.reductions import max as greatest
from pytensor_cl.array.reductions import sum as total
from pytensor_cl.array.rows import cached
from pytensor_cl.array.sorting import argsort, searchsorted, take_along_axis
from pytensor_cl.errors import UnsupportedDtype
from pytensor_cl.routines.random.counter import CounterDraw
from pytensor_cl.routines.random.dirichlet import DirichletDraw
from pytensor_cl.routines.random.draw import Draw, HostDraw
from pytensor_cl.routines.random.generator import is_known
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context

__all__ = ["Generator", "default_rng"]

KINDS = ("numpy", "philox")
_WIDE_INTEGERS = ("int32", "int64", "uint32", "uint64")
"""Dtypes of whole numbers that NumPy draws in the same way."""


class _LeftToHost(Exception):
    """A draw that has no kernel."""


def _refuse(*arguments: Any) -> Any:
    raise _LeftToHost


class _Call(NamedTuple):
    """A call of a method: what NumPy's Generator is called with, but for the size, and the distribution.

    `parameters`: arguments of NumPy's method, by which they are checked; `values`: those of the kernel; `options`: more
    arguments of NumPy's method; `is_zero`: whether all draws are zero, and NumPy takes no numbers for them.
    """

    method: str
    distribution: str
    parameters: tuple[Any, ...]
    values: tuple[Any, ...]
    dtype: str = "float64"
    options: dict[str, Any] | None = None
    is_zero: bool = False


def _checker() -> np.random.Generator:
    """Return a Generator of the thread's own that checks parameters."""
    return cached(("random", "checker"), lambda: np.random.default_rng(0))


def _shape(size: Any) -> tuple[int, ...] | None:
    """Return a size as a shape.

    Raises `ValueError` or `TypeError`: it is none.
    """
    if size is None:
        return None
    shape = (size,) if hasattr(size, "__index__") else tuple(size)
    shape = tuple(n.__index__() for n in shape)
    if any(n < 0 for n in shape):
        raise ValueError(f"negative dimensions are not allowed: {shape}")
    return shape


def _is_array(x: Any) -> bool:
    return isinstance(x, GpuArray | np.ndarray) and x.ndim > 0


def _is_number(x: Any) -> bool:
    return not isinstance(x, GpuArray) and np.ndim(x) == 0


def _is_zero(x: Any) -> bool:
    return bool(_is_number(x) and x == 0)


def _count(method: str, x: Any) -> Any:
    """Return a parameter that is a count: numbers are cut to integers, as NumPy does.

    Raises `TypeError`: it is an array that is not of integers.
    """
    if _is_number(x):
        return int(np.asarray(x))
    array = x if isinstance(x, GpuArray) else np.asarray(x)
    if array.dtype.kind not in "biu":
        raise TypeError(f"{method}: an array of counts must have an integer dtype, not {array.dtype}")
    return array


def _half(x: Any) -> Any:
    return x / 2.0 if isinstance(x, GpuArray) else np.asarray(x) / 2.0


def _float_dtype(method: str, dtype: DTypeLike) -> str:
    name = str(np.dtype(dtype))
    if name not in ("float32", "float64"):
        raise TypeError(f"Unsupported dtype {name!r} for {method}: it draws float32 or float64")
    return name


def _whole(limit: np.ndarray, add: bool = False) -> np.ndarray:
    """Return a limit, or what comes after it, as integers of Python, which do not overflow."""
    if limit.dtype.kind == "f":
        limit = np.trunc(limit).astype("int64")
    return np.asarray(limit.astype(object) + int(add), object)


def _probabilities(p: Any, length: int) -> np.ndarray | None:
    """Return probabilities in double precision.

    Raises `ValueError`: there are not as many as elements, one is negative or NaN, or their sum is not 1.
    """
    if p is None:
        return None
    chances = np.asarray(p)
    tolerance = np.sqrt(np.finfo("float64").eps)
    if chances.dtype.kind == "f":
        tolerance = max(tolerance, float(np.sqrt(np.finfo(chances.dtype).eps)))
    chances = chances.astype("float64")
    if chances.ndim != 1:
        raise ValueError("p must be 1-dimensional")
    if chances.size != length:
        raise ValueError("a and p must have same size")
    if np.isnan(chances).any():
        raise ValueError("Probabilities contain NaN")
    if (chances < 0).any():
        raise ValueError("Probabilities are not non-negative")
    if abs(chances.sum() - 1.0) > tolerance:
        raise ValueError("Probabilities do not sum to 1.")
    return chances


def _routine(context: Context, kind: str, distribution: str, dtype: str, of_arrays: bool) -> Draw:
    host = HostDraw(_refuse, None)
    if kind == "philox":
        return CounterDraw(context, distribution, dtype, host)
    if distribution == "DirichletRV":
        return DirichletDraw(context, distribution, dtype, host)
    return Draw(context, distribution, dtype, host, of_arrays=of_arrays)


def _restored(generator: np.random.Generator, kind: str, device: str) -> "Generator":
    return Generator(generator, kind=kind, device=device)


def default_rng(seed: Any = None, *, kind: str = "numpy", device: Any = None) -> "Generator":
    """Return a generator of random numbers on a device.

    Parameters
    ----------
    seed
        None, an integer or a sequence of integers, a `numpy.random.SeedSequence`, a bit generator, or a
        `numpy.random.Generator`, which then continues: it is changed by each draw. A `Generator` is returned as it is.
    kind
        ``"numpy"``: the same numbers as NumPy's Generator, which is left in the same state. ``"philox"``: other
        numbers, by Philox4x32-10; each element has a stream of its own, so all distributions are drawn in parallel, and
        parameters may be arrays.
    device
        A `Device` or the name of a context; None is the default.

    Returns
    -------
    Generator

    Raises
    ------
    UnsupportedDtype
        The device has no double precision, in which the numbers are computed.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor_cl.array as xp
    >>> rng = xp.random.default_rng(1)
    >>> bool((np.asarray(rng.normal(size=3)) == np.random.default_rng(1).normal(size=3)).all())
    True
    """
    if isinstance(seed, Generator):
        return seed
    if kind not in KINDS:
        raise ValueError(f"kind must be 'numpy' or 'philox', not {kind!r}")
    return Generator(np.random.default_rng(seed), kind=kind, device=device)


class Generator:
    """Random numbers on a device: the methods and parameters are those of `numpy.random.Generator`.

    Parameters are numbers, NumPy arrays, which are uploaded, or device arrays, and broadcast; ``size=None`` gives the
    shape that they have together. The results are float64 or int64, as NumPy's, where there is no `dtype`.

    Parameters
    ----------
    generator
        NumPy's Generator. With ``kind="numpy"`` each draw takes from it what NumPy takes; with ``kind="philox"`` two
        numbers, which are the key of the draw.
    kind
        ``"numpy"`` or ``"philox"``, as for `default_rng`.
    device
        A `Device` or the name of a context; None is the default.

    Raises
    ------
    ValueError
        A method raises what NumPy's raises: parameters out of their range, or a size that does not fit them.
    TypeError
        There is no kernel for a draw. The message says what else to take: ``kind="philox"`` or NumPy.
    """

    def __init__(self, generator: np.random.Generator, *, kind: str = "numpy", device: Any = None) -> None:
        self._generator, self._kind, self._context = generator, kind, context_of(device)
        self._lock = RLock()
        info = self._context.info
        if not info.has_fp64:
            raise UnsupportedDtype(
                f"{info.name} has no double precision, in which random numbers are computed: "
                "asarray(np.random.default_rng(seed).random(size, 'float32')) uploads NumPy's"
            )

    @property
    def bit_generator(self) -> np.random.BitGenerator:
        """The bit generator of NumPy."""
        return self._generator.bit_generator

    @property
    def kind(self) -> str:
        """``"numpy"`` or ``"philox"``."""
        return self._kind

    @property
    def device(self) -> Device:
        """The device on which numbers are drawn."""
        return Device(self._context.name)

    def __repr__(self) -> str:
        name = type(self.bit_generator).__name__
        return f"Generator({name}, kind={self._kind!r}, device={self._context.name!r})"

    def __reduce__(self) -> Any:
        return _restored, (self._generator, self._kind, self._context.name)

    def spawn(self, n_children: int) -> list["Generator"]:
        """Return independent generators, as `numpy.random.Generator.spawn`."""
        children = self._generator.spawn(n_children)
        return [Generator(child, kind=self._kind, device=self._context.name) for child in children]

    # Draws

    def _parameter(self, method: str, value: Any) -> Any:
        """Return a parameter as a number or an array of the host, or an array of the context.

        Raises `TypeError` or `ValueError`: it is neither, or on another context.
        """
        if isinstance(value, GpuArray):
            if value.context is not self._context:
                raise ValueError(
                    f"{method}: a parameter is on {value.context.name!r}, the generator on {self._context.name!r}: "
                    f"move it, x.to_device({self._context.name!r})"
                )
            if value.dtype.kind not in "biuf":
                raise TypeError(f"{method}: a parameter has dtype {value.dtype}, and parameters are real numbers")
            return value
        host = np.asarray(value)
        if host.dtype.kind not in "biuf":
            raise TypeError(f"{method}: a parameter is {value!r}, and parameters are real numbers or arrays of them")
        return host if host.ndim else host[()]

    def _result_shape(self, values: Sequence[Any], size: tuple[int, ...] | None) -> tuple[int, ...]:
        """Return the shape of a result.

        Raises `ValueError`: the size does not fit the parameters, or these do not broadcast.
        """
        common = np.broadcast_shapes(*(v.shape for v in values))
        if size is None:
            return common
        try:
            fits = np.broadcast_shapes(size, common) == size
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(f"Output size {size} is not compatible with broadcast dimensions of inputs {common}.")
        return size

    def _draw(self, call: _Call, size: Any = None, out: GpuArray | None = None) -> GpuArray:
        """Return the draws of a call, or `out` with them."""
        shape = _shape(size)
        if out is not None and shape is None:
            shape = out.shape
        parameters = [self._parameter(call.method, p) for p in call.parameters]
        are_numbers = all(map(_is_number, parameters))
        if are_numbers:  # arrays are checked by the kernel
            getattr(_checker(), call.method)(*parameters, size=0, **(call.options or {}))
        values = [self._parameter(call.method, v) for v in call.values]
        shape = self._result_shape(values, shape)
        if not prod(shape):
            result = self._context.empty(shape, call.dtype)
        elif call.is_zero and are_numbers:
            result = full(shape, 0, dtype=call.dtype, device=self._context.name)
        else:
            result = self._drawn(call, parameters, values, shape)
        return result if out is None else assign_result(call.method, out, result)

    def _drawn(self, call: _Call, parameters: Sequence[Any], values: Sequence[Any], shape: tuple[int, ...]) -> GpuArray:
        of_arrays = self._kind == "numpy" and call.distribution == "BinomialRV" and any(map(_is_array, values))
        routine = self._routine(call.distribution, call.dtype, of_arrays)
        if self._kind == "numpy":
            values = [
                self._context.from_host(np.asarray(v, "float64"))
                if isinstance(v, np.ndarray) and v.size > 1 and k in routine.distribution.free
                else v
                for k, v in enumerate(values)
            ]
        try:
            with self._lock:
                _, result = routine(self._generator, shape, *values)
        except _LeftToHost:
            self._check_on_host(call, parameters)
            raise self._no_kernel(call.method) from None
        return result

    def _routine(self, distribution: str, dtype: str, of_arrays: bool = False) -> Draw:
        return cached(
            (self._context, "random", self._kind, distribution, dtype, of_arrays),
            lambda: _routine(self._context, self._kind, distribution, dtype, of_arrays),
        )

    def _are_equal(self, first: Any, second: Any) -> bool:
        """Return whether a draw of NumPy's numbers takes two draws from one distribution.

        They are made as one stream. Where one begins in the stream of the quotients can only be found from its start.
        """
        return bool(self._kind == "numpy" and _is_number(first) and _is_number(second) and first == second)

    def _check_on_host(self, call: _Call, parameters: Sequence[Any]) -> None:
        """Raise NumPy's error if it refuses the parameters."""
        host = [np.asarray(p) if isinstance(p, GpuArray) else p for p in parameters]
        getattr(_checker(), call.method)(*host, **(call.options or {}))

    def _no_kernel(self, method: str, other: str | None = None) -> TypeError:
        """Return the error of a draw that has no kernel; `other`: the kind that has one."""
        what = f"{method} with these arguments has no OpenCL kernel"
        if self._kind == "numpy" and not is_known(self._generator):
            what = f"{method} has no OpenCL kernel for {type(self.bit_generator).__name__} (it has for PCG64)"
        other = other or ("philox" if self._kind == "numpy" else None)
        host = f"asarray(np.random.default_rng(seed).{method}(...)) draws on the host"
        if other == "philox":
            return TypeError(
                f"{what} that draws NumPy's numbers: default_rng(seed, kind='philox') draws other numbers on the "
                f"device, where it can; {host}"
            )
        if other == "numpy":
            return TypeError(f"{what} for kind='philox': default_rng(seed) draws on the device; {host}")
        return TypeError(f"{what}: {host}")

    # Uniform numbers and whole numbers

    def random(self, size: Any = None, dtype: DTypeLike = "float64", out: GpuArray | None = None) -> GpuArray:
        """Draw numbers from 0 to 1, without 1: float64 or float32."""
        options = {"dtype": _float_dtype("random", dtype)}
        if options["dtype"] == "float64":
            return self._draw(_Call("random", "UniformRV", (), (0.0, 1.0), options=options), size, out)
        if self._kind == "philox":
            return self._draw(_Call("random", "unit_float32", (), (), "float32", options), size, out)
        size = out.shape if size is None and out is not None else size
        drawn = self._draw(_Call("random", "random_float32", (), (0, 1 << 32), "float32", options), size)
        elementwise.multiply(drawn, np.float32(2.0**-24), out=drawn)
        return drawn if out is None else assign_result("random", out, drawn)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> GpuArray:
        """Draw from the uniform distribution from `low` to `high`."""
        return self._draw(_Call("uniform", "UniformRV", (low, high), (low, high)), size)

    def integers(
        self, low: Any, high: Any = None, size: Any = None, dtype: DTypeLike = "int64", endpoint: bool = False
    ) -> GpuArray:
        """Draw whole numbers from `low` to `high`, which is left out unless `endpoint`; without `high` from 0 to `low`.

        With ``kind="numpy"`` the limits are numbers, and the dtype has 32 or 64 bits. With ``kind="philox"`` they are
        numbers or arrays between -4e15 and 4e15, and the dtype is any.
        """
        dtype = np.dtype(dtype)
        low, high = (0, low) if high is None else (low, high)
        # The limits are read: NumPy's checks depend on the dtype.
        low, high = (np.asarray(self._parameter("integers", v)) for v in (low, high))
        shape = _shape(size)
        _checker().integers(low, high, None if low.ndim or high.ndim else 0, dtype, endpoint)
        call = _Call("integers", "IntegersRV", (), (_whole(low), _whole(high, endpoint)), str(dtype))
        shape = self._result_shape(call.values, shape)
        if not prod(shape):
            return self._context.empty(shape, dtype)
        if low.size == high.size == 1 and call.values[0].item() == call.values[1].item() - 1:
            return full(shape, low.item(), dtype=dtype, device=self._context.name)
        if self._kind == "numpy" and dtype not in _WIDE_INTEGERS:
            raise self._no_kernel("integers")
        limits = [int(getattr(v, name)()) for v in call.values for name in ("min", "max")]
        if self._kind == "philox" and max(map(abs, limits)) >= 4e15:
            raise self._no_kernel("integers", "numpy" if dtype in _WIDE_INTEGERS else None)
        if min(limits) < -(2**63) or max(limits) >= 2**63:
            raise self._no_kernel("integers", "none")
        values = [v.item() if not v.ndim else v.astype("int64") for v in call.values]
        return self._drawn(call._replace(parameters=(low, high)), (low, high), values, shape)

    # Continuous distributions

    def standard_normal(self, size: Any = None, dtype: DTypeLike = "float64", out: GpuArray | None = None) -> GpuArray:
        """Draw from the normal distribution with mean 0 and deviation 1; float32 with ``kind="philox"`` alone."""
        dtype = self._narrow("standard_normal", dtype)
        return self._draw(_Call("standard_normal", "NormalRV", (), (0.0, 1.0), dtype), size, out)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> GpuArray:
        """Draw from the normal distribution with mean `loc` and deviation `scale`."""
        return self._draw(_Call("normal", "NormalRV", (loc, scale), (loc, scale)), size)

    def lognormal(self, mean: Any = 0.0, sigma: Any = 1.0, size: Any = None) -> GpuArray:
        """Draw numbers whose logarithm is normal with mean `mean` and deviation `sigma`."""
        return self._draw(_Call("lognormal", "LogNormalRV", (mean, sigma), (mean, sigma)), size)

    def standard_exponential(
        self, size: Any = None, dtype: DTypeLike = "float64", method: str = "zig", out: GpuArray | None = None
    ) -> GpuArray:
        """Draw from the exponential distribution with mean 1; float32 with ``kind="philox"`` alone."""
        dtype = self._narrow("standard_exponential", dtype)
        name, values = ("ExponentialRV", (1.0,)) if method == "zig" else ("inverted_exponential", ())
        call = _Call("standard_exponential", name, (), values, dtype, {"method": method})
        return self._draw(call, size, out)

    def exponential(self, scale: Any = 1.0, size: Any = None) -> GpuArray:
        """Draw from the exponential distribution with mean `scale`."""
        return self._draw(_Call("exponential", "ExponentialRV", (scale,), (scale,)), size)

    def standard_gamma(
        self, shape: Any, size: Any = None, dtype: DTypeLike = "float64", out: GpuArray | None = None
    ) -> GpuArray:
        """Draw from the gamma distribution with mean `shape` and scale 1; float32 with ``kind="philox"`` alone."""
        dtype = self._narrow("standard_gamma", dtype)
        call = _Call("standard_gamma", "GammaRV", (shape,), (shape, 1.0), dtype, is_zero=_is_zero(shape))
        return self._draw(call, size, out)

    def gamma(self, shape: Any, scale: Any = 1.0, size: Any = None) -> GpuArray:
        """Draw from the gamma distribution with mean ``shape * scale``."""
        return self._draw(_Call("gamma", "GammaRV", (shape, scale), (shape, scale), is_zero=_is_zero(shape)), size)

    def chisquare(self, df: Any, size: Any = None) -> GpuArray:
        """Draw from the chi-square distribution with `df` degrees of freedom, which need not be whole."""
        return self._draw(_Call("chisquare", "GammaRV", (df,), (_half(df), 2.0)), size)

    def beta(self, a: Any, b: Any, size: Any = None) -> GpuArray:
        """Draw from the beta distribution, whose mean is ``a / (a + b)``."""
        if self._are_equal(a, b) and a > 1:
            pairs = self.standard_gamma(a, (*(_shape(size) or ()), 2))
            return pairs[..., 0] / (pairs[..., 0] + pairs[..., 1])
        return self._draw(_Call("beta", "BetaRV", (a, b), (a, b)), size)

    def f(self, dfnum: Any, dfden: Any, size: Any = None) -> GpuArray:
        """Draw from the F distribution with `dfnum` degrees of freedom in the numerator, `dfden` in the denominator."""
        if self._are_equal(dfnum, dfden) and dfnum > 0:
            pairs = self.chisquare(dfnum, (*(_shape(size) or ()), 2))
            return pairs[..., 0] * dfden / (pairs[..., 1] * dfnum)
        return self._draw(_Call("f", "f", (dfnum, dfden), (dfnum, dfden)), size)

    def standard_t(self, df: Any, size: Any = None) -> GpuArray:
        """Draw from Student's t distribution with `df` degrees of freedom."""
        return self._draw(_Call("standard_t", "StudentTRV", (df,), (df, 0.0, 1.0)), size)

    def standard_cauchy(self, size: Any = None) -> GpuArray:
        """Draw from the Cauchy distribution with mode 0 and scale 1."""
        pairs = self.standard_normal((*(_shape(size) or ()), 2))
        return pairs[..., 0] / pairs[..., 1]

    def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> GpuArray:
        """Draw from the Laplace distribution, whose density is ``exp(-abs(x - loc) / scale) / (2 * scale)``."""
        return self._draw(_Call("laplace", "LaplaceRV", (loc, scale), (loc, scale)), size)

    def logistic(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> GpuArray:
        """Draw from the logistic distribution with mean `loc` and deviation ``scale * pi / sqrt(3)``."""
        return self._draw(_Call("logistic", "LogisticRV", (loc, scale), (loc, scale)), size)

    def gumbel(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> GpuArray:
        """Draw from the Gumbel distribution of maxima with mode `loc` and scale `scale`."""
        return self._draw(_Call("gumbel", "gumbel", (loc, scale), (loc, scale)), size)

    def pareto(self, a: Any, size: Any = None) -> GpuArray:
        """Draw from the Pareto distribution that begins at 0, which is also called Lomax's."""
        return self._draw(_Call("pareto", "pareto", (a,), (a,)), size)

    def power(self, a: Any, size: Any = None) -> GpuArray:
        """Draw from 0 to 1 with a density that grows as the power ``a - 1``."""
        return self._draw(_Call("power", "power", (a,), (a,)), size)

    def weibull(self, a: Any, size: Any = None) -> GpuArray:
        """Draw from the Weibull distribution with shape `a` and scale 1."""
        return self._draw(_Call("weibull", "WeibullRV", (a,), (a,), is_zero=_is_zero(a)), size)

    def rayleigh(self, scale: Any = 1.0, size: Any = None) -> GpuArray:
        """Draw from the Rayleigh distribution with mode `scale`."""
        return self._draw(_Call("rayleigh", "rayleigh", (scale,), (scale,)), size)

    def triangular(self, left: Any, mode: Any, right: Any, size: Any = None) -> GpuArray:
        """Draw from the triangular distribution from `left` to `right`, whose mode is `mode`."""
        return self._draw(_Call("triangular", "TriangularRV", (left, mode, right), (left, mode, right)), size)

    def wald(self, mean: Any, scale: Any, size: Any = None) -> GpuArray:
        """Draw from the Wald, or inverse Gaussian, distribution with mean `mean` and variance ``mean**3 / scale``."""
        return self._draw(_Call("wald", "WaldRV", (mean, scale), (mean, scale)), size)

    def vonmises(self, mu: Any, kappa: Any, size: Any = None) -> GpuArray:
        """Draw angles from -pi to pi from the von Mises distribution with mode `mu` and concentration `kappa`."""
        return self._draw(_Call("vonmises", "VonMisesRV", (mu, kappa), (mu, kappa)), size)

    # Distributions of counts

    def poisson(self, lam: Any = 1.0, size: Any = None) -> GpuArray:
        """Draw from the Poisson distribution with mean `lam`."""
        return self._draw(_Call("poisson", "PoissonRV", (lam,), (lam,), "int64", is_zero=_is_zero(lam)), size)

    def binomial(self, n: Any, p: Any, size: Any = None) -> GpuArray:
        """Draw numbers of successes, whose probability is `p`, in `n` trials.

        With ``kind="numpy"`` arrays have a kernel where ``n * p`` is below 30.
        """
        n = _count("binomial", n)
        is_zero = _is_zero(n) or _is_zero(p)
        return self._draw(_Call("binomial", "BinomialRV", (n, p), (n, p), "int64", is_zero=is_zero), size)

    def negative_binomial(self, n: Any, p: Any, size: Any = None) -> GpuArray:
        """Draw numbers of failures before `n` successes, whose probability is `p`."""
        return self._draw(_Call("negative_binomial", "NegBinomialRV", (n, p), (n, p), "int64"), size)

    def geometric(self, p: Any, size: Any = None) -> GpuArray:
        """Draw numbers of trials until the first success, whose probability is `p`; at least 1."""
        return self._draw(_Call("geometric", "GeometricRV", (p,), (p,), "int64"), size)

    def hypergeometric(self, ngood: Any, nbad: Any, nsample: Any, size: Any = None) -> GpuArray:
        """Draw numbers of good items in samples of `nsample` of `ngood` good and `nbad` bad items."""
        parameters = tuple(_count("hypergeometric", n) for n in (ngood, nbad, nsample))
        return self._draw(_Call("hypergeometric", "HyperGeometricRV", parameters, parameters, "int64"), size)

    # Vectors, and elements of arrays

    def dirichlet(self, alpha: Any, size: Any = None) -> GpuArray:
        """Draw vectors of positive numbers whose sum is 1.

        `alpha`: a vector, which is read where it is on the device. With ``kind="numpy"`` its elements are equal.
        """
        shapes = np.asarray(alpha, "float64")
        _checker().dirichlet(shapes, 0)
        batch = _shape(size) or ()
        if not prod(batch) or not shapes.size:
            return self._context.empty((*batch, *shapes.shape), "float64")
        if self._kind == "numpy":
            try:
                with self._lock:
                    return self._routine("DirichletRV", "float64")(self._generator, batch, shapes)[1]
            except _LeftToHost:
                raise self._no_kernel("dirichlet") from None
        # A gamma number of a shape a is one of the shape a + 1 times a power of a uniform number: logarithms of small
        # shapes do not vanish.
        with self._lock:
            powers = elementwise.log(elementwise.subtract(1.0, self.random((*batch, shapes.size))))
            logs = elementwise.log(self.standard_gamma(shapes + 1.0, (*batch, shapes.size)))
        logs = logs + powers / self._context.from_host(shapes)
        weights = elementwise.exp(logs - greatest(logs, axis=-1, keepdims=True))
        return weights / total(weights, axis=-1, keepdims=True)

    def choice(
        self, a: Any, size: Any = None, replace: bool = True, p: Any = None, axis: int = 0, shuffle: bool = True
    ) -> GpuArray:
        """Draw elements of an array, or numbers below an integer.

        Parameters
        ----------
        a
            An array of the device or the host, or an integer for the numbers below it.
        size
            The shape of the result, in place of the dimension `axis` of `a`; None for one element.
        replace
            Whether an element may be drawn again. Without, ``kind="philox"`` is needed.
        p
            The probabilities: a vector, which is read where it is on the device. None for equal ones.
        axis
            The dimension of `a` along which there are elements.
        shuffle
            Ignored: the order is always random.
        """
        array = None if _is_number(a) else self._array("choice", a)
        length = (
            int(np.asarray(a).__index__()) if array is None else array.shape[normalize_axis_index(axis, array.ndim)]
        )
        shape = _shape(size)
        chances = _probabilities(p, length)
        count = prod(shape or ())
        if length <= 0 and count:
            raise ValueError("a must be a positive integer unless no samples are taken: it has no elements")
        chosen = self._chosen(length, shape or (), chances, replace)
        return chosen if array is None else take(array, chosen, axis=axis)

    def _chosen(self, length: int, shape: tuple[int, ...], p: np.ndarray | None, replace: bool) -> GpuArray:
        """Return indices of elements that are drawn."""
        count = prod(shape)
        if not count:
            return self._context.empty(shape, "int64")
        if replace:
            if p is None:
                return self.integers(0, length, shape)
            sums = p.cumsum()
            return searchsorted(self._context.from_host(sums / sums[-1]), self.random(shape), side="right")
        if count > length:
            raise ValueError("Cannot take a larger sample than population when replace is False")
        if p is not None and np.count_nonzero(p) < count:
            raise ValueError("Fewer non-zero entries in p than size")
        if self._kind == "numpy":
            raise self._no_kernel("choice")
        # The least of exponential numbers divided by the probabilities are a sample without replacement: P. S.
        # Efraimidis, P. G. Spirakis, Inf. Process. Lett. 97 (2006).
        keys = self.standard_exponential(length)
        if p is not None:
            keys = keys / self._context.from_host(p)
        return reshape(argsort(keys)[:count], shape)

    def permutation(self, x: Any, axis: int = 0) -> GpuArray:
        """Return an array in a random order along a dimension, or the numbers below an integer; ``kind="philox"``."""
        if _is_number(x):
            return self._order("permutation", int(np.asarray(x).__index__()))
        array = self._array("permutation", x)
        place = normalize_axis_index(axis, array.ndim)
        return take(array, self._order("permutation", array.shape[place]), axis=place)

    def shuffle(self, x: GpuArray, axis: int = 0) -> None:
        """Put the elements of a device array in a random order along a dimension, in place; ``kind="philox"``."""
        if not isinstance(x, GpuArray):
            raise TypeError(f"shuffle changes a GpuArray, not a {type(x).__name__}: take permutation")
        self._check_context("shuffle", x)
        check_writable(x)
        place = normalize_axis_index(axis, x.ndim)
        order = self._order("shuffle", x.shape[place])
        copy_into(x, take(x, order, axis=place))

    def permuted(self, x: Any, *, axis: int | None = None, out: GpuArray | None = None) -> GpuArray:
        """Return an array of which each vector along a dimension is in an order of its own; ``kind="philox"``.

        `axis`: None permutes all elements.
        """
        array = self._array("permuted", x)
        if self._kind == "numpy":
            raise self._no_kernel("permuted")
        rows = reshape(array, (-1,)) if axis is None else array
        orders = argsort(self.random(rows.shape), axis=-1 if axis is None else axis)
        result = reshape(take_along_axis(rows, orders, axis=-1 if axis is None else axis), array.shape)
        return result if out is None else assign_result("permuted", out, result)

    def _array(self, method: str, x: Any) -> GpuArray:
        """Return an array of the context. Raises `ValueError`: it is on another one."""
        if not isinstance(x, GpuArray):
            return asarray(x, device=self._context.name)
        self._check_context(method, x)
        return x

    def _check_context(self, method: str, x: GpuArray) -> None:
        if x.context is not self._context:
            raise ValueError(
                f"{method}: the array is on {x.context.name!r}, the generator on {self._context.name!r}: move the "
                f"array, x.to_device({self._context.name!r})"
            )

    def _order(self, method: str, length: int) -> GpuArray:
        if self._kind == "numpy":
            raise self._no_kernel(method)
        return argsort(self.random(length))

    def _narrow(self, method: str, dtype: DTypeLike) -> str:
        """Return the dtype of floating-point numbers that are drawn in double precision.

        Raises `TypeError`: it is float32, for which NumPy has an algorithm of its own, or none of both.
        """
        name = _float_dtype(method, dtype)
        if name == "float32" and self._kind == "numpy":
            raise self._no_kernel(method)
        return name


def _refused(method: str) -> Callable[..., Any]:
    def refuse(self: Generator, *arguments: Any, **options: Any) -> Any:
        raise self._no_kernel(method, "none")

    refuse.__name__ = method
    refuse.__doc__ = f"Raise `TypeError`: there is no kernel; `numpy.random.Generator.{method}` draws on the host."
    return refuse


for _method in (
    "bytes",
    "logseries",
    "multinomial",
    "multivariate_hypergeometric",
    "multivariate_normal",
    "noncentral_chisquare",
    "noncentral_f",
    "zipf",
):
    setattr(Generator, _method, _refused(_method))


if not TYPE_CHECKING:  # with it, type checkers would take every name for one of this module

    def __getattr__(name: str) -> NoReturn:
        raise_missing(__name__, name)
