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
        "Build kernels with -cl-fast-relaxed-math and -cl-denorms-are-zero: faster, with wrong results for NaN, inf, "
        "signed zero and subnormal numbers.",
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
    parser = type(config)
    if "__setattr__" not in vars(parser):
        _refuse_unknown_attributes(parser)
        _explain_unknown_flags(parser)


def _parameter(flag: Flag, parameters: Any) -> Any:
    choices = (flag.options,) if flag.options else ()
    kind = getattr(parameters, flag.kind)
    if flag.mutable:
        return kind(flag.default, *choices)

    class Fixed(kind):  # type: ignore[misc, valid-type]
        """A flag that is read at the start; PyTensor's error does not say what else to do."""

        def __set__(self, config: Any, value: Any) -> None:
            if hasattr(self, "val"):
                raise TypeError(_fixed(flag.name, self.val, value))
            super().__set__(config, value)

    return Fixed(flag.default, *choices, mutable=False)


def _fixed(name: str, value: Any, wanted: Any) -> str:
    text = (
        f"the flag {name} is {value!r} and cannot change after PyTensor has been imported: set it by the environment "
        f"variable, PYTENSOR_FLAGS={name}={wanted}, or in ~/.pytensorrc"
    )
    if name in ("device", "contexts"):
        text += (
            ". In a script, pytensor_cl.use('opencl:...') chooses the device of mode OPENCL, and "
            "pytensor.config.mode = 'OPENCL' makes that the default mode"
        )
    return text


def _refuse_unknown_attributes(parser: Any) -> None:
    """Let an assignment to ``pytensor.config`` raise an AttributeError if its name begins as ours do and is none."""

    def set_attribute(self: Any, name: str, value: Any) -> None:
        if name.startswith("opencl") and name not in self._config_var_dict:
            raise AttributeError(f"PyTensor has no flag {name}. {advice(name, self._config_var_dict)}")
        object.__setattr__(self, name, value)

    parser.__setattr__ = set_attribute


def _explain_unknown_flags(parser: Any) -> None:
    """Add an advice to PyTensor's warnings of unknown flags, and warn of options in rc files that are no flags."""
    original = parser.warn_unused_flags

    def warn_unused_flags(self: Any) -> None:
        import warnings

        parser.warn_unused_flags = original  # PyTensor calls it once
        known, unknown = self._config_var_dict, self._flags_dict
        for key in [key for key in unknown if advice(key, known)]:
            del unknown[key]  # the original warns of the others
            warnings.warn(f"PyTensor does not recognise this flag: {key}. {advice(key, known)}", stacklevel=2)
        for option, text in unknown_options(self):
            warnings.warn(f"the rc file has an option that is no flag: {option}. {text}", stacklevel=2)
        original(self)

    parser.warn_unused_flags = warn_unused_flags


_OF_THEANO = ("gpuarray", "dnn", "lib__cnmem", "cuda", "nvcc", "magma", "ctc", "conv")
_OF_THEANO_WHOLE = (
    "force_device",
    "init_gpu_device",
    "print_active_device",
    "enable_initial_driver_test",
    "assert_no_cpu_op",
)
"""Flags of Theano that PyTensor does not have, the first ones by their beginnings."""


def advice(key: str, known: Any) -> str:
    """Return what to write in place of a flag that PyTensor does not know; empty if that is unknown.

    Parameters
    ----------
    key : str
        The flag, as the user wrote it.
    known : iterable of str
        The flags that there are.

    Returns
    -------
    str
        One sentence, or nothing.
    """
    from difflib import get_close_matches  # where a flag is wrong, not in every interpreter

    name = key.replace(".", "__")
    if name in known:
        return f"Write it with two underscores: {name}"
    if name.startswith(_OF_THEANO) or name in _OF_THEANO_WHOLE:
        return "It is a flag of Theano; the page 'From Theano or Aesara' of pytensor-cl's documentation has what to use"
    ours = name.lower().startswith("opencl")
    own = {flag.name.removeprefix("opencl__"): flag.name for flag in FLAGS if flag.name.startswith("opencl") == ours}
    near = get_close_matches(name.lower().removeprefix("opencl").lstrip("_"), own, 1, 0.6 if ours else 0.75)
    if near:
        return f"Did you mean {own[near[0]]}?"
    return f"Flags that begin so are: {', '.join(own.values())}" if ours else ""


def unknown_options(config: Any) -> "list[tuple[str, str]]":
    """Return the options of an rc file that look like flags of ours but are none, each with what to write.

    Parameters
    ----------
    config : PyTensorConfigParser
        ``pytensor.config``, with our flags declared. PyTensor itself ignores unknown options of rc files.

    Returns
    -------
    list of (str, str)
        The option as the file has it, and an advice.
    """
    file, known = config._pytensor_cfg, config._config_var_dict
    own = [option for option in _options(file, "opencl") if f"opencl__{option}" not in known]
    misplaced = [option for option in _options(file, "global") if option.startswith("opencl")]
    return [
        *((f"{option} in the section [opencl]", advice(f"opencl__{option}", known)) for option in own),
        *((f"{o} in the section [global]", "Write it without 'opencl__' in a section [opencl]") for o in misplaced),
    ]


def _options(file: Any, section: str) -> "list[str]":
    """Return the options of a section of an rc file, without those that PyTensor puts into all of them."""
    found = file.options(section) if file.has_section(section) else []
    return [option for option in found if option not in file.defaults()]


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


def other_mode(config: Any) -> str:
    """Return the flag that keeps ``device`` from making OPENCL the default mode, as in the examples of Theano's pages.

    Parameters
    ----------
    config : PyTensorConfigParser
        ``pytensor.config``, with our flags declared.

    Returns
    -------
    str
        For instance ``"mode=FAST_RUN"``; empty if there is none, or if the user asked for a backend by its name.
    """
    named = config._config_var_dict["mode"]
    chosen = is_opencl(config.device) and not named.is_default and config.mode in ("FAST_RUN", "FAST_COMPILE")
    return f"mode={config.mode}" if chosen else ""


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
