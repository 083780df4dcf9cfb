"""Compiled programs on disk, for drivers that keep none themselves.

pyopencl has such a cache too. It does not check what it reads: some drivers end the process when a binary was cut.
"""

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pytensor_cl.codegen.checked_files import CheckedFolder
from pytensor_cl.codegen.folders import default_folder
from pytensor_cl.codegen.temporary import usable_folder
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.cpu_name import instruction_sets

_log = logging.getLogger("pytensor_cl.cache")
_NAME = "programs"
_LIMIT = 512 << 20
"""Bytes: a program takes 10 KB to 3 MB."""


def programs_folder(cache_dir: str | None) -> Path:
    """Return the folder of compiled programs.

    `cache_dir`: folder of the package's caches; None is the user's cache folder.
    """
    return default_folder(cache_dir) / _NAME


def _is_wanted(device: "cl.Device") -> bool:
    """Return whether to cache binaries: pyopencl knows of no cache of the driver's, and the user disabled none."""
    from pyopencl.characterize import has_src_build_cache  # loads the driver

    refused = os.environ.get("PYOPENCL_NO_CACHE", "").lower() in ("1", "true", "yes", "on", "y", "t")
    return not (refused or has_src_build_cache(device))


class Binaries:
    """The compiled programs of a device."""

    def __init__(self, context: "cl.Context", cache_dir: str | None) -> None:
        (self._device,) = context.devices
        self._context = context
        is_wanted = _is_wanted(self._device)
        self._folder = CheckedFolder(usable_folder(default_folder(cache_dir)) / _NAME, _LIMIT) if is_wanted else None

    def _key(self, text: str, options: Sequence[str]) -> bytes:
        device = self._device
        platform = device.platform
        driver = (
            platform.vendor,
            platform.name,
            platform.version,
            device.vendor,
            device.version,
            device.driver_version,
        )
        # Machines that share a folder may have CPUs of one name, as virtual machines do, and other instructions.
        instructions = sorted(instruction_sets()) if device.type & cl.device_type.CPU else []
        forced = os.environ.get("PYOPENCL_BUILD_OPTIONS", "")
        return repr((cl.VERSION_TEXT, driver, device.name, instructions, list(options), forced, text)).encode()

    def find(self, text: str, options: Sequence[str]) -> "cl.Program | None":
        """Return a program that was kept, built; None if there is none that the driver takes."""
        binary = None if self._folder is None else self._folder.read(self._key(text, options))
        if binary is None:
            return None
        try:
            return cl.Program(self._context, [self._device], [binary]).build(options=list(options))
        except cl.Error as error:
            _log.debug("the driver refuses a compiled program that is kept; it is compiled again: %s", error)
            return None

    def keep(self, text: str, options: Sequence[str], program: "cl.Program") -> None:
        """Keep a program that was built from a text."""
        if self._folder is None:
            return
        with suppress(cl.Error):  # drivers need not give binaries
            (binary,) = program.get_info(cl.program_info.BINARIES)
            if binary:
                self._folder.write(self._key(text, options), binary)
