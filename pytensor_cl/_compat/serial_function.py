"""Functions that run one call at a time, also if several threads call them."""

import ast
import copyreg
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import wraps
from typing import Any

from pytensor.compile.executor import Function
from pytensor.compile.maker import FunctionMaker
from pytensor.graph.type import Type

_ADAPTED_CALL = """
def __call__(self, *args, **kwargs):
    accepted_types = self.vm.accepted_types
    for value in args:
        if type(value) not in accepted_types:
            return self.call_adapted(args, kwargs)
    if kwargs:
        for value in kwargs.values():
            if type(value) not in accepted_types:
                return self.call_adapted(args, kwargs)
"""
"""The beginning of a call: arguments that are no arrays or numbers of the host are adapted first (`adapt`). PyTensor's
TensorType would download a device array, and take minutes for one of pyopencl. For two arguments this takes 0.08 us;
`zip` with a set for each argument took 0.35 us."""
_SERIAL_CALL = """
def __call__(self, *args, **kwargs):
    call_lock = self.vm.call_lock
    while call_lock.held:
        run = call_lock.wait(self)
        if run is not None:
            return run(*args, **kwargs)
        call_lock = self.vm.call_lock
    call_lock.held = True
    try:
        ...
    finally:
        call_lock.held = False
        if call_lock.waiting:
            call_lock.notify()
"""
"""A call that takes a lock of the function first. Between the last test of `held` and the line that sets it, CPython
switches no thread and handles no signal: it does so at the start of functions, after calls and at the end of loop
bodies. In a call of 0.9 us this takes 0.04 us. An RLock here takes 0.2 us, and in a method that calls the original
one 0.43 us (docs/design/008-backend-selection.md)."""


def _body_of(method: Callable[..., Any]) -> tuple[list[ast.stmt], int] | None:
    """Return the statements and the first line of a method ``(self, *args, **kwargs)``; None without source."""
    try:
        lines, first = inspect.getsourcelines(method)
        found = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (OSError, TypeError, SyntaxError):  # there is no source
        return None
    if not isinstance(found, ast.FunctionDef) or found.decorator_list or method.__code__.co_freevars:
        return None
    if ast.unparse(found.args) != "self, *args, **kwargs":
        return None
    return found.body, first


def _with_lock(method: Callable[..., Any], beginning: str = "") -> Callable[..., Any]:
    """Return `Function.__call__` with its statements inside `_SERIAL_CALL`, after the statements of `beginning`.

    A method that calls the original one needs a second Python frame, a tenth of the time of a small function. It is
    returned only where the source is missing.
    """
    tree, space, file = ast.parse(_SERIAL_CALL), method.__globals__, method.__code__.co_filename
    definition: Any = tree.body[0]
    found = _body_of(method)
    if found is None:
        body, space, file = ast.parse("return method(self, *args, **kwargs)").body, {"method": method}, __file__
    else:
        body, first = found
        for statement in body:
            ast.increment_lineno(statement, first - 1)
    definition.body[-1].body = body
    if beginning:
        definition.body[:0] = ast.parse(beginning).body[0].body  # type: ignore[attr-defined]
    made: dict[str, Any] = {}
    exec(compile(tree, file, "exec"), space, made)
    return wraps(method)(made["__call__"])


class SerialFunction(Function):
    """A function that runs one call at a time, because PyTensor stores arguments and results in the function.

    The lock is the attribute `call_lock` of its virtual machine, and `accepted_types` the types of arguments that it
    takes as they are.
    """

    __slots__ = ()

    __call__ = _with_lock(Function.__call__, _ADAPTED_CALL)
    _call_accepted = _with_lock(Function.__call__)
    adapt: Callable[..., tuple["SerialFunction", Sequence[Any], Mapping[str, Any]]]
    """Returns the function and the arguments to call it with, in place of a function and other arguments."""

    def call_adapted(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run a call whose arguments may be arrays of other libraries, or of a device."""
        function, args, kwargs = self.adapt(self, args, kwargs)
        return function._call_accepted(*args, **kwargs)

    def __repr__(self) -> str:
        """Return the same text as PyTensor's functions."""
        return f"<{Function.__module__}.{Function.__qualname__} object at {id(self):#x}>"

    def call_unlocked(self, *args: Any, **kwargs: Any) -> Any:
        """Run a call in a thread that holds the lock."""
        return Function.__call__(self, *args, **kwargs)

    def free(self) -> None:
        """Free intermediate results between calls, while no call runs."""
        call_lock = self.vm.call_lock
        while call_lock.held:
            run = call_lock.wait(self, super().free)
            if run is not None:
                run()
                return
            call_lock = self.vm.call_lock
        call_lock.held = True
        try:
            super().free()
        finally:
            call_lock.held = False
            if call_lock.waiting:
                call_lock.notify()


_reduce_function: Any = copyreg.dispatch_table[Function]


def _reduce(function: SerialFunction) -> tuple[Any, ...]:
    """Reduce a function for pickle without the arguments of a call that another thread makes at the same time."""
    constructor, (maker, containers, values, trust_input) = _reduce_function(function)
    stored = []
    for container in containers:
        if container.required:
            container = copy(container)
            container.storage = [None]
        stored.append(container)
    # PyTensor compares the values with the containers', which a call may change before they are written.
    return constructor, (maker, stored, [None] * len(values), trust_input)


copyreg.pickle(SerialFunction, _reduce)


def serialise_calls(
    vm_type: type,
    prepare: Callable[[SerialFunction], None],
    accepted_types: Callable[[Sequence[Type]], frozenset[type]],
    adapt: Callable[..., tuple[SerialFunction, Sequence[Any], Mapping[str, Any]]],
) -> None:
    """Make every function with a virtual machine of a class a `SerialFunction`; `prepare` gives it a `call_lock`.

    `accepted_types` returns the types of arguments that a function whose inputs have some Types takes as they are;
    `adapt` is called with the function and its arguments if there are others.
    """
    SerialFunction.adapt = staticmethod(adapt)
    create = FunctionMaker.create

    @wraps(create)
    def create_serial(self: FunctionMaker, *args: Any, **kwargs: Any) -> Function:
        made = create(self, *args, **kwargs)
        if type(made) is Function and isinstance(made.vm, vm_type):
            made.__class__ = SerialFunction
            vm: Any = made.vm
            vm.accepted_types = accepted_types([c.type for c in made.input_storage if not c.implicit])
            prepare(made)
        return made

    FunctionMaker.create = create_serial
