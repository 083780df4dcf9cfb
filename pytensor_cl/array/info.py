"""Properties of the namespace, after the Python array API standard."""

import sys
from typing import Any

import numpy as np

from pytensor_cl.array.device import Device, context_of, default_device
from pytensor_cl.array.dtypes import KINDS, default_complex, default_float
from pytensor_cl.codegen.dtypes import SUPPORTED, needs_fp64
from pytensor_cl.runtime.registry import defined_contexts, is_unusable

VERSION = "2024.12"
VERSIONS = ("2021.12", "2022.12", "2023.12", VERSION)


def namespace(api_version: str | None = None) -> Any:
    """Return the module `pytensor_cl.array`.

    Raises `ValueError`: it has not that version of the standard.
    """
    if api_version is not None and api_version not in VERSIONS:
        raise ValueError(f"version {api_version!r} of the array API is not there; versions are {', '.join(VERSIONS)}")
    return sys.modules["pytensor_cl.array"]


class NamespaceInfo:
    """Properties of the namespace, after the Python array API standard."""

    def capabilities(self) -> dict[str, Any]:
        """Return what the functions can do; shapes may depend on data."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> Device:
        """Return the default device."""
        return default_device()

    def devices(self) -> list[Device]:
        """Return the devices whose contexts are defined and that can be used."""
        default_device()  # defines the default context if there is none
        return [Device(name) for name in defined_contexts() if not is_unusable(name)]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        """Return the dtypes that functions choose where none is given, for numbers of each kind."""
        context = context_of(device)
        return {
            "real floating": default_float(context),
            "complex floating": default_complex(context),
            "integral": np.dtype("int64"),
            "indexing": np.dtype("int64"),
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype]:
        """Return the dtypes of a device by name.

        `kind`: a kind as `isdtype` takes, or a tuple of them. float64 and complex128 are left out where the device has
        no double precision.
        """
        has_fp64 = context_of(device).info.has_fp64
        kinds = kind if isinstance(kind, tuple) else ("bool", "numeric") if kind is None else (kind,)
        letters = "".join(KINDS[k] for k in kinds)
        return {
            name: np.dtype(name)
            for name in SUPPORTED
            if name != "float16" and np.dtype(name).kind in letters and (has_fp64 or not needs_fp64(np.dtype(name)))
        }


def __array_namespace_info__() -> NamespaceInfo:
    """Return the properties of the namespace."""
    return NamespaceInfo()
