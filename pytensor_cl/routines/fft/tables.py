"""Constants of Fourier transforms, computed in double precision."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pytensor_cl.routines.base.limits import KEPT_BYTES
from pytensor_cl.routines.base.routine import DeviceTables
from pytensor_cl.routines.fft.limits import TABLE_PADDING
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context


class Table(NamedTuple):
    """Key of a table: the name of a function of this file, and its arguments."""

    name: str
    arguments: tuple[int, ...]


def roots(n: int, powers: np.ndarray) -> np.ndarray:
    """Return ``exp(-2 pi i k / n)`` for integers k, to the last bit where it is a quarter turn."""
    powers = powers % n
    quarters = (4 * powers + n // 2) // n
    angle = (np.pi / 2) * ((4 * powers - quarters * n) / n)
    return (np.cos(angle) - 1j * np.sin(angle)) * np.array([1, -1j, -1, 1j])[quarters % 4]


def half_turns(n: int) -> np.ndarray:
    """Return w_2n^k, k = 0..n: what joins a spectrum of 2n real numbers with one of n complex numbers."""
    return roots(2 * n, np.arange(n + 1))


def factors(*radices: int) -> np.ndarray:
    """Return the twiddle factors of the passes, one after the other."""
    n, parts = int(np.prod(radices)), [np.empty(0, complex)]
    for radix in radices:
        parts.append(roots(n, np.outer(np.arange(n // radix), np.arange(1, radix))).ravel())
        n //= radix
    return np.concatenate(parts)


def register_factors(*radices: int) -> np.ndarray:
    """Return the twiddle factors of the passes but the first: of each, one row for each element but the first."""
    done, parts = radices[0], []
    for radix in radices[1:]:
        parts.append(roots(done * radix, np.outer(np.arange(1, radix), np.arange(done))).ravel())
        done *= radix
    return np.concatenate(parts)


def chirp(n: int) -> np.ndarray:
    """Return ``exp(-pi i k^2 / n)``, k = 0..n-1."""
    k = np.arange(n)
    return roots(2 * n, k * k % (2 * n))


def chirp_filter(n: int, size: int) -> np.ndarray:
    """Return the spectrum of the conjugate chirp, scaled by the length of the convolution."""
    response, inverse = np.zeros(size, complex), chirp(n).conj()
    response[:n] = inverse
    response[size - n + 1 :] = inverse[:0:-1]
    return np.fft.fft(response) / size


def block_twiddles(n: int, lines: int, count: int, lanes: int) -> np.ndarray:
    """Return ``w_n^(k line)`` for the first line of each block: one row of k = 0..count-1 per block."""
    return roots(n, np.outer(np.arange(0, lines, lanes), np.arange(count))).ravel()


def lane_twiddles(n: int, count: int, lanes: int) -> np.ndarray:
    """Return ``w_n^(k lane)``: per k the lanes' real parts, then their imaginary parts."""
    values = roots(n, np.outer(np.arange(count), np.arange(lanes)))
    parts = np.stack([values.real, values.imag], axis=1)
    return parts.ravel().view(complex)


_TABLES: dict[str, Callable[..., np.ndarray]] = {
    f.__name__: f for f in (half_turns, factors, register_factors, chirp, chirp_filter, block_twiddles, lane_twiddles)
}


def host_table(table: Table) -> np.ndarray:
    """Return a table as complex128, with `PADDING` zeros after it."""
    values = _TABLES[table.name](*table.arguments)
    return np.concatenate([values, np.zeros(TABLE_PADDING, complex)])


def device_table(context: Context, dtype: str, table: Table) -> GpuArray:
    """Return a table on a device: real and imaginary parts in turn. The context keeps those that were used last."""
    kept = context.tables.setdefault("fft", DeviceTables(KEPT_BYTES))
    (found,) = kept.lookup(
        (dtype, table), lambda: (context.from_host(host_table(table).view("float64").astype(dtype)),)
    )
    return found
