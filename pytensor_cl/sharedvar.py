"""Shared variables: storage that transfers the value between host and devices, and device-resident variables.

A plain ``pytensor.shared`` stays a `TensorSharedVariable`. Its storage becomes a `DeviceCell`: a list of one element
for other code, and the value on their device for functions of mode OPENCL. It is transferred when it is read.
"""

import copy
import sys
from collections.abc import Callable, Sequence
from threading import RLock
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable, shared_constructor
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.type import TensorType

from pytensor_cl.forks import at_fork
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.interchange import on_device
from pytensor_cl.runtime.registry import get_context
from pytensor_cl.type import GpuArrayType, is_value_of
from pytensor_cl.variable import GpuArrayVariable


class _OnDevice:
    """The list's element while the value is on a device, so that C code that reads it raises an error."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<the value is on an OpenCL device>"


ON_DEVICE = _OnDevice()
_state = RLock()
"""Held while a cell's host and device copies change. One lock serves all cells: it is held for microseconds."""


def _after_fork() -> None:
    global _state
    _state = RLock()  # another thread of the parent may have held it


at_fork(after_in_child=_after_fork)


class DeviceCell(list[Any]):
    """Storage of a shared variable: a host copy, device copies, or both.

    Without a device copy it is an ordinary list of one element, for C code too. A reader of element 0 may change the
    array in place, so reading drops the device copies.

    Parameters
    ----------
    value
        The value on the host.
    dtype
        dtype of the device copies; JAX may store another one on the host.

    Attributes
    ----------
    devices
        The device copies by the names of their contexts. While there are any, the list holds no array.
    """

    __slots__ = ("_dtype", "_host", "_is_lent", "_is_referenced", "_used", "devices")

    def __init__(self, value: Any, dtype: str | None = None) -> None:
        super().__init__([value])
        self._dtype = dtype
        self._host: Any = None
        self.devices: dict[str, GpuArray] = {}
        self._used = False  # whether a function of mode OPENCL has it
        self._is_referenced = True  # whether other code may refer to the host array
        self._is_lent = False  # whether other code may write the device array, so that no copy of it may be kept

    def __getitem__(self, index: Any) -> Any:
        value = list.__getitem__(self, index)
        if value is not ON_DEVICE:
            return value
        value, devices = self._host_copy()
        with _state:
            if self.devices is devices:  # else another thread has stored a value
                self._store(value)
        return value

    def __setitem__(self, index: Any, value: Any) -> None:
        if type(value) is GpuArray:  # the update of a function on the device
            with _state:
                self._store(value)
            return
        if type(value) is not np.ndarray and self._used and not isinstance(value, np.ndarray | GpuArray):
            value = np.array(value, self._dtype)  # JAX stores arrays of its own, which NUMBA cannot read
        with _state:
            if type(value) is np.ndarray and not (self.devices or self._is_referenced):
                # The update of a function that runs on the host. By the new dictionary others see that it was stored.
                self.devices = {}
                list.__setitem__(self, 0, value)
            else:
                self._store(value)

    def _store(self, value: Any) -> None:
        # No other code refers to values that functions compute; code that keeps a stored value calls mark_referenced().
        if self._is_referenced:
            held = list.__getitem__(self, 0)
            self._is_referenced = value is (self._host if held is ON_DEVICE else held)
        self._host, self._is_lent = None, False
        if type(value) is not np.ndarray and isinstance(value, GpuArray):
            self.devices = {value.context.name: value}
            value = ON_DEVICE
        else:
            self.devices = {}
        list.__setitem__(self, 0, value)

    def __iter__(self) -> Any:
        yield self[0]

    def _host_copy(self) -> tuple[Any, dict[str, GpuArray]]:
        """Return the value on the host, and the device copies that have it."""
        with _state:
            value, devices = list.__getitem__(self, 0), self.devices
            if value is not ON_DEVICE:
                return value, devices
            if self._host is not None:
                return self._host, devices
            array = next(iter(devices.values()))
        value = array.to_host()
        with _state:
            if self.devices is devices and not self._is_lent:
                self._host = value
        return value, devices

    def peek(self) -> Any:
        """Return the host value for reading only; device copies stay valid."""
        value = list.__getitem__(self, 0)
        return self._host_copy()[0] if value is ON_DEVICE else value

    def anywhere(self) -> Any:
        """Return the value where it is, on the host or on a device: for readers of the shape."""
        with _state:
            value = list.__getitem__(self, 0)
            return next(iter(self.devices.values())) if value is ON_DEVICE else value

    def expose(self) -> Any:
        """Store the host value in the list, for C code, until `restore` is called with what this returns."""
        value, devices = self._host_copy()
        with _state:
            held = list.__getitem__(self, 0)
            if self.devices is devices:
                list.__setitem__(self, 0, np.asarray(value))
        return held, devices

    def restore(self, held: Any) -> None:
        """Restore the state before `expose`."""
        value, devices = held
        with _state:
            if self.devices is devices:
                list.__setitem__(self, 0, value)

    def device(self, context_name: str) -> GpuArray:
        """Return the value on a context's device, uploaded if it is not there.

        An upload is kept unless other code refers to the host array (``borrow=True``) and may change it.
        """
        array = self.devices.get(context_name)
        if array is not None:
            return array
        self._used = True
        keep = not (self._is_lent or is_held_elsewhere(self))
        value, devices = self._host_copy()
        array = get_context(context_name).from_host(np.asarray(value, self._dtype))
        if keep:
            with _state:
                if self.devices is devices:  # else another thread has stored a value
                    self._host = value
                    devices[context_name] = array
                    list.__setitem__(self, 0, ON_DEVICE)
        return array

    def use(self) -> None:
        """Note that a function of mode OPENCL uses the variable: it is pickled as a cell."""
        self._used = True

    def store_device(self, array: GpuArray, is_lent: bool) -> None:
        """Store a device array, which other code may write if `is_lent` is set."""
        with _state:
            self._store(array)
            self._is_lent = is_lent

    def mark_referenced(self) -> None:
        """Note that other code may refer to the host array and change it."""
        self._is_referenced = True

    @property
    def resident(self) -> tuple[str, ...]:
        """Names of the contexts that hold a copy."""
        return tuple(self.devices)

    def __deepcopy__(self, memo: dict[int, Any]) -> "DeviceCell":
        return DeviceCell(copy.deepcopy(self.peek(), memo), self._dtype)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        if self._used:
            return _restore, (self.peek(), self._dtype)
        # As a plain list, which can be loaded where this package is not installed.
        return list, ([self.peek()],)


def _references(cell: DeviceCell) -> int:
    return sys.getrefcount(list.__getitem__(cell, 0))


def _restore(value: Any, dtype: str | None) -> DeviceCell:
    """Unpickle a cell."""
    cell = DeviceCell(value, dtype)
    cell.use()
    return cell


def is_held_elsewhere(cell: DeviceCell) -> bool:
    """Return whether other code refers to the memory of the cell's host array: by the array, a view, or its owner."""
    value = list.__getitem__(cell, 0)
    if value is ON_DEVICE or not cell._is_referenced:
        return False
    borrowed = getattr(value, "base", None) is not None
    del value
    return borrowed or _references(cell) > _ALONE


_SOME_VALUE = "the value of a shared variable w"


def explain_c_error(error: BaseException, storages: Sequence[tuple[Any, Any]]) -> BaseException:
    """Return the error for a value on a device that PyTensor's C backend tried to read, with the remedy.

    Parameters
    ----------
    error
        The exception of the C code.
    storages
        Variables and their storage, if they are known.
    """
    if not (isinstance(error, ValueError) and str(error).startswith(("expected an ndarray", _SOME_VALUE))):
        return error
    cells = [(v, cell) for v, cell in storages if isinstance(cell, DeviceCell)]
    names = [str(v) for v, cell in cells if list.__getitem__(cell, 0) is ON_DEVICE]
    if storages and not names:
        return error
    name = names[0] if names else "w"
    subject = f"the value of the shared variable {name}" if names else _SOME_VALUE
    return ValueError(
        f"{subject} is on an OpenCL device, where PyTensor's C backend cannot read it. Bring it back before the call, "
        f"{name}.get_value(borrow=True), or compile the function with mode='NUMBA' or mode='OPENCL'"
    )


_example = DeviceCell(np.empty(0))
# The reference count without other references; it differs between versions of Python.
_ALONE = _references(_example)


def adopt(variable: TensorSharedVariable) -> None:
    """Give a shared variable a `DeviceCell`, unless it has one or is sparse."""
    container = getattr(variable, "container", None)
    is_dense = type(getattr(variable, "type", None)) is TensorType
    if is_dense and container is not None and type(container.storage) is list:
        container.storage = DeviceCell(container.storage[0], variable.type.dtype)


def _init(self: TensorSharedVariable, *args: Any, **kwargs: Any) -> None:
    SharedVariable.__init__(self, *args, **kwargs)
    adopt(self)


_run_exclusively: list[Callable[[Any, Callable[[], Any]], Any]] = [lambda _, action: action()]
"""Runs an action on a cell while no function that updates it runs; set by `install`."""


def _get_value(self: TensorSharedVariable, borrow: bool = False, return_internal_type: bool = False) -> Any:
    cell = self.container.storage
    if not isinstance(cell, DeviceCell):
        return SharedVariable.get_value(self, borrow, return_internal_type)
    if not borrow:
        return _run_exclusively[0](cell, lambda: copy.deepcopy(cell.peek()))
    cell.mark_referenced()
    return _run_exclusively[0](cell, lambda: cell[0])


def _set_value(self: TensorSharedVariable, new_value: Any, borrow: bool = False) -> None:
    cell = self.container.storage
    array = None if type(new_value) is np.ndarray else on_device(new_value)
    if array is not None:
        if isinstance(cell, DeviceCell) and is_value_of(self.type, array):
            stored = array if borrow else array.copy()
            _run_exclusively[0](cell, lambda: cell.store_device(stored, borrow))
            return
        new_value = array.to_host()
    _run_exclusively[0](cell, lambda: SharedVariable.set_value(self, new_value, borrow))
    if borrow and isinstance(cell, DeviceCell):
        cell.mark_referenced()


_get_value.__doc__ = SharedVariable.get_value.__doc__
_set_value.__doc__ = SharedVariable.set_value.__doc__
_METHODS = {"__init__": _init, "get_value": _get_value, "set_value": _set_value}


def install(run_exclusively: Callable[[Any, Callable[[], Any]], Any]) -> None:
    """Make every `TensorSharedVariable` that is created from now on use a `DeviceCell`.

    Parameters
    ----------
    run_exclusively
        Takes a cell and a function, and calls the function while no compiled function that updates the cell runs.
    """
    _run_exclusively[0] = run_exclusively
    for name, method in _METHODS.items():
        setattr(TensorSharedVariable, name, method)


class GpuArraySharedVariable(SharedVariable, GpuArrayVariable):
    """A shared variable whose value is always on a device."""

    def get_value(self, borrow: bool = False, return_internal_type: bool = False) -> Any:
        """Return the value.

        Parameters
        ----------
        borrow
            With `return_internal_type`: return the array itself, not a copy.
        return_internal_type
            Return the `GpuArray` instead of a NumPy array.
        """

        def read() -> Any:
            value = self.container.value
            if return_internal_type:
                return value if borrow else value.copy()
            return value.to_host()

        return _run_exclusively[0](self.container.storage, read)

    def set_value(self, new_value: Any, borrow: bool = False) -> None:
        """Store a value.

        Parameters
        ----------
        new_value
            A `GpuArray`, or an array of pyopencl; what is on the host is uploaded.
        borrow
            Keep the array itself, not a copy. Its values are undefined after an update of the variable.
        """
        array = on_device(new_value)
        if array is not None:
            new_value, borrow = array if borrow else array.copy(), True
        _run_exclusively[0](self.container.storage, lambda: SharedVariable.set_value(self, new_value, borrow))


@shared_constructor.register(GpuArray)
def _construct(
    value: GpuArray,
    name: str | None = None,
    strict: bool = False,
    allow_downcast: bool | None = None,
    borrow: bool = False,
    shape: tuple[int | None, ...] | None = None,
) -> GpuArraySharedVariable:
    kind = GpuArrayType(value.dtype, (None,) * value.ndim if shape is None else shape, value.context.name)
    held = value if borrow else value.copy()
    return GpuArraySharedVariable(type=kind, value=held, strict=strict, allow_downcast=allow_downcast, name=name)


def shared(
    value: Any, name: str | None = None, *, target: str | None = None, borrow: bool = False, **options: Any
) -> GpuArraySharedVariable:
    """Return a shared variable whose value is always on a device.

    Unlike a variable of ``pytensor.shared`` it cannot be used by functions of mode NUMBA or JAX.

    Parameters
    ----------
    value
        A `GpuArray`, an array of pyopencl, or an argument of ``numpy.asarray``.
    name
        Name of the variable.
    target
        Context; None is that of a device array, and the default one for other values.
    borrow
        Keep a device array itself, not a copy. What is written to it is then seen by functions, and its values are
        undefined after an update of the variable.
    options
        ``shape``, ``strict``, ``allow_downcast`` as of ``pytensor.shared``.

    Returns
    -------
    GpuArraySharedVariable
        A device variable with the dtype and the number of dimensions of the value. ``get_value`` copies to the host.

    Raises
    ------
    ContextNotDefined
        There is no such context.
    UnsupportedDtype
        The device cannot hold the dtype.

    Examples
    --------
    >>> w = pytensor_cl.shared(np.zeros(3, "float32"), name="w")
    >>> step = pytensor.function([], updates=[(w, w + 1)], mode="OPENCL")
    """
    for wrong in options.keys() & {"device", "context", "context_name", "dtype"}:
        right = "value=np.asarray(value, dtype)" if wrong == "dtype" else "target='dev0', the name of a context"
        raise TypeError(f"shared has no argument {wrong}: write {right}")
    array = on_device(value)
    if array is None or target not in (None, array.context.name):
        array = get_context(target).from_host(np.asarray(value if array is None else array.to_host()))
        borrow = True
    variable: GpuArraySharedVariable = _construct(array, name, borrow=borrow, **options)
    return variable
