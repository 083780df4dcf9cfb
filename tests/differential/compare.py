"""Run a function of mode OPENCL, call by call, and find what differs from what it must be."""

import warnings
from dataclasses import dataclass, field

import numpy as np
import pytensor
from pytensor.compile.mode import Mode

from tests.differential.data import with_other_strides
from tests.differential.graph import CALLS, Raised

HOSTS = {"py": lambda: Mode("py", "fast_run"), "fast_compile": lambda: "FAST_COMPILE", "numba": lambda: "NUMBA"}
"""Modes of PyTensor itself: some of its rewrites change values or raise, for instance for no elements."""


@dataclass(repr=False)
class Program:
    """A program, as functions of a graph.

    Attributes
    ----------
    inputs, shared
        Variables with a value for each call.
    results
        The outputs, as `Term`.
    updates
        From a shared variable to a `Term`.
    """

    inputs: list
    shared: list
    results: list
    updates: dict
    rng: np.random.Generator
    tolerated: list = field(default_factory=list)

    def __repr__(self):
        return pytensor.dprint([term.variable for term in self.results], print_type=True, file="str")

    def compile(self, mode):
        """Return a function of the program."""
        return pytensor.function(
            [variable for variable, _ in self.inputs],
            [term.variable for term in self.results],
            updates=[(shared, term.variable) for shared, term in self.updates.items()],
            mode=mode,
            on_unused_input="ignore",
        )


def is_same(got, expected, rtol, scale):
    """Return whether a result has the dtype, the shape and, to rounding, the values that it must have."""
    got, expected = np.asarray(got), np.asarray(expected)
    if (got.dtype, got.shape) != (expected.dtype, expected.shape):
        return False
    if expected.dtype.kind not in "fc":
        return np.array_equal(got, expected)
    wide = "complex128" if expected.dtype.kind == "c" else "float64"
    with np.errstate(all="ignore"):
        return np.allclose(got.astype(wide), expected.astype(wide), rtol=rtol, atol=rtol * scale, equal_nan=True)


def _call(function, program, call, arguments):
    """Outputs and updates of one call, or what it raises; shared variables get their values before, and after, it."""
    for shared, values in program.shared:
        shared.set_value(np.array(values[call]))
    try:
        outputs = function(*arguments)
    except Exception as error:
        return error
    finally:
        updated = [shared.get_value() for shared in program.updates]
    return [*outputs, *updated]


def _terms(program):
    return [*program.results, *program.updates.values()]


def _agrees(got, terms, call):
    """None if the values are right; else what is wrong."""
    raised = [term.values[call].error for term in terms if term.fails and isinstance(term.values[call], Raised)]
    if raised:
        fits = isinstance(got, Exception) and any(type(got) is type(error) for error in raised)
        return None if fits else f"{raised[0]!r} expected; got {got!r}"
    if isinstance(got, Exception):
        return f"raised {got!r}"
    for i, (value, term) in enumerate(zip(got, terms, strict=True)):
        if not is_same(value, term.values[call], term.rtol, term.scales[call]):
            return f"output {i} ({term.variable.owner})\ngot\n{np.asarray(value)!r}\nexpected\n{term.values[call]!r}"
    return None


def _is_like(got, host, terms, call):
    """Return whether the device did what a host did."""
    if isinstance(got, Exception) or isinstance(host, Exception):
        return type(got) is type(host)
    return all(is_same(g, h, t.rtol, t.scales[call]) for g, h, t in zip(got, host, terms, strict=True))


def _host_that_agrees(program, got, call, arguments):
    for name, mode in HOSTS.items():
        with pytensor.config.change_flags(opencl__placement="host"):
            try:
                host = _call(program.compile(mode()), program, call, arguments)
            except Exception:  # PyTensor cannot compile it
                continue
        if _is_like(got, host, _terms(program), call):
            return name
    return None


def run(program, placement):
    """Return what is wrong with a program on the device, or None.

    Parameters
    ----------
    program
        A `Program`; what PyTensor itself gets wrong alike is added to its `tolerated`.
    placement
        Value of the flag ``opencl__placement``.
    """
    with warnings.catch_warnings(), pytensor.config.change_flags(opencl__placement=placement):
        warnings.simplefilter("ignore")  # of the references: overflow, empty means, deprecated calls
        function = program.compile("OPENCL")
        for call in (*range(CALLS), 0):
            arguments = [values[call] for _, values in program.inputs]
            if call:
                arguments = [with_other_strides(value, program.rng) for value in arguments]
            wrong = _check_call(function, program, call, arguments)
            if wrong is not None:
                return f"call {call}: {wrong}\n{report(function)}"
    return None


def _check_call(function, program, call, arguments):
    before = [value.tobytes() for value in arguments]
    got = _call(function, program, call, arguments)
    changed = [i for i, value in enumerate(arguments) if value.tobytes() != before[i]]
    if changed:
        return f"arguments {changed} have been changed"
    wrong = _agrees(got, _terms(program), call)
    if wrong is None:
        return None
    host = _host_that_agrees(program, got, call, arguments)
    if host is None:
        return wrong
    program.tolerated.append(f"{host}: {wrong}")
    return None


def report(function):
    """The graph that ran."""
    return pytensor.dprint(function, print_type=True, file="str")
