"""Definitions of reductions that users write, and their C functions for given dtypes."""

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from pytensor_cl.codegen.dtypes import computed, ctype, is_complex, is_special, is_supported
from pytensor_cl.user_kernels.c_text import check_brackets, code, words
from pytensor_cl.user_kernels.function import Definition, UserFunction
from pytensor_cl.user_kernels.parameters import Parameter, check_distinct, dtype_of

_IN_SIZE = re.compile(r"\b_in_ind\s*\.\s*size\s*\(\s*\)\s*/\s*_out_ind\s*\.\s*size\s*\(\s*\)")
_RECOGNISED = {
    **dict.fromkeys(("a+b", "b+a"), "add"),
    **dict.fromkeys(("a*b", "b*a"), "mul"),
    **{
        f"{name}({x},{y})": op
        for name, op in (("max", "maximum"), ("fmax", "maximum"), ("min", "minimum"), ("fmin", "minimum"))
        for x, y in ("ab", "ba")
    },
    **dict.fromkeys(("a&b", "b&a"), "and"),
    **dict.fromkeys(("a|b", "b|a"), "or"),
    **dict.fromkeys(("a^b", "b^a"), "xor"),
}
_NEUTRAL = {
    "add": ("0", "0.0", "0.", "0.f", "0.0f"),
    "mul": ("1", "1.0", "1.", "1.f", "1.0f"),
    "maximum": ("-INFINITY", "-HUGE_VALF", "-HUGE_VAL"),
    "minimum": ("INFINITY", "HUGE_VALF", "HUGE_VAL"),
    "and": ("-1", "~0", "true"),
    "or": ("0", "false"),
    "xor": ("0", "false"),
}


@dataclass(frozen=True)
class ReductionDefinition:
    """Texts and parameters of a reduction: two of the same texts are the same kernel.

    `identity`: result of reducing nothing, before `post_map`; None: there is none; `reduce_type`: a NumPy dtype, a
    placeholder, or a type of C; empty: that of the output.
    """

    name: str
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    map_expr: str
    reduce_expr: str
    post_map: str
    identity: str | None
    reduce_type: str = ""
    preamble: str = ""
    options: tuple[str, ...] = ()
    headers: str = ""

    def check(self) -> None:
        """Raise a `ValueError` or a `TypeError` if a text is malformed."""
        if not (isinstance(self.name, str) and re.fullmatch(r"[A-Za-z_]\w*", self.name, re.ASCII)):
            raise ValueError(f"the name of a kernel is a name of C, not {self.name!r}")
        texts = ("map_expr", "reduce_expr", "post_map", "preamble")
        for what in texts:
            text = getattr(self, what)
            if not isinstance(text, str):
                raise TypeError(f"{what} of kernel {self.name!r} is a string of OpenCL C, not {text!r}")
            check_brackets(text, f"kernel {self.name!r}, {what}")
        if len(self.outputs) != 1 or self.outputs[0].is_raw:
            raise ValueError(f"kernel {self.name!r} has one output, which is not raw")
        check_distinct((*self.inputs, *self.outputs))
        taken = next((p.name for p in self.inputs if p.name in "ab"), None)
        if taken is not None:
            raise ValueError(f"kernel {self.name!r}: {taken!r} is a value that is reduced: choose another name")
        self._check_expressions()

    def _check_expressions(self) -> None:
        for what in ("map_expr", "reduce_expr"):
            text = code(getattr(self, what))
            if not text.strip() or ";" in text:
                raise ValueError(f"kernel {self.name!r}: {what} is one expression, without a semicolon")
        if not {"a", "b"} <= words(self.reduce_expr):
            raise ValueError(f"kernel {self.name!r}: reduce_expr combines a and b, such as 'a + b'")
        if self.outputs[0].name not in words(self.post_map):
            raise ValueError(
                f"kernel {self.name!r}: post_map_expr assigns to the output, such as '{self.outputs[0].name} = a'"
            )

    @cached_property
    def operation(self) -> str | None:
        """The operation of `routines.reduction` that the expression is; None: it is another one."""
        text = re.sub(r"\s", "", code(self.reduce_expr))
        while text.startswith("(") and text.endswith(")") and text[1:-1].count("(") == text[1:-1].count(")") <= 1:
            text = text[1:-1]
        return _RECOGNISED.get(text)

    @property
    def has_neutral_identity(self) -> bool:
        """Whether the operation, which was recognised, returns the identity for nothing, or has none."""
        if self.operation is None:
            return False
        if self.identity is None:
            return self.operation in ("maximum", "minimum")
        return re.sub(r"[\s()]", "", self.identity) in _NEUTRAL[self.operation]


@dataclass(frozen=True)
class ReductionFunctions:
    """The C functions of a reduction.

    `kind`: C type of what is reduced; `dtype`: its dtype, None for a type of the user's.
    """

    definition: ReductionDefinition
    types: tuple[tuple[str, str], ...]

    @cached_property
    def output_dtype(self) -> str:
        """The dtype of the result."""
        return dtype_of(self.definition.outputs[0], dict(self.types), self.definition.name)

    @cached_property
    def input_dtypes(self) -> tuple[str, ...]:
        """The dtypes of the inputs."""
        return tuple(dtype_of(p, dict(self.types), self.definition.name) for p in self.definition.inputs)

    @cached_property
    def dtype(self) -> str | None:
        """The dtype of what is reduced; None: it is a type of C."""
        kind = self.definition.reduce_type
        if not kind:
            return self.output_dtype
        if len(kind) == 1:
            return dtype_of(Parameter("reduce_type", kind), dict(self.types), self.definition.name)
        try:
            found = np.dtype(kind)
        except TypeError:
            return None
        return found.name if found.name == kind and is_supported(found) else None

    @cached_property
    def kind(self) -> str:
        """The C type of what is reduced."""
        return self.definition.reduce_type if self.dtype is None else ctype(computed(self.dtype))

    def whole_number(self, identity: str) -> str:
        """Return the identity; a number as a complex one if those are reduced, as it would be both of their parts."""
        is_literal = re.fullmatch(r"[\s+-]*[\d.][\w.+-]*\s*", identity) is not None
        is_of_pairs = self.dtype is not None and is_complex(self.dtype)
        return f"({self.kind})({identity}, 0)" if is_literal and is_of_pairs else identity

    def __str__(self) -> str:
        return str(self.map)

    def _part(self, **fields: Any) -> UserFunction:
        definition = self.definition
        common = {"preamble": definition.preamble, "options": definition.options, "headers": definition.headers}
        return UserFunction(
            Definition(definition.name, **{"inputs": (), "outputs": (), **common, **fields}), self.types
        )

    @cached_property
    def map(self) -> UserFunction:
        """The function that stores the value of an element in a pointer."""
        return self._part(
            inputs=self.definition.inputs,
            operation=self.definition.map_expr,
            frame=("*_value = (", ")"),
            more=(f"{self.kind} *const _value",),
            place="in its map_expr",
        )

    @cached_property
    def mapped(self) -> UserFunction:
        """The same as an element function, whose output has the dtype of what is reduced."""
        assert self.dtype is not None
        return self._part(
            inputs=self.definition.inputs,
            outputs=(Parameter("_value", self.dtype),),
            operation=self.definition.map_expr,
            frame=("_value = (", ")"),
            place="in its map_expr",
        )

    @cached_property
    def reduce(self) -> UserFunction:
        """The function that combines ``a`` and ``b``."""
        kind = self.kind
        return self._part(
            operation=self.definition.reduce_expr,
            frame=("*_value = (", ")"),
            more=(f"const {kind} a", f"const {kind} b", f"{kind} *const _value"),
            place="in its reduce_expr",
        )

    @cached_property
    def post(self) -> UserFunction:
        """The function that makes a result of ``a``; ``n`` is the number of elements that were reduced."""
        return self._part(
            outputs=self.definition.outputs,
            operation=_IN_SIZE.sub("n", self.definition.post_map),
            more=(f"const {self.kind} a", "const long n"),
            place="in its post_map_expr",
        )

    @cached_property
    def posted(self) -> UserFunction:
        """The same as an element function, of ``a`` and, if the text has it, ``n``."""
        assert self.dtype is not None
        text = _IN_SIZE.sub("n", self.definition.post_map)
        number = (Parameter("n", "int64"),) if "n" in words(text) else ()
        return self._part(
            inputs=(Parameter("a", self.dtype), *number),
            outputs=self.definition.outputs,
            operation=text,
            place="in its post_map_expr",
        )

    @cached_property
    def is_fusable(self) -> bool:
        """Whether the reduction is one of `routines.reduction`, of an element function."""
        definition = self.definition
        if (
            definition.operation is None
            or self.dtype is None
            or definition.options
            or "##" in code(definition.preamble)
        ):
            return False
        kind = np.dtype(self.dtype).kind
        takes = {"f": ("add", "mul", "maximum", "minimum"), "c": ("add",), "b": ("and", "or", "xor")}
        allowed = takes.get(kind, tuple(_NEUTRAL))
        return definition.operation in allowed and not self.mapped.definition.is_indexed

    @cached_property
    def is_row_function(self) -> bool:
        """Whether `routines.rowwise` computes it: that has no float16 and no complex numbers."""
        dtypes = (*self.input_dtypes, self.output_dtype, str(self.dtype))
        return self.is_fusable and not any(map(is_special, dtypes))

    @property
    def digest(self) -> str:
        """A digest of the texts and the dtypes."""
        return hashlib.blake2s(repr(self).encode(), digest_size=6).hexdigest()


@lru_cache(maxsize=1024)
def reduction_functions(definition: ReductionDefinition, types: tuple[tuple[str, str], ...]) -> ReductionFunctions:
    """Return the functions of a kernel for the dtypes of its placeholders."""
    return ReductionFunctions(definition, types)
