"""Elementwise kernels that users write, on arrays, against NumPy."""

import pickle

import numpy as np
import pyopencl
import pytest

from pytensor_cl import ElementwiseKernel
from pytensor_cl.errors import CompilationError, UnsupportedDtype
from pytensor_cl.runtime.device import discover
from pytensor_cl.runtime.interchange import from_buffer
from pytensor_cl.runtime.registry import add_context, get_context
from pytensor_cl.user_kernels.c_text import defined_names, is_free, replace_words, single_precision
from pytensor_cl.user_kernels.elementwise import user_function
from pytensor_cl.user_kernels.routine import Indexed, UserElemwise

TWICE = ElementwiseKernel("T x", "T z", "z = 2 * x", "twice")
PRODUCT = ElementwiseKernel("T x, T y", "T z", "z = x * y", "product")
BOTH = ElementwiseKernel("T x, T y", "T s, T d", "s = x + y; d = x - y", "sum_and_difference")
# one kernel with everything that a function of vectors cannot have
MIXED = ElementwiseKernel(
    "float16 h, bool m, complex64 c, int8 k",
    "float16 p, bool q, complex64 r, int8 s",
    "p = m ? h : 0.1; if (k < 0) { s = -k; return; } q = k; r = cmul(c, c); s = k + 1;",
    "mixed",
)
ROLL = ElementwiseKernel("raw T x, T y, int64 k", "T z", "z = x[(i + k) % x_size] + y * x_shape[0] + n", "roll")


def host(x):
    return np.asarray(x)


def test_shapes_and_strides(context, rng):
    x = rng.normal(size=(4, 6)).astype("float32")
    r = context.from_host(x)
    for view in (np.s_[:], np.s_[::-1, ::2], np.s_[1:2], np.s_[:, 3], np.s_[2, 1], np.s_[:0]):
        np.testing.assert_array_equal(host(TWICE(r[view])), 2 * x[view], strict=True)
    np.testing.assert_array_equal(host(TWICE(r.T)), 2 * x.T, strict=True)
    for a, b in (((), ()), ((slice(0, 1),), ()), ((), (slice(None), slice(0, 1))), ((), (0,)), ((), (0, 0))):
        np.testing.assert_array_equal(host(PRODUCT(r[a], r[b])), x[a] * x[b], strict=True)
    wide = context.from_host(x[:, None, :, None] * np.ones((1, 3, 1, 5), "float32"))
    np.testing.assert_array_equal(host(TWICE(wide)), 2 * host(wide), strict=True)


def test_several_outputs_and_numbers(context, rng):
    x, y = rng.integers(-9, 9, (2, 3, 4)).astype("int32")
    s, d = BOTH(context.from_host(x), context.from_host(y))
    np.testing.assert_array_equal(host(s), x + y, strict=True)
    np.testing.assert_array_equal(host(d), x - y, strict=True)
    for number in (3, np.int8(-2), np.array(5)):
        np.testing.assert_array_equal(host(PRODUCT(context.from_host(x), number)), x * np.int32(number), strict=True)
    assert host(PRODUCT(2, 3, device=context.name)) == 6
    assert host(PRODUCT(np.float32(2), np.float32(1.5), device=context.name)).dtype == "float32"


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float32", "float64", "complex64"])
def test_placeholders_take_every_dtype(context, rng, dtype):
    x = rng.integers(0, 2 if dtype == "bool" else 9, 40).astype(dtype)
    same = ElementwiseKernel("T x, U y", "T z, U w", "z = x; w = y", "same")
    z, w = same(context.from_host(x), context.from_host(x[::-1].real.astype("int32")))
    np.testing.assert_array_equal(host(z), x, strict=True)
    np.testing.assert_array_equal(host(w), x[::-1].real.astype("int32"), strict=True)


def test_dtypes_that_c_has_not(context, rng):
    h, m = rng.normal(size=50).astype("float16"), rng.integers(0, 2, 50).astype("bool")
    c, k = (rng.normal(size=50) + 1j * rng.normal(size=50)).astype("complex64"), rng.integers(-9, 9, 50).astype("int8")
    p, q, r, s = MIXED(*map(context.from_host, (h, m, c, k)))
    np.testing.assert_array_equal(host(p), np.where(m, h, np.float16(0.1)), strict=True)
    np.testing.assert_array_equal(host(q), k > 0, strict=True)
    np.testing.assert_allclose(host(r), np.where(k < 0, 0, c * c), rtol=1e-6)
    np.testing.assert_array_equal(host(s), np.where(k < 0, -k, k + 1), strict=True)


def test_functions_of_complex_numbers(context, rng):
    c, d = (rng.normal(size=(2, 60)) + 1j * rng.normal(size=(2, 60))).astype("complex64")
    names = {"cexp(c)": np.exp, "clog(c)": np.log, "csqrt(c)": np.sqrt, "csin(c)": np.sin, "ccos(c)": np.cos}
    names |= {"conj(c)": np.conj, "cpolar(cabs(c), carg(c))": lambda c: c}
    both = {"cdiv(c, d)": np.divide, "cpow(c, d)": np.power}
    results = [*names, *both, "(float2)(creal(c), cimag(d))"]
    outputs = ", ".join(f"T r{k}" for k in range(len(results)))
    kernel = ElementwiseKernel("T c, T d", outputs, "; ".join(f"r{k} = {e}" for k, e in enumerate(results)))
    *got, last = map(host, kernel(context.from_host(c), context.from_host(d)))
    expected = [*(f(c) for f in names.values()), *(f(c, d) for f in both.values())]
    for name, mine, numpys in zip(results, got, expected, strict=False):
        np.testing.assert_allclose(mine, numpys, rtol=3e-5, atol=1e-6, err_msg=name)
    np.testing.assert_array_equal(last, c.real + 1j * d.imag, strict=True)


def test_numbers_of_elements_and_raw_arrays(context, rng):
    x, y = rng.integers(0, 99, (2, 3, 4)).astype("float32")
    r = context.from_host(x)
    expected = np.roll(x.ravel(), -2).reshape(3, 4) + y * 3 + 12
    np.testing.assert_array_equal(host(ROLL(r, context.from_host(y), 2)), expected, strict=True)
    expected = np.roll(x.T.ravel(), -2).reshape(3, 4) + y[:1] * 4 + 12
    wide = context.from_host(y)[:1].with_layout(context.from_host(y)[:1].layout.broadcast_to((3, 4)))
    got = ROLL(r.T, wide, 2)
    assert host(got).shape == (3, 4)
    number = ElementwiseKernel("raw float16 x", "int64 z, float32 w", "z = _ind.size() * i; w = x[n - 1 - i]", "number")
    z, w = number(context.from_host(np.arange(5, dtype="float16")), size=5)
    np.testing.assert_array_equal(host(z), 5 * np.arange(5), strict=True)
    np.testing.assert_array_equal(host(w), np.arange(5, dtype="float32")[::-1], strict=True)
    count = ElementwiseKernel("", "int32 z", "z = i")
    np.testing.assert_array_equal(host(count(size=3, device=context.name)), np.arange(3, dtype="int32"), strict=True)
    assert [a.shape for a in number(context.from_host(np.zeros(3, "float16")), size=0)] == [(0,), (0,)]


def test_raw_outputs(context):
    scatter = ElementwiseKernel("int32 k", "raw float32 z", "z[k] = i", "scatter", no_return=True)
    k = np.array([4, 0, 2], "int32")
    z = context.from_host(np.full((5, 2), -1, "float32"))
    assert scatter(context.from_host(k), z[:, 1]) is None
    expected = np.full((5, 2), -1, "float32")
    expected[k, 1] = [0, 1, 2]
    np.testing.assert_array_equal(host(z), expected)


def test_outputs_that_are_given(context, rng):
    x, y = rng.normal(size=(2, 4, 6)).astype("float32")
    rx, ry = context.from_host(x), context.from_host(y)
    z = context.from_host(np.zeros((4, 12), "float32"))
    made = PRODUCT(rx, ry, z[:, ::2])
    assert made.buffer is z.buffer
    np.testing.assert_array_equal(host(z)[:, ::2], x * y)
    assert not host(z)[:, 1::2].any()
    np.testing.assert_array_equal(host(PRODUCT(rx, ry, None)), x * y)
    PRODUCT(rx, ry, ry)  # in place
    np.testing.assert_array_equal(host(ry), x * y)
    square = context.from_host(x[:, :4])
    PRODUCT(square, square.T, square)  # the transposed input is copied first
    np.testing.assert_array_equal(host(square), x[:, :4] * x[:, :4].T)
    line = context.from_host(np.arange(6, dtype="float32"))
    TWICE(line[:-1], line[1:])
    np.testing.assert_array_equal(host(line), [0, 0, 2, 4, 6, 8])
    memory = pyopencl.Buffer(context.cl_context, 0, 8 * 4096)  # of elements of two sizes in the same layout
    wide, narrow = (from_buffer(memory, (4096,), dtype) for dtype in ("int64", "int32"))
    narrow[...] = context.from_host(np.arange(4096, dtype="int32"))
    ElementwiseKernel("int32 x", "int64 z", "z = x")(narrow, wide)
    np.testing.assert_array_equal(host(wide), np.arange(4096))
    ROLL(line, 0, 1, line)  # a raw input that is the output is copied
    np.testing.assert_array_equal(host(line), np.array([0, 2, 4, 6, 8, 0]) + 6)
    assert isinstance(ElementwiseKernel("T x", "T z", "z = x", return_tuple=True)(line), tuple)


def test_preamble_and_options(context, tmp_path):
    x = np.arange(4, dtype="float32")
    r = context.from_host(x)
    preamble = """
    #define SCALE 0.5
    typedef struct { float a, b; } pair;
    static float helper(const pair p) { return p.a * SCALE + p.b; }
    """
    with_helper = ElementwiseKernel("T x", "T z", "pair p = {x, 1}; z = helper(p)", "f", preamble=preamble)
    other = ElementwiseKernel("T x", "T z", "z = helper(x)", "f", preamble="float helper(float x) { return -x; }")
    np.testing.assert_array_equal(host(with_helper(r)), x / 2 + 1, strict=True)
    np.testing.assert_array_equal(host(other(r)), -x, strict=True)
    for width in (3, 4):
        scaled = ElementwiseKernel("T x", "T z", "z = WIDTH * x", "f", options=(f"-DWIDTH={width}",))
        np.testing.assert_array_equal(host(scaled(r)), width * x, strict=True)
    for scale in (7, 8):  # a changed header is seen
        (tmp_path / "scale.h").write_text(f"#define SCALE {scale}\n")
        arguments = {"preamble": '#include "scale.h"', "options": (f"-I{tmp_path}",)}
        scaled = ElementwiseKernel("T x", "T z", "z = SCALE * x", **arguments)
        np.testing.assert_array_equal(host(scaled(r)), scale * x, strict=True)


def test_functions_of_vectors(context, rng):
    """Sums, products and functions are computed by vectors, which is invisible but for the time."""
    x = rng.normal(size=100).astype("float32")
    operation = "T a = exp(-x) * 0.5; z = (a + 1) / 3 - tanh(x); w = pow(a, x);"
    vectors = ElementwiseKernel("T x", "T z, T w", operation)
    numbers = ElementwiseKernel("T x", "T z, T w", operation, vector=False)
    function = user_function(vectors.definition, (("T", "float32"),))
    assert function.is_vector and not user_function(numbers.definition, (("T", "float32"),)).is_vector
    a = np.exp(-x) * np.float32(0.5)
    for kernel in (vectors, numbers):
        z, w = kernel(context.from_host(x))
        np.testing.assert_allclose(host(z), (a + 1) / 3 - np.tanh(x), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(host(w), a**x, rtol=1e-5)


@pytest.mark.parametrize(
    "operation",
    ["z = x > 0", "z = x > 0 ? x : -x", "if (x) z = x", "z = pow(x, 2)", "z = f(x)", "z = x == 1", "int k = x; z = k"],
)
def test_what_is_not_computed_by_vectors(operation):
    kernel = ElementwiseKernel("T x", "T z", operation)
    assert not user_function(kernel.definition, (("T", "float32"),)).is_vector


@pytest.mark.parametrize("schedule", ["cpu", "simt"])
def test_routines(context, rng, schedule):
    """Both schedules, with functions of vectors, by lane, in a loop over lanes, and of raw arrays."""
    x = context.from_host(rng.normal(size=(9, 70)).astype("float32"))
    types = (("T", "float32"),)
    short = ElementwiseKernel("T x", "T z", "z = x > 0 ? x : 0")
    long = ElementwiseKernel("T x", "T z", "z = x; for (int k = 0; k < 3; ++k) { if (z > 0) z = z - 1; }")
    expected = host(x)
    for _ in range(3):
        expected = np.where(expected > 0, expected - 1, expected)
    for kernel, result in ((TWICE, 2 * host(x)), (short, np.maximum(host(x), 0)), (long, expected)):
        function = user_function(kernel.definition, types)
        routine = UserElemwise(context, function, ((False, False),), 2, (False,), schedule)
        for view in (np.s_[:], np.s_[:, ::-2]):
            np.testing.assert_array_equal(host(routine(x[view])[0]), result[view])
    function = user_function(ROLL.definition, types)
    routine = Indexed(context, function, (2, 2, None, 2), schedule)
    got = routine(x[:, ::2], x[:, ::2], np.int64(1))[0]
    y = host(x)[:, ::2]
    np.testing.assert_allclose(host(got), np.roll(y.ravel(), -1).reshape(y.shape) + y * 9 + y.size, rtol=1e-6)


def test_identity_and_pickling(context):
    again = ElementwiseKernel("T x", "T z", "z = 2 * x", "twice")
    restored = pickle.loads(pickle.dumps(again))
    assert again == TWICE == restored and hash(restored) == hash(TWICE) and again != PRODUCT
    r = context.from_host(np.ones(3, "float32"))
    for kernel in (TWICE, again, restored):
        kernel(r)
    programs = {id(p) for p in context.programs._programs.values()}
    restored(r)
    assert {id(p) for p in context.programs._programs.values()} == programs
    assert (TWICE.name, BOTH.nin, BOTH.nout, BOTH.nargs) == ("twice", 2, 2, 4)
    assert "twice" in repr(TWICE) and "2 * x" in TWICE.source("float32", device=context.name)
    TWICE.compile("float32", device=context.name)


# What is wrong


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("float x", "T z", "z = x"), "write float32 for float of OpenCL C"),
        (("T x", "long z", "z = x"), "out_params: .*write int64 for long of OpenCL C"),
        (("T x", "f4 z", "z = x"), "'f4' is not the full name of a dtype: write float32"),
        (("float32x", "T z", "z = 1"), "is no parameter: write a dtype and a name"),
        (("float31 x", "T z", "z = x"), "'float31' is no NumPy dtype"),
        (("T double", "T z", "z = 1"), "'double' is a word of OpenCL C: choose another name"),
        (("T i", "T z", "z = i"), "'i' is the number of the element"),
        (("T M_PI", "T z", "z = M_PI"), "'M_PI' is a macro of OpenCL C"),
        (("T _x", "T z", "z = _x"), "begin with an underscore"),
        (("T x, T x", "T z", "z = x"), "two parameters are called 'x'"),
        (("T x", "T T", "T = x"), "'T' is a parameter and the placeholder"),
        (("T x", "", "x"), "has no output"),
        (("T x", "T z", "y = x"), "does not assign to the output 'z'"),
        (("T x", "T z", "return x; z = 1"), "return takes no value"),
        (("T x", "T z", "z = x; }"), "'}' closes no '{'"),
        (("T x", "T z", "z = (x;"), r"line 1: '\(' is not closed"),
        (("T x", "T z", "z = x; /* z"), "a comment does not end"),
        (("T x", "T z", "z = x", "no name"), "is a name of C, not 'no name'"),
    ],
)
def test_wrong_texts(arguments, message):
    with pytest.raises(ValueError, match=message):
        ElementwiseKernel(*arguments)


def test_wrong_types_of_texts():
    for arguments, options, message in (
        ((b"T x", "T z", "z = x"), {}, "in_params is a string"),
        (("T x", "T z", None), {}, "the operation of kernel 'kernel' is a string"),
        (("T x", "T z", "z = x"), {"options": (3,)}, "options are texts"),
        (("T x", "T z", "z = x"), {"loop_prep": "int a;"}, "there is no loop_prep here"),
        (("T x", "T z", "z = x"), {"grad": 1}, "there is no argument 'grad'"),
    ):
        with pytest.raises(TypeError, match=message):
            ElementwiseKernel(*arguments, **options)


def test_wrong_arguments(context):
    f = context.from_host(np.ones((2, 3), "float32"))
    k = context.from_host(np.ones((2, 3), "int32"))
    readonly = f.copy()
    readonly.readonly = True
    fixed = ElementwiseKernel("int8 x, float32 y", "U z", "z = x * y", "fixed")
    raw = ElementwiseKernel("raw T x", "T z", "z = x[i]", "raw")
    wide = f[:1].with_layout(f[:1].layout.broadcast_to((2, 3)))
    for error, message, call in (
        (
            TypeError,
            r"inputs \(T x, T y\), and then all outputs \(T z\) or none; number .* given: 1",
            lambda: PRODUCT(f),
        ),
        (TypeError, "x is float32 and y is int32, but both are declared T", lambda: PRODUCT(f, k)),
        (TypeError, "x is an array of NumPy, not an array of a device", lambda: TWICE(np.ones(3, "float32"))),
        (TypeError, "x is list, not an array of a device", lambda: TWICE([1, 2])),
        (TypeError, "z is an array of a device, not array", lambda: TWICE(f, np.ones(3))),
        (TypeError, "x is int32, which does not hold 1.5", lambda: PRODUCT(k, 1.5)),
        (TypeError, "no argument says what U of U z is", lambda: fixed(1, f)),
        (TypeError, "y is declared float32, the array has int32", lambda: fixed(1, k, f)),
        (OverflowError, "x is int8, which does not hold 300", lambda: fixed(300, f, f.copy())),
        (ValueError, r"do not fit together \(x: \(2, 3\), y: \(3, 2\)\)", lambda: PRODUCT(f, f.T)),
        (ValueError, "do not fit together", lambda: PRODUCT(f, f, f[:1].copy())),
        (ValueError, r"output d has shape \(1, 3\), not \(2, 3\)", lambda: BOTH(1, 2, f, f[:1].copy())),
        (ValueError, "output z is read-only", lambda: TWICE(f, readonly)),
        (ValueError, "output z repeats elements", lambda: TWICE(f, wide)),
        (ValueError, "outputs s and d overlap", lambda: BOTH(f, f, k := f.copy(), k)),
        (ValueError, "no array says how many elements there are: pass size=", lambda: raw(f)),
        (ValueError, "size= is for calls in which no array says", lambda: TWICE(f, size=3)),
        (ValueError, "is a number of elements, not -1", lambda: raw(f, size=-1)),
        (TypeError, "is a number of elements, not 2.0", lambda: raw(f, size=2.0)),
        (ValueError, "not on 'elsewhere'", lambda: TWICE(f, device="elsewhere")),
        (TypeError, "has 1 placeholders", lambda: TWICE.source()),
    ):
        if "x is int32" in message:
            message = message.replace("x is", "y is")
        with pytest.raises(error, match=message):
            call()


def test_calls_that_are_kept(context):
    """What holds for arrays of the same layouts holds for others, and numbers of the same type."""
    x, a, b = (context.from_host(np.ones(3, "float32")) for _ in range(3))
    BOTH(x, x, a, b)
    with pytest.raises(ValueError, match="outputs s and d overlap"):
        BOTH(x, x, a, a)
    with pytest.raises(OverflowError, match="x is int64, which does not hold 9223372036854775808"):
        TWICE(2**63, device=context.name)
    assert host(TWICE(-3, device=context.name)) == -6


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ("z = x * y", r"'x \* y' in its operation would compute their parts one by one: write cmul\(x, y\)"),
        ("z = 2 / y", r"write cdiv\(\(T\)\(2, 0\), y\)"),
        ("T d = cmul(x, y); z /= d", r"write cdiv\(z, d\)"),
        ("z = x * 2 + 1 - y", r"'1 - y'.*write \(T\)\(1, 0\)"),
        ("z = x.x * y; z += 1.5", r"'z \+= 1.5'.*\(T\)\(1.5, 0\)"),
        ("z = exp(x)", r"write cexp\(...\)"),
        ("z = r[i] * x", r"write cmul\(r, x\)"),
        ("z = r[i] + pow(x, y)", r"'pow\(x, ...\)'.*write cpow"),
        ("z = x * 0.5f + 2 * y / 3 + x.y; z.x = x.x * y.x + 1; z -= cmul(x, y) * pow(x.x, 2.0f)", ""),
    ],
)
def test_parts_of_complex_numbers(operation, message):
    """OpenCL C computes products of float2 part by part."""
    kernel = ElementwiseKernel("T x, T y, raw T r", "T z", operation)
    if not message:
        assert user_function(kernel.definition, (("T", "complex64"),)).symbol
        return
    user_function(kernel.definition, (("T", "float32"),))
    with pytest.raises(TypeError, match=message):
        user_function(kernel.definition, (("T", "complex64"),))


def test_arrays_of_two_devices(context):
    spec = next(e.stable_spec for e in discover())
    add_context("other", spec)
    other = get_context("other").from_host(np.ones(3, "float32"))
    with pytest.raises(ValueError, match=f"x is on '{context.name}' and y on 'other': move one of them"):
        PRODUCT(context.from_host(np.ones(3, "float32")), other)


def test_errors_of_the_build(context):
    r = context.from_host(np.ones(3, "float32"))
    for operation, preamble, expected in (
        ("T d = x;\nz = d * dd;", "", ("in its operation", ">   2 | z = d * dd;", "undeclared identifier 'dd'")),
        ("z = helper(x);", "float helper(float x) {\n  return y; }", ("in its preamble", ">   2 |   return y; }")),
        ("z = x +;", "", (">   1 | z = x +;", "expected expression")),
        ("z = threadIdx.x;", "", ("get_local_id(0)",)),
        ("z = x;\nfloat32 y = x;", "", ("the type float32 is called float in OpenCL C",)),
    ):
        kernel = ElementwiseKernel("T x", "T z", operation, "wrong", preamble=preamble)
        with pytest.raises(CompilationError) as caught:
            kernel(r)
        message = str(caught.value)
        assert message.startswith("kernel 'wrong' with T = float32 could not be built")
        assert all(part in message for part in expected), message
        assert "b_i0" not in message and "b_i0" in caught.value.source


def test_double_precision(context):
    """Literals are double only where a parameter is."""
    assert single_precision("x = 0.5 + 1e3 * 1.f - 0x1p3 + 3 + 0x1e /* 2.0 */;") == (
        "x = 0.5f + 1e3f * 1.f - 0x1p3f + 3 + 0x1e /* 2.0 */;"
    )
    kernel = ElementwiseKernel("T x", "T z", "z = x / 3.0", "third")
    assert "3.0f" in kernel.source("float32", device=context.name)
    if context.info.has_fp64:
        assert "3.0f" not in kernel.source("float64", device=context.name)
        np.testing.assert_array_equal(host(kernel(context.from_host(np.ones(2)))), np.ones(2) / 3.0)
    else:
        with pytest.raises(UnsupportedDtype, match="no double precision"):
            kernel.source("float64", device=context.name)


def test_words():
    assert replace_words("T t = p.T + T(T->T) // T", {"T": "float"}) == "float t = p.T + float(float->T) // T"
    text = """#define A(x) x
    typedef struct { int k; } pair; struct other { int a; };
    __constant float table[2] = {1, 2};
    static inline float f(float x) { float y = g(x); return y; }"""
    assert defined_names(text) == {"A", "pair", "other", "table", "f"}


def test_variables_of_the_operation():
    """`i` is the number of the element where the operation has no variable of that name."""
    for text, expected in (
        ("z = x; // i", False),
        ("for (int i = f(0, 1); i < 3; i++) z += i;", False),
        ("for (int i = 0; i < 3; i++) { if (i) { z += i; } } T i = x; z += i;", False),
        ("{ int i = 3; z = p.i; }", False),
        ("z = x[i];", True),
        ("for (int i = 0; i < 3; i++) z += i; z += i;", True),
        ("for (int i = 0; i < 3; i++) if (x) z = i; else z = i;", True),
        ("for (int k = 0, i = 0; i < 3; i++) z += i;", True),
        ("return i", True),
    ):
        assert is_free("i", text) is expected, text
