"""The flags we add to PyTensor's configuration: one table, and what declares it.

Nothing is imported here, neither PyTensor nor any module of ours: the start-up hook
loads this file while ``import pytensor`` is still under way.
"""

from typing import Any, NamedTuple


class Flag(NamedTuple):
    """One flag, as ``PYTENSOR_FLAGS`` and rc files spell it (``section__option``).

    Parameters
    ----------
    name : str
        Full name; in an rc file ``opencl__placement`` is ``placement`` of ``[opencl]``.
    kind : str
        Name of the parameter class of ``pytensor.configparser``.
    default : object
        Value without a flag.
    doc : str
        Text shown by ``print(pytensor.config)``.
    options : tuple of str
        Further values of an ``EnumStr``.
    mutable : bool
        Whether the value may change after start-up.
    """

    name: str
    kind: str
    default: Any
    doc: str
    options: tuple[str, ...] = ()
    mutable: bool = True


FLAGS: tuple[Flag, ...] = (
    Flag(
        "device",
        "StrParam",
        "cpu",
        "Default device: cpu, opencl<platform>:<device>, or opencl:<name>[:<device>] with a part of "
        "the platform's name or a kind (opencl:pocl, opencl:nvidia:0, opencl:gpu). An OpenCL device "
        "makes OPENCL the default mode.",
        mutable=False,
    ),
    Flag(
        "contexts",
        "StrParam",
        "",
        "Named contexts, as in dev0->opencl0:0;dev1->opencl0:1.",
        mutable=False,
    ),
    Flag(
        "opencl__quiet",
        "BoolParam",
        False,
        "Do not write on stderr which device a context is when it is opened.",
    ),
    Flag(
        "opencl__placement",
        "EnumStr",
        "auto",
        "Where nodes run: where they are faster (auto), on the device wherever a kernel exists (device), or "
        "nowhere but on the host (host).",
        options=("device", "host"),
    ),
    Flag(
        "opencl__select_backend",
        "BoolParam",
        True,
        "With placement auto: run each call by the fastest of the device and PyTensor's NUMBA and C functions, as "
        "measured; else always on the device.",
    ),
    Flag(
        "opencl__on_host",
        "EnumStr",
        "allow",
        "What happens when a node stays on the host because there is no kernel.",
        options=("warn", "raise"),
    ),
    Flag(
        "opencl__float64",
        "EnumStr",
        "auto",
        "What happens to float64 nodes on a device without fp64: they stay on the host (auto), or "
        "compilation fails (raise).",
        options=("raise",),
    ),
    Flag(
        "opencl__sync_debug",
        "BoolParam",
        False,
        "Wait for every launch, so that an error names the node that caused it.",
    ),
    Flag(
        "opencl__fast_math",
        "BoolParam",
        False,
        "Build kernels with -cl-fast-relaxed-math: faster, with wrong results for NaN, inf and signed zero.",
    ),
    Flag(
        "opencl__float_atomics",
        "BoolParam",
        False,
        "Let a GPU that can add float32 and float64 numbers atomically do so where many values are added to many rows "
        "of an array: faster, but sums are in any order, so that they differ in the last digits from call to call.",
    ),
    Flag(
        "opencl__cache_dir",
        "StrParam",
        "",
        "Folder of compiled programs; empty for the user's cache folder.",
        mutable=False,
    ),
    Flag(
        "opencl__parallel_compile",
        "BoolParam",
        True,
        "With PoCL and on GPUs: compile the kernels of a function that has many new ones on all cores, in worker "
        "processes.",
        mutable=False,
    ),
    Flag(
        "opencl__batch_kernels",
        "BoolParam",
        True,
        "With PoCL, on Linux and x86-64: run all kernels of a repeated call in one launch.",
        mutable=False,
    ),
    Flag(
        "opencl__random",
        "EnumStr",
        "numpy",
        "Which numbers draws on a device are: NumPy's own, or numbers of a generator that counts (philox): others, in "
        "parallel for every distribution and for arrays of parameters.",
        options=("philox",),
    ),
    Flag(
        "opencl__progress",
        "EnumStr",
        "auto",
        "Whether a pause of more than half a second, in which something compiles, is reported on stderr: after five "
        "seconds if that is no terminal (auto), always, or never.",
        options=("always", "never"),
    ),
    Flag(
        "opencl__park_workers",
        "BoolParam",
        True,
        "With opencl__batch_kernels: let the threads of that launch poll for the next call for part of a millisecond, "
        "where calls come in quick succession.",
        mutable=False,
    ),
)


def declare(config: Any, parameters: Any) -> None:
    """Add every flag of ``FLAGS`` to ``config`` that it does not have yet.

    ``device`` and ``contexts`` take any text here: what there is to choose from is known only
    when a context is opened, and a typing error must not break ``import pytensor``.

    Parameters
    ----------
    config : PyTensorConfigParser
        The object that ``pytensor.config`` is, or is about to become.
    parameters : module
        ``pytensor.configparser``, which holds the parameter classes.

    Raises
    ------
    ValueError
        If the user gave an enumerated, boolean or number flag a value outside its range,
        as for any flag of PyTensor's own.
    """
    known = config._config_var_dict
    for flag in FLAGS:
        if flag.name in known:
            continue
        config.add(flag.name, flag.doc, _parameter(flag, parameters), in_c_key=False)


def _parameter(flag: Flag, parameters: Any) -> Any:
    choices = (flag.options,) if flag.options else ()
    return getattr(parameters, flag.kind)(flag.default, *choices, mutable=flag.mutable)


def wants_opencl_mode(config: Any) -> bool:
    """Return whether ``device=opencl*`` should make OPENCL the default mode.

    It should not where the user chose a mode or a linker, by a flag or by assignment.

    Parameters
    ----------
    config : PyTensorConfigParser
        ``pytensor.config``, with our flags declared.

    Returns
    -------
    bool
        True if the default mode is still PyTensor's own choice and the device is OpenCL's.
    """
    return is_opencl(config.device) and all(_untouched(config, name) for name in ("mode", "linker"))


def is_opencl(device: str) -> bool:
    """Return whether a value of the flag ``device`` names an OpenCL device.

    Everything but ``cpu`` does: a name that no device has must be an error, not a silent CPU.

    Parameters
    ----------
    device : str
        For instance ``"cpu"``, ``"opencl0:0"`` or ``"opencl:pocl"``.

    Returns
    -------
    bool
        True for everything but ``cpu``.
    """
    return device.strip().lower() != "cpu"


def _untouched(config: Any, name: str) -> bool:
    parameter = config._config_var_dict[name]
    result: bool = parameter.is_default and getattr(config, name) == parameter.default
    return result
