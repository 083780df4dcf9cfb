"""Definitions of elementwise kernels, and their OpenCL C for given dtypes."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from pytensor_cl.codegen.dtypes import computed, ctype, is_complex, part, vector_type
from pytensor_cl.codegen.emitter import VECTOR_FAMILIES, Complex, Emitter, Scalar, Value
from pytensor_cl.codegen.template import render
from pytensor_cl.errors import CompilationError
from pytensor_cl.runtime.program import explain_build_errors
from pytensor_cl.user_kernels.build_errors import SourcePart, build_error, line_directive, located
from pytensor_cl.user_kernels.c_text import (
    Token,
    check_brackets,
    code,
    defined_names,
    is_float_literal,
    is_free,
    original_names,
    renamed,
    replace_subscripts,
    replace_words,
    single_precision,
    tokens,
    words,
)
from pytensor_cl.user_kernels.complex_text import OF_COMPLEX, first_part_wise
from pytensor_cl.user_kernels.limits import SHORT_CALLS, UNROLLED_STATEMENTS
from pytensor_cl.user_kernels.parameters import (
    Parameter,
    check_distinct,
    dtype_of,
    private_type,
)
from pytensor_cl.user_kernels.programs import headers

_LOOPS = frozenset(("for", "while", "do", "goto"))
_COUNT = re.compile(r"\b_ind\s*\.\s*size\s*\(\s*\)")
_BAD_RETURN = re.compile(r"\breturn\b\s*[^\s;]")
_GENERATED = "generated text"

_ONE_ARGUMENT = (
    "acos acosh asin asinh atan atanh ceil cos cosh erf erfc exp exp2 expm1 fabs floor log log10 log1p "
    "log2 rint round sin sinh sqrt tan tanh tgamma trunc"
)
_OF_ONE = frozenset(_ONE_ARGUMENT.split(" "))
_OF_SEVERAL = frozenset(("atan2", "fma", "fmax", "fmin", "pow"))
_PLAIN_OPERATORS = frozenset(("+", "-", "*", "/", "(", ")", ",", ";", "=", ""))

_KINDS = {"double": "float64", "double2": "complex128", "float2": "complex64"}
"""Dtypes that a function computes in because a further parameter has a type of C; others need nothing of their own."""

_MOST_KNOWN = 4096
_known: dict[str, "UserFunction"] = {}  # by the titles of their texts; for error messages


def digest_of_headers(text: str, options: Sequence[str]) -> str:
    """Return a digest of the headers of the user's that a text includes; empty if there are none."""
    found = headers(text, options)
    return hashlib.blake2s(repr(sorted(found.items())).encode(), digest_size=8).hexdigest() if found else ""


@dataclass(frozen=True)
class Definition:
    """Texts and parameters of an elementwise kernel: two of the same texts are the same kernel.

    `vector`: whether the operation is valid for vector types; None finds out; `frame`: text before and after the
    operation, for expressions; `more`: further parameters of the function, in C; `place`: what messages call the
    operation; `headers`: digest of the headers that it includes.
    """

    name: str
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    operation: str
    preamble: str = ""
    options: tuple[str, ...] = ()
    vector: bool | None = None
    frame: tuple[str, str] = ("", "")
    more: tuple[str, ...] = ()
    place: str = "in its operation"
    headers: str = ""

    def check(self) -> None:
        """Raise a `ValueError` or a `TypeError` if a text is malformed."""
        if not (isinstance(self.name, str) and re.fullmatch(r"[A-Za-z_]\w*", self.name, re.ASCII)):
            raise ValueError(f"the name of a kernel is a name of C, not {self.name!r}")
        for text, what in ((self.operation, "the operation"), (self.preamble, "the preamble")):
            if not isinstance(text, str):
                raise TypeError(f"{what} of kernel {self.name!r} is a string of OpenCL C, not {text!r}")
            check_brackets(text, f"kernel {self.name!r}, {what}")
        if not self.outputs:
            raise ValueError(f"kernel {self.name!r} has no output")
        check_distinct((*self.inputs, *self.outputs))
        if _BAD_RETURN.search(code(self.operation)):
            raise ValueError(
                f"kernel {self.name!r}: return takes no value: the operation assigns to {self.outputs[0].name}"
            )
        unassigned = next((p.name for p in self.outputs if p.name not in words(self.operation)), None)
        if unassigned is not None:
            raise ValueError(f"kernel {self.name!r}: the operation does not assign to the output {unassigned!r}")

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of the operation."""
        return words(_COUNT.sub("n", self.operation))

    @cached_property
    def numbers(self) -> frozenset[str]:
        """`i`, the number of the element, and `n`, the number of elements, as far as the operation has them."""
        text = _COUNT.sub("n", self.operation)
        own = {p.name for p in self.inputs}
        return frozenset(name for name in ("i", "n") if name in self.words - own and is_free(name, text))

    @cached_property
    def is_indexed(self) -> bool:
        """Whether the operation needs more than one element of each array: their number, or raw arrays."""
        declared = (text.split()[-1].lstrip("*") for text in self.more)
        return bool(self.numbers.difference(declared)) or any(p.is_raw for p in (*self.inputs, *self.outputs))

    @cached_property
    def is_isolated(self) -> bool:
        """Whether the kernel needs a program of its own: it has build options, or a preamble that pastes names."""
        return bool(self.options) or "##" in code(self.preamble)

    @cached_property
    def digest(self) -> str:
        """A digest of all that the user wrote."""
        return hashlib.blake2s(repr(self).encode(), digest_size=5).hexdigest()


@dataclass(frozen=True)
class UserFunction:
    """An element function (`routines.elemwise.routine.ElementFunction`) that a user wrote.

    `types`: the placeholders and their dtypes.
    """

    definition: Definition
    types: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        for p in self.definition.outputs:
            if p.is_raw and self._dtype(p) == "float16":
                raise TypeError(
                    f"kernel {self.definition.name!r}: the raw output {p.name} cannot be float16: halves are stored "
                    "as bits; compute in float32 and convert"
                )
        self._check_complex()
        _known.update((part.title, self) for part in self.parts)
        while len(_known) > _MOST_KNOWN:
            del _known[next(iter(_known))]

    def _check_complex(self) -> None:
        """Raise a `TypeError` if OpenCL C would compute the parts of complex numbers one by one."""
        definition, types = self.definition, dict(self.types)
        names = {p.name for p in (*definition.inputs, *definition.outputs) if is_complex(self._dtype(p))}
        further = (text.split() for text in definition.more)
        names |= {of_c[-1] for of_c in further if not {"float2", "double2"}.isdisjoint(of_c) and "*" not in of_c[-1]}
        if not names:
            return
        letters = {letter for letter, dtype in types.items() if is_complex(dtype)} | {"float2", "double2"}
        wrong = first_part_wise(definition.operation, names, letters, defined_names(definition.preamble))
        if wrong is not None:
            raise TypeError(
                f"{self}: complex numbers are pairs in OpenCL C, so that {wrong.text!r} {definition.place} would "
                f"compute their parts one by one: {wrong.advice}"
            )

    def _dtype(self, parameter: Parameter) -> str:
        return dtype_of(parameter, dict(self.types), self.definition.name)

    @cached_property
    def input_dtypes(self) -> tuple[str, ...]:
        """The dtypes of the inputs."""
        return tuple(map(self._dtype, self.definition.inputs))

    @cached_property
    def output_dtypes(self) -> tuple[str, ...]:
        """The dtypes of the outputs."""
        return tuple(map(self._dtype, self.definition.outputs))

    @cached_property
    def dtypes(self) -> frozenset[str]:
        """All dtypes in which something is computed."""
        own = frozenset(map(computed, (*self.input_dtypes, *self.output_dtypes)))
        declared = frozenset().union(*map(words, self.definition.more))
        own |= {dtype for word, dtype in _KINDS.items() if word in declared}
        return own | {"float64"} if "double" in self.definition.words else own

    @property
    def itemsize(self) -> int:
        """Bytes of the widest dtype."""
        return max(np.dtype(dtype).itemsize for dtype in self.dtypes)

    @cached_property
    def operations(self) -> int:
        """Statements for one element."""
        return max(1, code(self.definition.operation).count(";"))

    @cached_property
    def symbol(self) -> str:
        """Name of the C function, unique to the texts and the dtypes."""
        digest = hashlib.blake2s(repr((self.definition.digest, self.types)).encode(), digest_size=5).hexdigest()
        return f"user_{self.definition.name}_{digest}"

    def __str__(self) -> str:
        types = ", ".join(f"{letter} = {dtype}" for letter, dtype in self.types)
        return f"kernel {self.definition.name!r}" + (f" with {types}" if types else "")

    # The text

    @cached_property
    def parts(self) -> tuple[SourcePart, ...]:
        """The texts that the user wrote, as error messages name them."""
        parts = [SourcePart(f"operation {self.symbol}", self.definition.operation, self.definition.place)]
        preamble = self.definition.preamble
        if preamble.strip():
            digest = hashlib.blake2s(repr((preamble, self.types)).encode(), digest_size=5).hexdigest()
            parts.insert(0, SourcePart(f"preamble {self.definition.name} {digest}", preamble, "in its preamble"))
        return tuple(parts)

    @cached_property
    def _new_words(self) -> dict[str, str]:
        """Words of the texts and what replaces them, all in private names of this program."""
        defined = defined_names(self.definition.preamble)
        new = {letter: private_type(dtype) for letter, dtype in self.types}
        if any(map(is_complex, self.dtypes)):
            new |= {name: f"user_{name}" for name in OF_COMPLEX - defined}
        return new | ({} if self.definition.is_isolated else renamed(self.definition.preamble, defined))

    def translate(self, text: str, others: dict[str, str] | None = None) -> str:
        """Return a text of the user's in OpenCL C: with the dtypes of placeholders, and names of the program."""
        text = replace_words(text, self._new_words | (others or {}))
        is_single = not any(part(dtype) == "float64" for dtype in self.dtypes)
        return single_precision(text) if is_single and "double" not in words(text) else text

    @cached_property
    def preambles(self) -> tuple[str, ...]:
        """OpenCL C before a kernel: helpers, the user's preamble, and the function of one element."""
        texts = [render("common/half")] if "float16" in (*self.input_dtypes, *self.output_dtypes) else []
        texts += [
            render("user_kernels/complex", dtype=part(dtype)) for dtype in sorted(self.dtypes) if is_complex(dtype)
        ]
        if self.definition.preamble.strip():
            preamble = SourcePart(self.parts[0].title, self.translate(self.definition.preamble))
            texts.append(f"{preamble.marked}\n{line_directive(_GENERATED)}")
        if self.is_vector:
            families = {VECTOR_FAMILIES.get((word, self._element)) for word in self.definition.words}
            texts += [render(f"math/{family}", dtype=self._element) for family in sorted(filter(None, families))]
        if self.definition.headers:  # another text where a header has changed
            texts.append(f"// headers {self.definition.headers}")
        return (*texts, "\n".join((self._scalar_text(), *map(self._vector_text, self.vector_lanes))))

    @cached_property
    def is_long(self) -> bool:
        """Whether one element keeps a work-item busy: there are loops, many calls, or functions of the preamble."""
        plain, defined = code(self.definition.operation), defined_names(self.definition.preamble)
        calls = len(re.findall(r"\b[a-z]\w*\s*\(", plain))
        return calls > SHORT_CALLS or not self.definition.words.isdisjoint(_LOOPS | defined)

    def _scalar_text(self) -> str:
        """Return the C function of one element."""
        definition = self.definition
        takes, declares, stores = [self.translate(text) for text in definition.more], [], []
        for k, (p, dtype) in enumerate(zip(definition.inputs, self.input_dtypes, strict=True)):
            if p.is_raw:
                takes += self._raw_parameters(p, dtype, "const ")
            else:
                takes.append(f"const {self._passed(dtype)} _i{k}")
                declares.append(f"const {private_type(dtype)} {p.name} = _i{k};")
        for k, (p, dtype) in enumerate(zip(definition.outputs, self.output_dtypes, strict=True)):
            if p.is_raw:
                takes += self._raw_parameters(p, dtype, "")
            else:
                takes.append(f"{self._passed(dtype)} *const _o{k}")
                declares.append(f"{private_type(dtype)} {p.name} = 0;")
                stores.append(f"*_o{k} = {p.name};")
        if definition.is_indexed:
            takes += ["const long i", "const long n"]
        # Elemwise moves vectors if a kernel calls no function whose line begins with "static".
        head = "static inline" if self.is_long else "inline static"
        end = "_end: ;" if "return" in definition.words else ""
        others = {"return": "goto _end"} if end else {}
        operation = SourcePart(self.parts[-1].title, self.translate(self._with_halves(), others)).marked
        return "\n".join(
            (
                f"{head} void {self.symbol}({', '.join(takes)})",
                f"{{\n{' '.join(declares)}\n{{{definition.frame[0]}",
                operation,
                line_directive(_GENERATED),
                f"{definition.frame[1]};}}\n{end} {' '.join(stores)}\n}}\n",
            )
        )

    @staticmethod
    def _passed(dtype: str) -> str:
        """Return the C type of an element between a kernel and the function."""
        return "float" if dtype == "float16" else ctype(dtype)

    def _raw_parameters(self, parameter: Parameter, dtype: str, const: str) -> list[str]:
        """Return the C parameters of a raw array: the pointer, and what the operation uses of its size."""
        name = parameter.name
        takes = [f"__global {const}{ctype(dtype)} *const {name}"]
        if f"{name}_size" in self.definition.words:
            takes.append(f"const long {name}_size")
        if f"{name}_shape" in self.definition.words:
            takes.append(f"const long *const {name}_shape")
        return takes

    def _with_halves(self) -> str:
        """Return the operation, where elements of raw float16 arrays are converted."""
        text = _COUNT.sub("n", self.definition.operation)
        for p, dtype in zip(self.definition.inputs, self.input_dtypes, strict=True):
            if p.is_raw and dtype == "float16":
                text = replace_subscripts(text, p.name, f"widen_half1(({p.name})[{{}}])".format)
        return text

    # Vectors

    @property
    def _element(self) -> str:
        """The dtype in which all is computed, if it is one."""
        return next(iter(self.dtypes))

    @cached_property
    def is_vector(self) -> bool:
        """Whether the operation is computed for whole vectors: it is valid for them, as it is for numbers."""
        definition = self.definition
        if definition.is_indexed or definition.more or self.dtypes not in ({"float32"}, {"float64"}):
            return False
        if definition.vector is not None:
            return definition.vector
        return _is_plain(definition, frozenset(dict(self.types)), self._element)

    @property
    def vector_lanes(self) -> tuple[int, ...]:
        """Lanes for which there is a function of whole vectors."""
        return () if not self.is_vector else (8, 16) if self._element == "float32" else (8,)

    def _vector_text(self, lanes: int) -> str:
        """Return the C function of vectors."""
        definition, kind = self.definition, vector_type(self._element, lanes)
        new = {letter: kind for letter, _ in self.types} | {ctype(self._element): kind}
        functions = definition.words - {p.name for p in (*definition.inputs, *definition.outputs)}
        new |= {word: f"{word}_{kind}" for word in functions if (word, self._element) in VECTOR_FAMILIES}
        text = self.translate(definition.operation, new)
        text = "".join(
            f"(({kind})({t.text}))" if t.kind == "number" and is_float_literal(t.text) else t.text for t in tokens(text)
        )
        takes = [f"const {kind} _i{k}" for k in range(len(definition.inputs))]
        takes += [f"{kind} *const _o{k}" for k in range(len(definition.outputs))]
        declares = [f"const {kind} {p.name} = _i{k};" for k, p in enumerate(definition.inputs)]
        declares += [f"{kind} {p.name} = 0;" for p in definition.outputs]
        stores = [f"*_o{k} = {p.name};" for k, p in enumerate(definition.outputs)]
        return "\n".join(
            (
                f"inline static void {self.symbol}_{lanes}({', '.join(takes)})",
                f"{{\n{' '.join(declares)}\n{{{definition.frame[0]}",
                SourcePart(self.parts[-1].title, text).marked,
                line_directive(_GENERATED),
                f"{definition.frame[1]};}}\n{' '.join(stores)}\n}}\n",
            )
        )

    # Calls

    def statements(self, lanes: int) -> str:
        """Return statements that assign ``o0..`` from ``i0..``; raw arrays are pointers ``b_i0..`` and ``b_o0..``."""
        emitter = Emitter(lanes)
        if self.definition.is_indexed:
            return self._indexed_call(emitter)
        inputs = [emitter.input(f"i{k}", dtype) for k, dtype in enumerate(self.input_dtypes)]
        return emitter.body(self.emit(emitter, inputs))

    def emit(self, emitter: Emitter, inputs: Sequence[Scalar]) -> tuple[Scalar, ...]:
        """Write the call for all lanes; return the outputs."""
        widened = [emitter.bind(v.promote_half() if isinstance(v, Value) else v) for v in inputs]
        base = f"u{len(emitter.statements)}"
        if emitter.count == 1 or emitter.count in self.vector_lanes:
            emitter.raw("\n".join(self._whole_call(emitter, widened, base)))
        elif self.operations > UNROLLED_STATEMENTS or self.is_long:
            emitter.raw("\n".join(self._loop(emitter, widened, base)))
        else:
            emitter.raw("\n".join(self._call_by_lane(emitter, widened, base)))
        emitter.dtypes.update(self.dtypes)
        emitter.preambles.update(dict.fromkeys(self.preambles))
        computed_dtypes = enumerate(map(computed, self.output_dtypes))
        results = [emitter.input(f"{base}_o{k}", dtype) for k, dtype in computed_dtypes]
        return tuple(emitter.cast(r, dtype) for r, dtype in zip(results, self.output_dtypes, strict=True))

    def _whole_call(self, emitter: Emitter, inputs: Sequence[Scalar], base: str) -> Iterator[str]:
        """Yield a call of the function of one element, or of vectors."""
        suffix = "" if emitter.count == 1 else f"_{emitter.count}"
        outputs = [f"{base}_o{k}" for k in range(len(self.output_dtypes))]
        for name, dtype in zip(outputs, self.output_dtypes, strict=True):
            yield f"{vector_type(computed(dtype), emitter.count)} {name};"
        arguments = [*(_whole(value) for value in inputs), *(f"&{name}" for name in outputs)]
        yield f"{self.symbol}{suffix}({', '.join(arguments)});"

    def _call_by_lane(self, emitter: Emitter, inputs: Sequence[Scalar], base: str) -> Iterator[str]:
        """Yield a call for each lane: components of vectors have no address."""
        lanes = range(emitter.count)
        for q in lanes:
            for k, dtype in enumerate(self.output_dtypes):
                yield f"{self._passed(dtype)} {base}_{k}_{q:x};"
            outputs = (f"&{base}_{k}_{q:x}" for k in range(len(self.output_dtypes)))
            yield f"{self.symbol}({', '.join((*(_lane(v, f's{q:x}') for v in inputs), *outputs))});"
        for k, dtype in enumerate(self.output_dtypes):
            kind = vector_type(computed(dtype), emitter.count)
            yield f"const {kind} {base}_o{k} = ({kind})({', '.join(f'{base}_{k}_{q:x}' for q in lanes)});"

    def _loop(self, emitter: Emitter, inputs: Sequence[Scalar], base: str) -> Iterator[str]:
        """Yield a loop over the lanes, through arrays: a long function is there once."""
        count = emitter.count
        aligned = "__attribute__((aligned(sizeof({}))))"
        for k, value in enumerate(inputs):
            parts = (value.real, value.imag) if isinstance(value, Complex) else (value,)
            for name, piece in zip((f"{base}_i{k}", f"{base}_i{k}_imag"), parts, strict=False):
                kind = emitter.type(piece.dtype)
                yield f"{ctype(piece.dtype)} {name}[{count}] {aligned.format(kind)}; *({kind} *){name} = {piece.text};"
        for k, dtype in enumerate(self.output_dtypes):
            kind = vector_type(computed(dtype), count)
            yield f"{self._passed(dtype)} {base}_a{k}[{count}] {aligned.format(kind)};"
        arguments = [
            f"({ctype(v.dtype)})({base}_i{k}[q], {base}_i{k}_imag[q])" if isinstance(v, Complex) else f"{base}_i{k}[q]"
            for k, v in enumerate(inputs)
        ]
        arguments += [f"&{base}_a{k}[q]" for k in range(len(self.output_dtypes))]
        yield f"for (int q = 0; q < {count}; ++q) {self.symbol}({', '.join(arguments)});"
        for k, dtype in enumerate(self.output_dtypes):
            kind = vector_type(computed(dtype), count)
            yield f"const {kind} {base}_o{k} = *({kind} *){base}_a{k};"

    def call(self, more: Sequence[str]) -> str:
        """Return statements that call the function of one element, and assign ``o0..``; as `statements`.

        `more`: arguments for the further parameters of the definition.
        """
        return self._indexed_call(Emitter(1), more)

    def _indexed_call(self, emitter: Emitter, more: Sequence[str] = ()) -> str:
        """Return the statements of a kernel that has names for the number of the element and of elements."""
        arguments, outputs = list(more), []
        for k, (p, dtype) in enumerate(zip(self.definition.inputs, self.input_dtypes, strict=True)):
            if p.is_raw:
                arguments += self._raw_arguments(p, f"i{k}")
                continue
            value = emitter.input(f"i{k}", dtype)
            arguments.append(_whole(emitter.bind(value.promote_half() if isinstance(value, Value) else value)))
        lines = []
        for k, (p, dtype) in enumerate(zip(self.definition.outputs, self.output_dtypes, strict=True)):
            if p.is_raw:
                arguments += self._raw_arguments(p, f"o{k}")
                continue
            lines.append(f"{ctype(computed(dtype))} u_o{k};")
            arguments.append(f"&u_o{k}")
            outputs.append((k, dtype))
        arguments += ["element", "elements"] if self.definition.is_indexed else []
        emitter.raw("\n".join((*lines, f"{self.symbol}({', '.join(arguments)});")))
        for k, dtype in outputs:
            result = emitter.cast(emitter.input(f"u_o{k}", computed(dtype)), dtype)
            emitter.raw(f"o{k} = {_whole(result)};")
        return "\n".join(emitter.statements)

    def _raw_arguments(self, parameter: Parameter, array: str) -> list[str]:
        arguments = [f"b_{array}"]
        if f"{parameter.name}_size" in self.definition.words:
            arguments.append(f"size_{array}")
        if f"{parameter.name}_shape" in self.definition.words:
            arguments.append(f"shape_{array}")
        return arguments


def _whole(value: Scalar) -> str:
    """Return the C expression of a value of all lanes; the parts of a complex number are a pair."""
    if isinstance(value, Complex):
        return f"({ctype(value.dtype)})({value.real.text}, {value.imag.text})"
    return value.text


def _lane(value: Scalar, component: str) -> str:
    """Return the C expression of one lane."""
    if isinstance(value, Complex):
        return f"({ctype(value.dtype)})(({value.real.text}).{component}, ({value.imag.text}).{component})"
    return f"({value.text}).{component}"


def _is_plain(definition: Definition, letters: frozenset[str], element: str) -> bool:
    """Return whether an operation means for vectors what it means for numbers.

    It has assignments of sums, products, quotients and functions alone, of numbers of one dtype: no conditions, no
    comparisons, no integers but factors and terms, no types of its own.
    """
    if definition.preamble.strip() or definition.options:
        return False
    kinds = letters | {ctype(element)}
    names = {p.name for p in (*definition.inputs, *definition.outputs)}
    parts = [t for t in tokens(definition.operation) if t.kind not in ("space", "comment")]
    is_call = [a.kind == "word" and b.text == "(" for a, b in pairwise(parts)] + [False] * bool(parts)
    declares = [a.text in kinds and b.kind == "word" for a, b in pairwise(parts)] + [False] * bool(parts)
    names |= {b.text for (a, b), found in zip(pairwise(parts), declares, strict=False) if found}
    for t, calls, is_type in zip(parts, is_call, declares, strict=True):
        allowed = _OF_ONE | _OF_SEVERAL if calls else names
        if t.kind == "word" and not is_type and t.text not in allowed:
            return False
        if t.kind == "string" or (t.kind == "other" and t.text not in _PLAIN_OPERATORS):
            return False
    return _has_plain_numbers(parts, any(t.text in _OF_SEVERAL for t in parts))


def _has_plain_numbers(parts: Sequence[Token], calls_several: bool) -> bool:
    """Return whether integers are decimal and no arguments of functions of several numbers, and nothing is compared."""
    integers = [k for k, t in enumerate(parts) if t.kind == "number" and not is_float_literal(t.text)]
    if any(a.text == b.text == "=" for a, b in pairwise(parts)) or not all(parts[k].text.isdigit() for k in integers):
        return False
    # pow(x, 2): an integer is no argument of a function of vectors.
    alone = (parts[k - 1].text in "(," and parts[k + 1].text in ",)" for k in integers if 0 < k < len(parts) - 1)
    return not (calls_several and any(alone))


def _explain(error: CompilationError) -> CompilationError | None:
    """Return the error with the lines that the user wrote, if the text of a user's function is wrong."""
    log = located(error.log, error.source)
    for title, function in list(_known.items()):
        if title in log and f'"{title}"' in error.source:
            parts = [part._replace(compiled=function.translate(part.text)) for part in function.parts]
            return build_error(original_names(log), error.source, str(function), parts)
    return None


explain_build_errors(_explain)
