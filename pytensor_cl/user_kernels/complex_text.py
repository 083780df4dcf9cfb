"""Expressions that OpenCL C computes for each part of complex numbers, which are pairs there: they would be wrong."""

from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import NamedTuple

from pytensor_cl.user_kernels.c_text import Token, replace_subscripts, tokens

_COMPLEX = "cmul cdiv conj cabs carg cexp clog csqrt csin ccos cpow creal cimag cpolar"
OF_COMPLEX = frozenset(_COMPLEX.split(" "))
"""Functions of complex numbers, ``kernels/user_kernels/complex.mako``."""

_PRODUCTS = {"*": "cmul", "/": "cdiv"}
_REALS = (
    "acos acosh asin asinh atan atan2 atanh cbrt cos cosh exp exp2 exp10 expm1 fabs log log2 log10 log1p pow pown powr "
    "rsqrt sin sinh sqrt tan tanh"
)
_OF_REALS = frozenset(_REALS.split(" "))
_ADVICE = {"fabs": "cabs", "pown": "cpow", "powr": "cpow"}
_NONE = Token("", "")


class PartWise(NamedTuple):
    """An expression of complex numbers that is wrong; `advice`: what computes it."""

    text: str
    advice: str


def first_part_wise(text: str, names: Collection[str], types: Collection[str], own: Collection[str]) -> PartWise | None:
    """Return the first expression that OpenCL C computes for each part of a complex number; None if there is none.

    `names`: names of complex numbers and of arrays of them; `types`: names of complex types, whose variables are
    complex too; `own`: functions that the user defined.
    """
    for name in names:
        text = replace_subscripts(text, name, lambda _, name=name: name)  # type: ignore[misc]
    read = [token for token in tokens(text) if token.kind not in ("space", "comment")]
    declared = {b.text for a, b in pairwise(read) if a.text in types and b.kind == "word"}
    return next(_Reader(read, frozenset(names) | declared, frozenset(own)).found(), None)


class _Reader:
    """Reads the tokens of an operation.

    `complex_names`: names of complex numbers; `own`: functions that the user defined.
    """

    def __init__(self, read: list[Token], complex_names: frozenset[str], own: frozenset[str]) -> None:
        self._read, self._names, self._own = read, complex_names, own

    def _at(self, place: int) -> Token:
        return self._read[place] if 0 <= place < len(self._read) else _NONE

    def _is_complex(self, place: int) -> bool:
        """Return whether a token is a whole complex number, and no member of one."""
        around = (self._at(place - 1).text, self._at(place + 1).text)
        return self._at(place).text in self._names and "." not in around

    def _is_number(self, place: int) -> bool:
        return self._at(place).kind == "number"

    def found(self) -> Iterator[PartWise]:
        """Yield the expressions."""
        for place, token in enumerate(self._read):
            one = self._operator(place, token.text) if token.kind == "other" else self._call(place, token.text)
            if one is not None:
                yield one

    def _call(self, place: int, name: str) -> PartWise | None:
        if name not in _OF_REALS - self._own or self._at(place + 1).text != "(" or not self._is_complex(place + 2):
            return None
        ends = self._at(place + 3).text
        if ends not in (")", ","):
            return None
        known = _ADVICE.get(name, f"c{name}")
        advice = f"write {known}(...)" if known in OF_COMPLEX else "there is none for complex numbers"
        return PartWise(f"{name}({self._at(place + 2).text}{')' if ends == ')' else ', ...)'}", advice)

    def _operator(self, place: int, operator: str) -> PartWise | None:
        if operator in _PRODUCTS:
            return self._product(place, operator)
        if operator in "+-":
            return self._sum(place, operator)
        if operator == "=":
            return self._assignment(place)
        return None

    def _product(self, place: int, operator: str) -> PartWise | None:
        left = place - 1
        right = place + 1 + (self._at(place + 1).text == "=")
        is_quotient_of_number = operator == "/" and self._is_number(left)
        if not self._is_complex(right) or not (self._is_complex(left) or is_quotient_of_number):
            return None
        a, b = self._at(left).text, self._at(right).text
        if is_quotient_of_number:
            return PartWise(f"{a} / {b}", f"write cdiv((T)({a}, 0), {b}), where T is the complex type")
        return PartWise(f"{a} {operator} {b}", f"write {_PRODUCTS[operator]}({a}, {b})")

    def _sum(self, place: int, operator: str) -> PartWise | None:
        left, right = place - 1, place + 1
        is_after = self._is_complex(left) and self._is_number(right) and self._at(right + 1).text not in _PRODUCTS
        is_before = self._is_complex(right) and self._is_number(left) and self._at(left - 1).text not in _PRODUCTS
        if not is_after and not is_before:
            return None
        number = self._at(right if is_after else left).text
        text = f"{self._at(left).text} {operator} {self._at(right).text}"
        return PartWise(text, f"write (T)({number}, 0) for the number, where T is the complex type")

    def _assignment(self, place: int) -> PartWise | None:
        """Return an assignment of a number that is not 0, which sets the imaginary part to it too."""
        compound = self._at(place - 1).text in ("+", "-")
        name, number, end = place - 1 - compound, self._at(place + 1), self._at(place + 2)
        if not self._is_complex(name) or number.kind != "number" or end.text not in ("", ";") or _is_zero(number.text):
            return None
        text = f"{self._at(name).text} {self._at(place - 1).text if compound else ''}= {number.text}"
        return PartWise(text, f"write (T)({number.text}, 0) for the number, where T is the complex type")


def _is_zero(number: str) -> bool:
    return not any(digit in number.lower().partition("e")[0] for digit in "123456789")
