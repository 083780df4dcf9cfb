"""Write docs/numpy-functions.md: what takes the place of NumPy's functions in `pytensor_cl.array`.

usage: python tools/numpy_table.py [--check]

The lists are made of NumPy's public functions and of the namespace. With ``--check`` nothing is written: the exit
status is 1 if the page differs, unless NumPy has another version than that of the page.
"""

import argparse
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import pytensor_cl.array as xp  # noqa: E402
from pytensor_cl.array.numpy_names import _NAMES_HERE  # noqa: E402
from pytensor_cl.array.protocols import FUNCTIONS  # noqa: E402

PAGE = ROOT / "docs" / "numpy-functions.md"
MODULES = {"": (np, xp), "linalg.": (np.linalg, xp.linalg), "fft.": (np.fft, xp.fft)}

WRITE = {
    "append": "xp.concat([x, y])",
    "argpartition": "xp.argsort(x)",
    "array_equiv": "xp.all(x == y)",
    "atleast_3d": "x[..., None]",
    "block": "xp.concat([xp.concat([a, b], axis=1), xp.concat([c, d], axis=1)])",
    "cbrt": "xp.sign(x) * xp.abs(x) ** (1 / 3)",
    "choose": "xp.where(i == 0, a, b)",
    "compress": "x[mask]",
    "cov": "d = x - xp.mean(x, axis=1, keepdims=True); d @ d.T / (x.shape[1] - 1)",
    "cross": "xp.linalg.cross(x, y)",
    "deg2rad": "x * (xp.pi / 180)",
    "degrees": "x * (180 / xp.pi)",
    "delete": "x[mask]",
    "diag": "xp.diagonal(a), xp.eye(x.size) * x",
    "diagflat": "xp.eye(x.size) * x.ravel()",
    "digitize": "xp.searchsorted(edges, x, side='right')",
    "ediff1d": "xp.diff(x.ravel())",
    "extract": "x[mask]",
    "fill_diagonal": "i = xp.arange(len(a)); a[i, i] = value",
    "fmax": "xp.where(xp.isnan(x), y, xp.where(xp.isnan(y), x, xp.maximum(x, y)))",
    "fmin": "xp.where(xp.isnan(x), y, xp.where(xp.isnan(y), x, xp.minimum(x, y)))",
    "geomspace": "xp.exp(xp.linspace(math.log(start), math.log(stop), n))",
    "heaviside": "xp.where(x == 0, y, xp.where(x > 0, 1.0, 0.0))",
    "identity": "xp.eye(n)",
    "indices": "xp.meshgrid(xp.arange(m), xp.arange(n), indexing='ij')",
    "isneginf": "x == -xp.inf",
    "isposinf": "x == xp.inf",
    "iscomplex": "xp.imag(x) != 0",
    "isreal": "xp.imag(x) == 0",
    "ldexp": "x * xp.exp2(y)",
    "lexsort": "i = xp.argsort(keys[0]); i = i[xp.argsort(keys[1][i])]",
    "logspace": "10 ** xp.linspace(start, stop, n)",
    "logaddexp2": "xp.logaddexp(x * math.log(2), y * math.log(2)) / math.log(2)",
    "matvec": "xp.matmul(a, x[..., None])[..., 0]",
    "modf": "xp.trunc(x), x - xp.trunc(x)",
    "nanprod": "xp.prod(xp.where(xp.isnan(x), 1.0, x))",
    "partition": "xp.sort(x)",
    "place": "x[mask] = values",
    "put": "x[i] = values",
    "putmask": "x[mask] = value",
    "rad2deg": "x * (180 / xp.pi)",
    "radians": "x * (xp.pi / 180)",
    "rollaxis": "xp.moveaxis(x, axis, 0)",
    "rot90": "xp.flip(xp.matrix_transpose(a), axis=0)",
    "select": "xp.where(mask, x, xp.where(other, y, default))",
    "sinc": "xp.where(x == 0, 1.0, xp.sin(xp.pi * x) / (xp.pi * x))",
    "trapezoid": "xp.sum((y[1:] + y[:-1]) / 2 * xp.diff(x))",
    "tri": "xp.tril(xp.ones((n, n)))",
    "union1d": "xp.unique_values(xp.concat([x, y]))",
    "vander": "x[:, None] ** xp.arange(n)[::-1]",
    "vdot": "xp.sum(xp.conj(x.ravel()) * y.ravel())",
    "vecmat": "xp.matmul(xp.conj(x)[..., None, :], a)[..., 0, :]",
    "linalg.cond": "s = xp.linalg.svdvals(a); s[0] / s[-1]",
    "linalg.multi_dot": "a @ b @ c",
}
"""Expressions that compute the same on the device, for functions that the namespace does not have."""

GROUPS = {
    "Files and text": """array2string array_repr array_str base_repr binary_repr format_float_positional
        format_float_scientific fromfile fromregex fromstring genfromtxt info loadtxt save savetxt savez
        savez_compressed""",
    "Settings of NumPy": """get_include get_printoptions getbufsize geterr geterrcall setbufsize seterr seterrcall
        show_config show_runtime test""",
    "dtypes and dates": """busday_count busday_offset common_type datetime_as_string datetime_data is_busday isnat
        issubdtype min_scalar_type mintypecode promote_types typename""",
    "Functions of Python": """apply_along_axis apply_over_axes fromfunction frompyfunc iterable nested_iters piecewise
        require""",
    "Windows and index arrays": """bartlett blackman diag_indices diag_indices_from hamming hanning ix_ kaiser
        mask_indices ravel_multi_index tril_indices tril_indices_from triu_indices triu_indices_from unravel_index""",
    "Polynomials": "poly polyadd polyder polydiv polyfit polyint polymul polysub polyval roots",
    "Classes of the host": "asanyarray asarray_chkfinite asmatrix bmat",
}
"""Functions that are for the host, by subject."""
REASONS = {
    "Files and text": "functions that print or write copy a device array to the host; what is read is uploaded with "
    "`xp.asarray`",
    "Settings of NumPy": "they are about NumPy itself",
    "dtypes and dates": "they take dtypes: `np.promote_types(r.dtype, s.dtype)`; devices have no dates",
    "Functions of Python": "they call a function of Python for each part; a device runs "
    "[kernels](own-kernels.md) and [graphs](first-steps.md)",
    "Windows and index arrays": "the host makes them, and they are uploaded once: `xp.asarray(np.hanning(n))`",
    "Polynomials": "coefficients are few numbers, for the host; values are a loop, `y = y * x + c`",
    "Classes of the host": "`xp.asarray` makes device arrays; there are no matrices with another `*`",
}

PAGE_TEXT = """# NumPy's functions, one by one

<!-- written by tools/numpy_table.py: do not edit -->

This page says for each function of NumPy {version} what there is in `pytensor_cl.array`, called `xp` here. CuPy has
NumPy's names, so the page is also for its users. What behaves differently is on the page
[what is different here](differences.md).

A function that is missing raises an `AttributeError`, which says what to write. `np.f(r)` of a device array `r` calls
`xp.f` where there is one, and else raises a `TypeError`.

## The same name

{same}

## Another name

{other}

## As a function of NumPy only

These take device arrays, but the namespace has no function of the name: {protocol}.

## What to write

These compute on the device what NumPy's function does.

{write}

## No kernel

These are computed on the host, `np.interp(np.asarray(r), ...)`: {missing}.

In a [compiled function](first-steps.md) PyTensor's Ops take the place of some of them, such as `pt.convolve1d` and
`pt.unravel_index` ([coverage](coverage.md)).

## For the host alone

{host}

## Random numbers

`xp.random.default_rng(seed)` makes a generator with the methods of `numpy.random.Generator`.
[Random numbers](arrays-random.md) says which of them draw on the device. There is no global generator: `seed`, `rand`
and `normal` of `numpy.random` are missing.

## Methods of arrays

`GpuArray` has all methods and properties of `numpy.ndarray` but {methods}.
"""


def listed(names: Iterable[str]) -> str:
    """Return names as a list in Markdown."""
    return ", ".join(f"`{name}`" for name in names)


def wrapped(text: str) -> str:
    """Return a page whose paragraphs have lines of at most 120 characters."""
    lines = (
        line if line.startswith("|") else textwrap.fill(line, 120, break_long_words=False, break_on_hyphens=False)
        for line in text.splitlines()
    )
    return "\n".join(lines) + "\n"


def table(head: tuple[str, str], rows: dict[str, str]) -> str:
    """Return a table of two columns."""
    lines = [f"| `{name}` | {text} |" for name, text in rows.items()]
    return "\n".join([f"| {head[0]} | {head[1]} |", "|---|---|", *lines])


def page() -> str:
    """Return the page."""
    same: dict[str, list[str]] = {}
    other: dict[str, str] = {}
    write: dict[str, str] = {}
    protocol: list[str] = []
    missing: list[str] = []
    for_host = {name: group for group, names in GROUPS.items() for name in names.split()}
    for prefix, (theirs, ours) in MODULES.items():
        for name in sorted(theirs.__all__, key=str.lower):
            function = getattr(theirs, name)
            if not callable(function) or isinstance(function, type):
                continue
            if name in ours.__all__:
                same.setdefault(prefix, []).append(name)
            elif name in _NAMES_HERE.get(ours.__name__, {}):
                here, comma, more = _NAMES_HERE[ours.__name__][name].partition(", which")
                other[prefix + name] = f"`{here}`{comma}{more}".replace(" or ", "` or `")
            elif prefix + name in WRITE:
                write[prefix + name] = f"`{WRITE[prefix + name]}`"
            elif function in FUNCTIONS or name == "divmod":
                protocol.append(prefix + name)
            elif name not in for_host:
                missing.append(prefix + name)
    parts = {"": "`numpy`", "linalg.": "`numpy.linalg`", "fft.": "`numpy.fft`"}
    hosts = {name for name in for_host if hasattr(np, name)}
    methods = [name for name in dir(np.ndarray) if not name.startswith("_") and not hasattr(xp.GpuArray, name)]
    text = PAGE_TEXT.format(
        version=".".join(np.__version__.split(".")[:2]),
        same="\n\n".join(f"{parts[prefix]}: {listed(names)}." for prefix, names in same.items()),
        other=table(("NumPy", "here"), other),
        protocol=listed(protocol),
        write=table(("NumPy", "here"), write),
        missing=listed(missing),
        host="\n".join(
            ["| | functions | |", "|---|---|---|"]
            + [
                f"| {group} | {listed(name for name in names.split() if name in hosts)} | {REASONS[group]} |"
                for group, names in GROUPS.items()
            ]
        ),
        methods=listed(methods),
    )
    return wrapped(text)


def main() -> int:
    """Write or compare the page; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    text = page()
    if parser.parse_args().check:
        kept = PAGE.read_text()
        first = text.partition("\n## ")[0]
        return int(first in kept and kept != text)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
