"""Structs: the typedef, the bytes and the NumPy dtype agree, and OpenCL C has the same layout."""

import struct

import numpy as np
import pytest

from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource

TYPES = ("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "float", "double", "float2", "double2")
PAIR = Struct(("int", "first"), ("double", "second"), name="pair")


def test_typedef():
    plan = Struct(("long", "rows shape[2]"), ("float", "alpha"), (PAIR, "pairs[2]"), name="plan")
    assert plan.c_typedef() == (
        "typedef struct {\n    long rows, shape[2];\n    float alpha;\n    pair pairs[2];\n} plan;"
    )
    assert plan.c_typedef("other", "steps in elements").startswith("typedef struct {  // steps in elements\n")
    assert plan.renamed("third").c_typedef().endswith("} third;")


def test_long_declarations_are_wrapped():
    text = Struct(("long", " ".join(f"member{k}" for k in range(40)))).c_typedef("many")
    assert max(map(len, text.splitlines())) <= 120
    assert text.count("member") == 40


def test_pack_is_the_layout_of_c():
    plan = Struct(("char", "a"), ("long", "b"), ("short", "c[3]"), ("int", "d"))
    assert plan.pack(a=-1, b=2, c=(3, 4, 5), d=6) == struct.pack("@bq3hi0q", -1, 2, 3, 4, 5, 6)
    assert plan.pack(a=-1, b=2, c=(3, 4, 5), d=6) == plan.pack_values(-1, 2, 3, 4, 5, 6)
    assert plan.size == 32


def test_unpack_returns_what_was_packed():
    plan = Struct((PAIR, "one two[2]"), ("float2", "z"), ("uchar", "flag"))
    packed = plan.pack(
        one={"first": 1, "second": 2.5}, two=(PAIR.pack(first=3, second=4), {"first": 5, "second": 6}), z=1 + 2j, flag=7
    )
    record = plan.unpack(packed)
    assert record["one"]["second"] == 2.5
    assert record["two"]["first"].tolist() == [3, 5]
    assert record["z"] == 1 + 2j
    assert record["flag"] == 7
    assert plan.dtype.itemsize == plan.size == len(packed)


def test_arrays_of_several_dimensions():
    plan = Struct(("int", "strides[2][3]"), name="plan")
    assert plan.c_typedef() == "typedef struct {\n    int strides[2][3];\n} plan;"
    packed = plan.pack(strides=((1, 2, 3), (4, 5, 6)))
    assert packed == struct.pack("6i", *range(1, 7))
    assert plan.unpack(packed)["strides"].tolist() == [[1, 2, 3], [4, 5, 6]]
    with pytest.raises(ValueError, match="got 2 for 3"):
        plan.pack(strides=((1, 2), (3, 4)))


def test_errors():
    plan = Struct(("int", "a"), ("int", "b[2]"), name="plan")
    with pytest.raises(TypeError, match=r"missing \['b'\], unexpected \['c'\]"):
        plan.pack(a=1, c=2)
    with pytest.raises(ValueError, match="got 3 for 2"):
        plan.pack(a=1, b=(2, 3, 4))
    with pytest.raises(struct.error):
        plan.pack(a=1 << 31, b=(0, 0))
    with pytest.raises(ValueError, match="used twice"):
        Struct(("int", "a"), ("long", "a"))
    with pytest.raises(ValueError, match="no name"):
        Struct(("int", "a-b"))
    with pytest.raises(ValueError, match="not a type"):
        Struct(("int64", "a"))
    with pytest.raises(ValueError, match="needs a name"):
        Struct(("int", "a")).c_typedef()


def test_repr_distinguishes_nested_structs():
    inner = [Struct((kind, "x"), name="inner") for kind in ("int", "long")]
    assert repr(Struct((inner[0], "a"), name="o")) != repr(Struct((inner[1], "a"), name="o"))


def _random_struct(rng, types, name, nested=()):
    rows = []
    for k in range(int(rng.integers(1, 8))):
        kind = nested[0] if nested and rng.random() < 0.3 else str(rng.choice(types))
        rows.append((kind, f"m{k}" + (f"[{rng.integers(1, 5)}]" if rng.random() < 0.4 else "")))
    return Struct(*rows, name=name)


def test_the_device_has_the_same_layout(context, rng):
    """Offsets and sizes in a kernel of random structs."""
    types = [t for t in TYPES if context.info.has_fp64 or "double" not in t]
    for number in range(4):
        name = f"probe_{number}_{rng.integers(1 << 32)}"
        inner = _random_struct(rng, types, "inner_struct")
        outer = _random_struct(rng, types, "outer_struct", nested=(inner,))
        offsets = "\n".join(
            f"    out[{k}] = (const __private char *)&p.{field.name} - (const __private char *)&p;"
            for k, field in enumerate(outer.fields)
        )
        text = (
            f"{inner.c_typedef()}\n{outer.c_typedef()}\n__kernel void {name}(__global int *out)\n{{\n"
            f"    outer_struct p;\n{offsets}\n    out[{len(outer.fields)}] = sizeof(p);\n}}\n"
        )
        result = context.from_host(np.zeros(len(outer.fields) + 1, "int32"))
        context.kernel(KernelSource(name, text), None).launch(context.queue, (1,), (1,), result.buffer)
        found = result.to_host()
        assert found.tolist() == [*(field.offset for field in outer.fields), outer.size], text
