"""Each family of Ops is registered, once, and says what the rest of the program reads of it by the right names."""

import ast
import sys
from functools import cache
from pathlib import Path

import pytest
from pytensor.graph.op import Op
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.linalg.decomposition.eigen import Eigh

import pytensor_cl
from pytensor_cl.ops import registry
from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.cumop import GpuCumOp

PACKAGE = Path(pytensor_cl.__file__).parent


@cache
def _made_and_read():
    """Names of the classes that the package registers, calls or inherits from, and of the attributes that it reads."""
    made, read = set(), set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                made.add(node.func.id)
            elif isinstance(node, ast.Attribute):
                read.add(node.attr)
            elif isinstance(node, ast.ClassDef):
                made.update(map(ast.unparse, node.bases))
                if any("register_" in ast.unparse(d) for d in node.decorator_list):
                    made.add(node.name)
    return made, read


def _device_ops():
    found = [GpuOp]
    for kind in found:
        found += [sub for sub in kind.__subclasses__() if sub.__module__.startswith("pytensor_cl.ops")]
    return sorted(set(found[1:]), key=lambda kind: kind.__name__)


def _own(kind):
    """Public names that a class defines and no class above it has."""
    above = {name for base in kind.__mro__[1:] for name in (*vars(base), *getattr(base, "__annotations__", ()))}
    return {name: value for name, value in vars(kind).items() if not name.startswith("_") and name not in above}


def test_every_file_is_imported():
    files = (path.relative_to(PACKAGE.parent).with_suffix("").parts for path in (PACKAGE / "ops").rglob("*.py"))
    names = {".".join(parts).removesuffix(".__init__") for parts in files}
    assert names <= set(sys.modules)


@pytest.mark.parametrize("kind", _device_ops(), ids=lambda kind: kind.__name__)
def test_a_class_is_registered_or_made_by_something(kind):
    made, _ = _made_and_read()
    assert kind.__name__ in made


@pytest.mark.parametrize("kind", _device_ops(), ids=lambda kind: kind.__name__)
def test_what_a_class_says_is_read(kind):
    """A name that no class above declares and nothing reads is misspelt."""
    _, read = _made_and_read()
    assert set(_own(kind)) - read == set()
    if not kind.__name__.startswith("_"):
        assert not {name for name, value in _own(kind).items() if isinstance(value, bool | tuple)}


def test_a_misspelt_attribute_is_seen():
    class GpuSomething(GpuOp):
        is_memory_bond = True

    assert "is_memory_bond" in _own(GpuSomething)


def test_an_op_cannot_be_registered_twice():
    with pytest.raises(ValueError, match="CumOp is registered already"):
        registry.register_lift(CumOp, numba_safe=True)(GpuCumOp)


def test_a_registration_says_whether_numba_may_run_the_op():
    with pytest.raises(TypeError, match="numba_safe"):
        registry.register_lift(Op)(GpuCumOp)
    assert registry.is_numba_safe(CumOp(axis=0))
    assert not registry.is_numba_safe(Eigh())
