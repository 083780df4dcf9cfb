"""C statements of short Fourier transforms, the butterflies of a fast transform; all unrolled."""

from math import cos, pi, sin

from pytensor_cl.codegen.dtypes import literal

RADICES = (8, 4, 2, 3, 5, 7, 11, 13)
"""Lengths for which there is a butterfly, in the order in which a length is divided by them."""

Complex = tuple[str, str]  # names of the real and of the imaginary part


class _Writer:
    """Collects statements; each result has a name of its own."""

    def __init__(self, dtype: str, vector: str) -> None:
        self._dtype, self._vector = dtype, vector
        self._statements: list[str] = []

    def let(self, real: str, imaginary: str) -> Complex:
        """Name two results."""
        k = len(self._statements)
        self._statements.append(f"const {self._vector} u{k} = {real}, v{k} = {imaginary};")
        return f"u{k}", f"v{k}"

    def number(self, value: float) -> str:
        """Return a literal."""
        return literal(value, self._dtype)

    def text(self, outputs: list[Complex]) -> str:
        """Return the statements, the last of which assign the outputs."""
        stores = [f"r{k} = {u}; i{k} = {v};" for k, (u, v) in enumerate(outputs)]
        return "\n".join((*self._statements, *stores))


def _rotate(writer: _Writer, x: Complex, turn: float) -> Complex:
    """Multiply by ``exp(-2 pi i turn)`` for a turn below a half."""
    real, imaginary = x
    if turn == 0:
        return x
    if turn == 0.25:
        return writer.let(imaginary, f"-{real}")
    c, s = writer.number(cos(2 * pi * turn)), writer.number(sin(2 * pi * turn))
    if turn == 0.125:
        return writer.let(f"{c} * ({real} + {imaginary})", f"{c} * ({imaginary} - {real})")
    if turn == 0.375:
        return writer.let(f"{s} * ({imaginary} - {real})", f"-{s} * ({real} + {imaginary})")
    return writer.let(f"{real} * {c} + {imaginary} * {s}", f"{imaginary} * {c} - {real} * {s}")


def _even(writer: _Writer, x: list[Complex]) -> list[Complex]:
    """Halve: sums become the outputs of even number, rotated differences those of odd number."""
    half = len(x) // 2
    if len(x) % 2:
        return _odd(writer, x) if half else x
    sums, differences = [], []
    for k, ((a, b), (c, d)) in enumerate(zip(x[:half], x[half:], strict=True)):
        sums.append(writer.let(f"{a} + {c}", f"{b} + {d}"))
        differences.append(_rotate(writer, writer.let(f"{a} - {c}", f"{b} - {d}"), k / len(x)))
    pairs = zip(_even(writer, sums), _even(writer, differences), strict=True)
    return [output for pair in pairs for output in pair]


def _odd(writer: _Writer, x: list[Complex]) -> list[Complex]:
    """Pair input k with input -k: the cosine part needs their sum, the sine part their difference."""
    n, half = len(x), range(1, len(x) // 2 + 1)
    sums = [writer.let(f"{x[k][0]} + {x[-k][0]}", f"{x[k][1]} + {x[-k][1]}") for k in half]
    gaps = [writer.let(f"{x[k][0]} - {x[-k][0]}", f"{x[k][1]} - {x[-k][1]}") for k in half]
    outputs = [writer.let(*(" + ".join((x[0][p], *(s[p] for s in sums))) for p in (0, 1)))] * n
    for q in half:
        turns = [2 * pi * (q * k % n) / n for k in half]
        cosines, sines = ([writer.number(f(t)) for t in turns] for f in (cos, sin))
        parts = [[f"{s[p]} * {c}" for s, c in zip(sums, cosines, strict=True)] for p in (0, 1)]
        even = writer.let(" + ".join((x[0][0], *parts[0])), " + ".join((x[0][1], *parts[1])))
        crossed = [[f"{g[p]} * {s}" for g, s in zip(gaps, sines, strict=True)] for p in (1, 0)]
        odd = writer.let(" + ".join(crossed[0]), " + ".join(crossed[1]))
        outputs[q] = writer.let(f"{even[0]} + {odd[0]}", f"{even[1]} - {odd[1]}")
        outputs[n - q] = writer.let(f"{even[0]} - {odd[0]}", f"{even[1]} + {odd[1]}")
    return outputs


def butterfly(radix: int, dtype: str, vector: str) -> str:
    """Return statements that transform ``r0, i0, r1, i1...`` in place, forward.

    `radix`: length of the transform: odd, or a power of two times an odd number; `vector`: C type of the variables.
    """
    writer = _Writer(dtype, vector)
    x = [(f"r{k}", f"i{k}") for k in range(radix)]
    return writer.text((_odd if radix % 2 else _even)(writer, x))
