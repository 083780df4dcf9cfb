"""Mistakes in raw kernels and in their calls: each has a message that names it and says what to do."""

import numpy as np
import pytensor.tensor as pt
import pytest

import pytensor_cl
from pytensor_cl import ElementwiseKernel, LocalMemory, RawKernel, RawModule, ReductionKernel
from pytensor_cl.errors import CompilationError
from pytensor_cl.runtime.context import open_context
from pytensor_cl.user_kernels.build_errors import SourcePart, build_error, diagnostics, hints, located
from pytensor_cl.user_kernels.function import _explain

BODY = "__kernel void f(__global float *x) {{\n  int i = get_global_id(0);\n  {}\n}}\n"
# The code of a kernel f, what the message has, and (in place of a line) what it has for one of the drivers alone.
BUILDS = {
    "a semicolon is missing": (
        BODY.format("x[i] = 1;").replace("(0);", "(0)"),
        [
            ">   2 |   int i = get_global_id(0)\n      |                           ^ error: expected ';'",
            "    1 |",
            "    3 |",
        ],
    ),
    "an identifier is undeclared": (
        BODY.format("x[i] = dd;"),
        [">   3 |   x[i] = dd;\n      |          ^ error: use of undeclared identifier 'dd'"],
    ),
    "a function is undeclared": (BODY.format("x[i] = foo(x[i]);"), [">   3 |   x[i] = foo(x[i]);", "'foo'"]),
    "a brace is missing": (BODY.format("if (i) {"), ["error: expected '}'", "|   if (i) {"]),
    "a const array is written": (
        BODY.format("x[i] = 1;").replace("__global", "__global const"),
        [">   3 |   x[i] = 1;", "read-only variable is not assignable"],
    ),
    "it is CUDA": (
        (
            "__global__ void f(float *x) {\n  __shared__ float t[32];\n"
            "  int i = threadIdx.x + blockIdx.x * blockDim.x;\n  t[i] = expf(x[i]);\n  __syncthreads();\n}\n"
        ),
        [
            "hint: there are words of CUDA in it. OpenCL C has for ",
            "__global__: __kernel;",
            "threadIdx.x: get_local_id(0);",
            "blockIdx.x: get_group_id(0);",
            "__shared__: __local",
            "__syncthreads: barrier(CLK_LOCAL_MEM_FENCE)",
            "expf: the name without f",
        ],
    ),
    "it is C++": ("template <typename T> T g(T x) { return x; }\n", ["hint: OpenCL C is a C: it has no templates"]),
    "a pointer has no address space": (
        BODY.format("").replace("__global ", ""),
        [
            ">   1 | __kernel void f(float *x) {",
            "hint: a pointer parameter of a kernel needs its address space: __global",
        ],
    ),
    "types of NumPy": (BODY.format("float64 y = 0;"), ["hint: the type float64 is called double in OpenCL C"]),
    "types of C's headers": (BODY.format("uint32_t y = 0;"), ["hint: the type uint32_t is called uint in OpenCL C"]),
    "a call is ambiguous": (BODY.format("x[i] = sqrt(2);"), ["is ambiguous", "hint: give all arguments", "2.0f"]),
    "a size_t parameter": (
        BODY.format("").replace("*x", "*x, size_t n"),
        ["cannot be used as the type of a kernel parameter", "declare the parameter as ulong or long"],
    ),
    "a bool parameter": (BODY.format("").replace("*x", "*x, bool n"), ["declare the parameter as uchar or int"]),
    "a member is unknown": (
        "typedef struct { int n; } plan;\n" + BODY.format("x[i] = p.m;").replace("*x", "*x, plan p"),
        [">   4 |   x[i] = p.m;", "no member named 'm' in"],
    ),
    "a kernel returns a value": (BODY.format("").replace("void", "int"), ["hint: a kernel returns nothing"]),
    "a header is missing": (
        '#include "nothing.h"\n' + BODY.format(""),
        [">   1 | #include", "'nothing.h' file not found"],
    ),
}


def test_build_errors_show_the_line(context):
    for case, (code, expected) in BUILDS.items():
        with pytest.raises(CompilationError) as caught:
            RawKernel(code, "f").compile(context.name)
        message = str(caught.value)
        assert message.startswith("kernel 'f' could not be built:\n"), (case, message)
        for text in expected:
            assert text in message, (case, text, message)
        assert caught.value.source.startswith('#line 1 "code"\n' + code.rstrip()), case
        assert message.count("\n") < 25, (case, message)  # nothing of other kernels, and not the whole log
        assert caught.value.log and message.endswith("the driver's messages are `.log`."), case


# The operation of an elementwise kernel, and what the message has.
OPERATIONS = {
    "T d = x; T e = d; z = f;": [
        ">   1 | T d = x; T e = d; z = f;\n      |                       ^ error: use of undeclared"
    ],
    "z = x ^ 2": ["% ^ & | << >> are for integers", "pow(x, y)"],
    "z = abs(x)": ["error: call to ", "abs", "fabs is for floating-point numbers"],
    "x = 2; z = x**2": ["cannot assign to variable 'x'", "words of Python in it. OpenCL C has for **: pow(x, y)"],
    "T d = x\nz = d": [">   1 | T d = x\n", "^ error: expected ';' at end of declaration\n    2 | z = d\nThe"],
}
PYTHON = {
    "z = np.sin(x)": "np.: the name alone: sin(x)",
    "z = x > 0 and not x > 1 ? x : 0": "and: &&; not: !",
    "z = x if x > 0 else 0": "x if x > 0 else: condition ? x : y",
    "z = -inf": "inf: INFINITY",
    "if (x > 0) z = 1; else z = 0;": "",
    "z = x; // inf and nan": "",
}


def test_hints_for_words_of_python():
    for operation, expected in PYTHON.items():
        wanted = [f"there are words of Python in it. OpenCL C has for {expected}"] if expected else []
        assert hints(operation, []) == wanted, operation


def test_operations_that_are_no_opencl_c(context):
    x = context.from_host(np.zeros(8, "float32"))
    for operation, expected in OPERATIONS.items():
        with pytest.raises(CompilationError) as caught:
            ElementwiseKernel("T x", "T z", operation, "slip")(x)
        message = str(caught.value)
        assert message.startswith("kernel 'slip' with T = float32 could not be built, in its operation:\n"), message
        for text in expected:
            assert text in message, (operation, text, message)
        assert message.count(" error: ") <= 2, message  # once, though it is compiled for numbers and for vectors


def test_kernels_that_are_called_with_variables():
    x = pt.fvector("x")
    reduction = ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0")
    raw = RawKernel("__kernel void f(__global float *x) { }", "f")
    for call in (
        lambda: ElementwiseKernel("T x", "T z", "z = x")(x),
        lambda: reduction(x),
        lambda: raw(4, None, (x,)),
    ):
        with pytest.raises(TypeError, match=r"is the variable x: .* make an Op, pytensor_cl.as_op\(kernel\)"):
            call()


def test_build_errors_in_a_header_show_its_line(context, tmp_path):
    (tmp_path / "helpers.h").write_text("// helpers\nfloat half_of(float x) { return x / two; }\n")
    code = '#include "helpers.h"\n' + BODY.format("x[i] = half_of(x[i]);")
    with pytest.raises(CompilationError) as caught:
        RawModule(code=code, options=("-I", str(tmp_path))).get_function("f").compile(context.name)
    message = str(caught.value)
    assert message.startswith("the code of a RawModule with kernel 'f' could not be built, in helpers.h:\n"), message
    assert ">   2 | float half_of(float x) { return x / two; }\n" in message and "identifier 'two'" in message


def test_names_that_the_code_does_not_have(context):
    code = BODY.format("x[i] = 1;") + "float helper(float x) { return x; }\n__kernel void g(__global int *y) { }\n"
    with pytest.raises(ValueError, match="there is no kernel 'twice' in the code; it has: f, g$"):
        RawKernel(code, "twice").compile(context.name)
    with pytest.raises(ValueError, match=r"kernel 'helper' .* write __kernel void helper\(...\)"):
        RawKernel(code, "helper").compile(context.name)
    with pytest.raises(ValueError, match="'double' is a word of OpenCL C: choose another name"):
        RawKernel(code, "double")
    with pytest.raises(ValueError, match="'a b' cannot be the name of a kernel"):
        RawKernel(code, "a b")
    with pytest.raises(ValueError, match="strided='y' names no pointer parameter of kernel 'f'; it has: x"):
        RawKernel(code, "f", strided=("y",)).compile(context.name)


def test_objects_that_cannot_be_made(tmp_path):
    with pytest.raises(TypeError, match=r"RawModule\(path=...\) reads files"):
        RawKernel(tmp_path / "kernel.cl", "f")
    with pytest.raises(TypeError, match=r"not int: RawKernel\(code, name\)"):
        RawKernel("", 3)
    with pytest.raises(TypeError, match="options are texts"):
        RawKernel("", "f", options=[16])
    with pytest.raises(TypeError, match="code=... or path=..., one of them"):
        RawModule()
    with pytest.raises(ValueError, match=r"neither OpenCL C \(.cl\) nor SPIR-V \(.spv\)"):
        RawModule(path=tmp_path / "kernel.cu")
    (tmp_path / "kernel.spv").write_bytes(b"text")
    with pytest.raises(ValueError, match="does not begin with its magic number"):
        RawModule(path=tmp_path / "kernel.spv")
    with pytest.raises(TypeError, match=r"path=... reads files"):
        RawModule(tmp_path / "kernel.cl")
    with pytest.raises(FileNotFoundError):
        RawModule(path=tmp_path / "nothing.cl")
    with pytest.raises(ValueError, match="at least one byte"):
        LocalMemory(0)


def test_calls_with_wrong_arguments(context):
    code = """__kernel void f(__global const float *x, __global float *z, int n, float a, __local float *t, float4 v,
                              __global uchar *b) { }"""
    kernel = RawKernel(code, "f")
    x, z = (context.from_host(np.zeros(8, "float32")) for _ in range(2))
    double = context.from_host(np.zeros(8, "int64"))
    b = context.from_host(np.zeros(2, bool))
    other = open_context(f"opencl:{context.name}", "other").from_host(np.zeros(8, "float32"))
    readonly = z.with_layout(z.layout)
    readonly.readonly = True
    good = [x, z, 8, 0.5, LocalMemory(64), (1, 2, 3, 4), b]
    kernel(8, None, tuple(good))
    kernel(8, None, (readonly, *good[1:]))  # a const pointer takes it
    for place, value, error, message in (
        (0, double, TypeError, (r"argument 'x' of kernel 'f' \(__global const float \*x\) must be an array of float32, not of "
         r"int64: declare the pointer as long \*")),
        (0, np.zeros(8, "float32"), TypeError, r"host memory is not passed to kernels: pass pytensor_cl.array.asarray\(x\)"),
        (0, [1.0], TypeError, "host memory is not passed to kernels"),
        (0, 3.0, TypeError, "must be a GpuArray, not 3.0"),
        (0, x[::2], ValueError, r"must be C-contiguous, not of shape \(4,\) with strides \(8,\): pass a copy"),
        (1, other, ValueError, f"is on 'other', the first array on '{context.name}': all arrays of a call are on one"),
        (1, readonly, ValueError, "is not const, and the array is read-only: declare the parameter const"),
        (2, 2.0, TypeError, r"argument 'n' of kernel 'f' \(int n\) must be an integer, not 2.0"),
        (2, 2**31, OverflowError, "must be between -2147483648 and 2147483647, not 2147483648"),
        (2, x, TypeError, r"is passed by value, not as a GpuArray: pass x.item\(\)"),
        (2, "3", TypeError, "must be an integer, not '3'"),
        (3, 1e39, OverflowError, r"argument 'a' of kernel 'f' \(float a\) does not hold 1e\+39"),
        (3, 1j, TypeError, "must be a real number, not 1j"),
        (3, np.zeros(3), TypeError, r"must be a real number, not an array of shape \(3,\)"),
        (4, 64, TypeError, r"is local memory: pass pytensor_cl.LocalMemory\(nbytes\), not 64"),
        (4, LocalMemory(1 << 40), ValueError, "bytes of local memory, not 1099511627776"),
        (5, (1, 2), TypeError, r"must be 4 numbers, not \(1, 2\)"),
        (6, x, TypeError, "must be an array of bool or uint8, not of float32"),
    ):  # fmt: skip
        arguments = [*good[:place], value, *good[place + 1 :]]
        with pytest.raises(error, match=message):
            kernel(8, None, tuple(arguments))
    kernel(8, None, (x, z, 8, np.inf, *good[4:]))
    with pytest.raises(TypeError, match=r"kernel 'f' takes 7 arguments \(__global const float \*x, .*\), 2 given"):
        kernel(8, None, (x, z))


def test_calls_with_wrong_sizes(context):
    kernel = RawKernel("__kernel void f(__global float *x) { }", "f")
    x = context.from_host(np.zeros(8, "float32"))
    most = kernel.attributes["max_work_group_size"]
    for grid, block, message in (
        (
            1,
            most + 1,
            rf"block=\({most + 1},\) has {most + 1} work-items; kernel 'f' takes at most {most} in a work-group",
        ),
        ((1, 1), (most, 2), f"takes at most {most} in a work-group on this device"),
        (-1, None, "grid has one to three numbers that are not negative, not -1"),
        ((1, 1, 1, 1), None, "grid has one to three numbers"),
        (1, 0, "block has numbers from 1 on"),
        (2**62, 1, "grid is more than a launch can have"),
    ):
        with pytest.raises(ValueError, match=message):
            kernel(grid, block, (x,))
    with pytest.raises(TypeError, match="grid is an integer or a tuple of integers, not 1.5"):
        kernel(1.5, None, (x,))
    with pytest.raises(TypeError, match=r"pass pytensor_cl.LocalMemory\(64\) in its place"):
        kernel(1, 1, (x,), shared_mem=64)
    with pytest.raises(TypeError, match="args is a tuple with all arguments"):
        kernel(1, 1, x)
    with pytest.raises(pytensor_cl.OpenCLError, match="no context is called 'nothing'"):
        kernel.compile("nothing")


@pytest.mark.parametrize(
    "line",
    [
        "error: code:2:7: expected ';'",  # PoCL
        "code:2:7: error: expected ';'",  # Intel, Apple, Mesa
        "<kernel>:9:1: warning: unused\ncode:2:7: error: expected ';'\ncode:1:1: note: declared here",
        '"code", line 2: error: expected ";"',  # AMD's old compiler
    ],
)
def test_messages_of_other_drivers(line):
    (found,) = diagnostics(line)
    assert (found.file, found.line, found.kind) == ("code", 2, "error") and found.text.startswith("expected")
    error = build_error(line, "", "kernel 'f'", [SourcePart("code", "int a;\nfloat b\n")])
    assert ">   2 | float b\n" in str(error) and "error: expected" in str(error)


def test_lines_of_the_whole_program():
    """NVIDIA's driver does not follow ``#line`` directives."""
    source = 'int before;\n#line 1 "code"\nint a;\nfloat b\n#line 1 "generated text"\n;\n#line 1 "rest"\n{'
    for line, place in ((1, "<kernel>:1"), (3, "code:1"), (4, "code:2"), (6, "generated text:1"), (9, "rest:2")):
        assert located(f"<kernel>:{line}:7: error: wrong", source) == f"{place}:7: error: wrong"
    for log in ("helpers.h:3:1: error: wrong", "code:2:1: error: wrong", "x = <kernel>:3:1", "<kernel>: 3"):
        assert located(log, source) == log
    error = build_error(
        "<kernel>:4:8: error: expected ';'", source, "kernel 'f'", [SourcePart("code", "int a;\nfloat b")]
    )
    assert str(error).startswith("kernel 'f' could not be built:\n    1 | int a;\n>   2 | float b\n")
    assert error.log.startswith("<kernel>")


def test_operations_in_lines_of_the_whole_program(context):
    operation = "T d = x;\nz = d * dd;"
    with pytest.raises(CompilationError) as caught:
        ElementwiseKernel("T x", "T z", operation, "slip")(context.from_host(np.zeros(8, "float32")))
    source = caught.value.source
    line = source.split("\n").index("z = d * dd;") + 1
    text = (
        f"Build on <device>:\n\n<kernel>:{line}:9: error: use of undeclared identifier 'dd'\nz = d * dd;\n        ^\n"
    )
    assert str(_explain(CompilationError(text, source))) == str(caught.value)
    assert _explain(CompilationError(text.replace(f":{line}:", ":1:"), source)) is None


def test_parts_are_shown_under_their_names():
    parts = [
        SourcePart("preamble of f", "int a;", "in its preamble"),
        SourcePart("operation of f", "z = dd;", "in its operation"),
    ]
    log = "operation of f:1:5: error: no dd\npreamble of f:1:1: error: no int\nrest:7:1: error: unknown z"
    assert str(build_error(log, "text", "kernel 'f' with T = float32", parts)).splitlines() == [
        "kernel 'f' with T = float32 could not be built, in its preamble:",
        ">   1 | int a;",
        "      | ^ error: no int",
        "in its operation:",
        ">   1 | z = dd;",
        "      |     ^ error: no dd",
        "error: unknown z (rest:7)",
        "The whole source is this error's attribute `.source`, the driver's messages are `.log`.",
    ]


def test_logs_without_lines():
    error = build_error("error: undefined symbol g", "", "kernel 'f'", [SourcePart("code", "void g();\n")])
    assert "error: undefined symbol g\n" in str(error) and "1 | void g();" in str(error)
    assert hints("double x;", [], has_fp64=False) == ["the device has no double precision: use float"]
    assert not hints("// threadIdx.x\nfloat x;", [])
