"""Files: what is written and read back, checks, atomic writes, files of other programs."""

import json
import os
import signal

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor_cl import optimizers, train
from pytensor_cl.ops.elemwise import GpuElemwise
from tests.helpers import assert_on_device, opencl, run_script

library = pytest.importorskip("safetensors.numpy")

DTYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES += ["bool", "complex64"]
BITS = ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"]


def shared(name, value, **options):
    return pytensor.shared(value, name=name, **options)


def write_raw(path, entries, metadata=None):
    """Write a file by hand: name -> (safetensors' dtype, shape, bytes)."""
    header, data = {} if metadata is None else {"__metadata__": metadata}, b""
    for name, (dtype, shape, content) in entries.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip(tmp_path, rng, dtype):
    values = {
        "vector": rng.normal(size=7) * 3,
        "number": np.array(2.0),
        "empty": np.zeros((0, 3)),
        "fortran": np.asfortranarray(rng.normal(size=(3, 4)) * 5),
        "transposed": np.arange(24.0).reshape(2, 3, 4).T,
        "strided": np.arange(20.0)[::3],
    }
    values = {name: np.asarray(value.astype(dtype, order="K")) for name, value in values.items()}
    assert values["fortran"].flags.f_contiguous
    variables = [shared(name, value, borrow=True) for name, value in values.items()]
    train.save(tmp_path / "a.safetensors", variables)
    plain = library.load_file(tmp_path / "a.safetensors")  # what any other program reads
    for name, value in values.items():
        assert (plain[name].dtype, plain[name].shape) == (value.dtype, value.shape)
        np.testing.assert_array_equal(plain[name], value)
    for variable in variables:
        variable.set_value(np.zeros_like(values[variable.name]))
    train.load(tmp_path / "a.safetensors", variables)
    for variable in variables:
        np.testing.assert_array_equal(variable.get_value(), values[variable.name])
        assert variable.get_value().shape == values[variable.name].shape


@pytest.mark.parametrize("kind", BITS)
def test_random_generators(tmp_path, kind):
    generator = np.random.Generator(getattr(np.random, kind)(3))
    generator.random(5)
    generator.integers(10, dtype="uint32")  # half of a raw number is kept
    rng = pytensor.shared(generator, name="noise")
    train.save(tmp_path / "a.safetensors", rng)
    wanted = rng.get_value().normal(size=100)
    rng.set_value(np.random.Generator(getattr(np.random, kind)(9)))
    train.load(tmp_path / "a.safetensors", [rng])
    np.testing.assert_array_equal(rng.get_value().normal(size=100), wanted)
    other = pytensor.shared(np.random.Generator(getattr(np.random, BITS[BITS.index(kind) - 1])(3)), name="noise")
    with pytest.raises(ValueError, match=f"rng/noise is of {kind}, the variable of"):
        train.load(tmp_path / "a.safetensors", [other])


def training(rate=0.1):
    """A small training: variables, and a function that does a step."""
    w, b = shared("w", np.ones((3, 2), "float32")), shared("b", np.zeros(2, "float32"))
    noise = pt.random.shared_rng(seed=1, name="noise")
    following, draw = noise.normal(size=(4, 3), dtype="float32")
    loss = pt.sqr(draw @ w + b - 1).mean()
    optimizer = optimizers.Adam(rate)
    updates, averages = optimizers.ema(optimizer.updates(loss, [w, b]), [w, b], 0.9)
    return [w, b, noise, optimizer, averages], (loss, {**updates, noise: following})


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("mode", ["FAST_COMPILE", "OPENCL"])
def test_training_goes_on_bit_for_bit(tmp_path, context, mode):
    what, (loss, updates) = training()
    step = pytensor.function([], loss, updates=updates, mode=mode)
    if mode == "OPENCL":
        assert_on_device(step, GpuElemwise)
    losses = [float(step()) for _ in range(2)]
    train.save(tmp_path / "a.safetensors", what)
    losses += [float(step()) for _ in range(3)]
    end = what[0].get_value()
    again, (loss, updates) = training(rate=0.5)
    train.load(tmp_path / "a.safetensors", again)
    assert again[3].learning_rate.get_value() == 0.1
    step = pytensor.function([], loss, updates=updates, mode=mode)
    assert [float(step()) for _ in range(3)] == losses[2:]
    np.testing.assert_array_equal(again[0].get_value(), end)


def test_names_in_the_file(tmp_path):
    what, _ = training()
    train.save(tmp_path / "a.safetensors", what, metadata={"loop": "{}"})
    assert set(library.load_file(tmp_path / "a.safetensors")) == {
        "w",
        "b",
        "optimizer/adam/step",
        "optimizer/adam/learning_rate",
        *(f"optimizer/adam/{kind}/{name}" for kind in ("exp_avg", "exp_avg_sq") for name in "wb"),
        "ema/w",
        "ema/b",
    }
    texts = train.read_metadata(tmp_path / "a.safetensors")
    assert texts["pytensor_cl.format"] == "1"
    assert (texts["kind"], texts["loop"]) == ("state", "{}")
    assert json.loads(texts["rng/noise"])["bit_generator"] == "PCG64"
    weights = {"w": shared("other", np.zeros((3, 2), "float32")), "b": shared("b", np.ones(2, "float32"))}
    train.load(tmp_path / "a.safetensors", weights)  # weights alone, of the file of a training
    np.testing.assert_array_equal(weights["w"].get_value(), np.ones((3, 2)))
    train.load(tmp_path / "a.safetensors", what[3])  # an optimizer alone: the weights are not asked for
    train.load(tmp_path / "a.safetensors", [weights["b"]], strict=False)
    with pytest.raises(ValueError, match="w is not known"):
        train.load(tmp_path / "a.safetensors", [weights["b"]])


class Step:
    """A step that the loop of a training may pass."""

    def __init__(self, variables):
        self.variables = variables


def test_object_with_variables_and_tied_weights(tmp_path):
    w = shared("w", np.arange(3.0))
    train.save(tmp_path / "a.safetensors", Step({"w": w, "again": w}))
    assert set(library.load_file(tmp_path / "a.safetensors")) == {
        "w",
        "again",
    }  # two names, because the caller gave two
    train.save(tmp_path / "a.safetensors", [w, [w], (w,)])
    assert set(library.load_file(tmp_path / "a.safetensors")) == {"w"}
    w.set_value(np.zeros(3))
    train.load(tmp_path / "a.safetensors", Step([w, w]))
    np.testing.assert_array_equal(w.get_value(), np.arange(3.0))


def test_one_error_lists_all(tmp_path):
    train.save(
        tmp_path / "a.safetensors",
        [shared("w", np.ones((3, 2))), shared("b", np.ones(2, "float32")), shared("more", np.ones(1))],
    )
    own = [
        shared("w", np.zeros((2, 3))),
        shared("b", np.zeros(2)),
        shared("absent", np.zeros(1)),
        pt.random.shared_rng(seed=1, name="noise"),
        shared("scale", np.zeros(1)),
    ]
    before = [variable.get_value() for variable in own[:3]]
    with pytest.raises(ValueError, match="nothing was changed") as caught:
        train.load(tmp_path / "a.safetensors", own, names={"scale": "more"})
    assert sorted(line.strip() for line in str(caught.value).splitlines()[1:]) == [
        "absent is missing",
        "b is float32, the variable float64",
        "rng/noise is missing",
        "w has shape (3, 2), the variable (2, 3)",
    ]
    for variable, value in zip(own, before, strict=False):
        np.testing.assert_array_equal(variable.get_value(), value)
    with pytest.raises(ValueError, match="names and transpose have what is not loaded: no, nor"):
        train.load(tmp_path / "a.safetensors", own, names={"no": "w"}, transpose=["nor"])


def test_errors_of_save(tmp_path):
    path = tmp_path / "a.safetensors"
    with pytest.raises(ValueError, match="a variable has no name"):
        train.save(path, [pytensor.shared(np.zeros(2))])
    with pytest.raises(ValueError, match="two variables are named 'w'"):
        train.save(path, [shared("w", np.zeros(2)), shared("w", np.zeros(2))])
    with pytest.raises(TypeError, match="no such dtypes: z is complex128"):
        train.save(path, [shared("z", np.zeros(2, "complex128"))])
    with pytest.raises(TypeError, match="can be in a file"):
        train.save(path, [pt.dvector("x")])
    with pytest.raises(ValueError, match="names of metadata are taken: kind"):
        train.save(path, [shared("w", np.zeros(2))], metadata={"kind": "mine"})
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_none(tmp_path):
    path, w = tmp_path / "a.safetensors", shared("w", np.ones(100))
    train.save(path, w)
    whole = path.read_bytes()
    for broken in (b"", b"abc", b"x" * 100, whole[:-1], whole[:20], whole + b"0"):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match="no safetensors file|is cut off"):
            train.load(path, w)
    with pytest.raises(FileNotFoundError):
        train.load(tmp_path / "none", w)
    write_raw(path, {"w": ("F64", [100], bytes(800))}, {"pytensor_cl.format": "2"})
    with pytest.raises(ValueError, match="has format 2; this version reads formats up to 1"):
        train.load(path, w)


def test_a_link_stays_one_and_nothing_is_left(tmp_path):
    (tmp_path / "real.safetensors").write_bytes(b"old")
    (tmp_path / "link.safetensors").symlink_to("real.safetensors")
    train.save(tmp_path / "link.safetensors", shared("w", np.ones(3)))
    assert (tmp_path / "link.safetensors").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.safetensors", "real.safetensors"]
    assert set(library.load_file(tmp_path / "real.safetensors")) == {"w"}


def test_what_a_killed_process_left_is_removed_after_an_hour(tmp_path):
    old, new, other = (tmp_path / name for name in ("[a].safetensors.1.x.tmp", "[a].safetensors.2.x.tmp", "b.1.tmp"))
    for path in (old, new, other):
        path.write_bytes(b"half")
    for path in (old, other):
        os.utime(path, (0, 0))
    train.save(tmp_path / "[a].safetensors", shared("w", np.ones(3)))
    assert {path.name for path in tmp_path.iterdir()} == {new.name, other.name, "[a].safetensors"}


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path, w = tmp_path / "a.safetensors", shared("w", np.ones(3))
    train.save(path, w)
    w.set_value(np.zeros(3))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        train.save(path, w)
    assert [file.name for file in tmp_path.iterdir()] == ["a.safetensors"]
    np.testing.assert_array_equal(library.load_file(path)["w"], np.ones(3))


def test_killed_while_writing(tmp_path):
    """SIGKILL with half of the new file written, before it is flushed, and just before it takes the old one's place."""
    path, w = tmp_path / "a.safetensors", shared("w", np.ones(1000))
    train.save(path, w)
    old = path.read_bytes()
    seen, _ = run_script(
        f"""
        import os, signal
        from pathlib import Path
        import numpy as np, pytensor
        from safetensors import numpy as library
        from pytensor_cl import train

        w = pytensor.shared(np.zeros(1000), name="w")

        def kill(*_):
            os.kill(os.getpid(), signal.SIGKILL)

        def write_half(values, place, metadata):
            Path(place).write_bytes(library.save(values, metadata)[:-100])
            kill()

        for moment, owner, name, action in (
            ("write", library, "save_file", write_half),
            ("flush", os, "fsync", kill),
            ("replace", Path, "replace", kill),
        ):
            child = os.fork()
            if not child:
                setattr(owner, name, action)
                train.save({str(path)!r}, w)
                os._exit(0)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            seen[moment] = code, Path({str(path)!r}).read_bytes().hex()
        """
    )
    assert seen == {moment: [-signal.SIGKILL, old.hex()] for moment in ("write", "flush", "replace")}
    w.set_value(np.zeros(1000))
    train.load(path, w)
    np.testing.assert_array_equal(w.get_value(), np.ones(1000))
    train.save(path, w)


def test_bfloat16_is_widened_exactly(tmp_path):
    values = np.array([0.0, -0.0, 1.0, -2.5, 3.0e38, 1e-40, np.inf, np.nan], "float32")
    bits = (values.view("uint32") >> 16).astype("<u2")
    wanted = (bits.astype("uint32") << 16).view("float32")
    write_raw(tmp_path / "a", {"first": ("F32", [1], bytes(4)), "w": ("BF16", [2, 4], bits.tobytes())})
    for dtype in ("float32", "float64"):
        w = shared("w", np.zeros((2, 4), dtype))
        train.load(tmp_path / "a", w, strict=False)
        np.testing.assert_array_equal(w.get_value(), wanted.reshape(2, 4).astype(dtype))
    w = shared("w", np.zeros((4, 2), "float32"))
    train.load(tmp_path / "a", w, strict=False, transpose=["w"])
    np.testing.assert_array_equal(w.get_value(), wanted.reshape(2, 4).T)
    with pytest.raises(ValueError, match="w is bfloat16, the variable float16"):
        train.load(tmp_path / "a", shared("w", np.zeros((2, 4), "float16")), strict=False)


def test_unknown_dtypes_are_named(tmp_path):
    write_raw(tmp_path / "a", {"w": ("F8_E4M3", [2], bytes(2))})
    with pytest.raises(ValueError, match="w is F8_E4M3, the variable float32"):
        train.load(tmp_path / "a", shared("w", np.zeros(2, "float32")))


def test_cast(tmp_path):
    train.save(tmp_path / "a", [shared("w", np.array([0.1, 0.2], "float32")), shared("n", np.array([1, 2]))])
    w, n = shared("w", np.zeros(2)), shared("n", np.zeros(2, "int64"))
    with pytest.raises(ValueError, match="w is float32, the variable float64"):
        train.load(tmp_path / "a", [w, n])
    train.load(tmp_path / "a", [w, n], cast=True)
    np.testing.assert_array_equal(w.get_value(), np.array([0.1, 0.2], "float32").astype("float64"))
    with pytest.raises(ValueError, match="n is int64, the variable float64"):
        train.load(tmp_path / "a", [w, shared("n", np.zeros(2))], cast=True)


def test_state_dict_of_torch(tmp_path, rng):
    """A Linear, a Conv2d and a BatchNorm2d: transposed, as it is, and with a count that nothing here needs."""
    values = {
        "fc.weight": rng.normal(size=(2, 5)).astype("float32"),
        "fc.bias": rng.normal(size=2).astype("float32"),
        "conv.weight": rng.normal(size=(4, 3, 3, 3)).astype("float32"),
        "bn.running_mean": rng.normal(size=4).astype("float32"),
        "bn.num_batches_tracked": np.array(7),
    }
    library.save_file(values, tmp_path / "a", {"format": "pt"})
    own = {
        "output.w": shared("output.w", np.zeros((5, 2), "float32")),
        "output.b": shared("output.b", np.zeros(2, "float32")),
        "filters": shared("filters", np.zeros((4, 3, 3, 3), "float32")),
        "bn.running_mean": shared("bn.running_mean", np.zeros(4, "float32")),
    }
    names = {"output.w": "fc.weight", "output.b": "fc.bias", "filters": "conv.weight"}
    train.load(tmp_path / "a", own.values(), names=names, transpose=["output.w"])
    np.testing.assert_array_equal(own["output.w"].get_value(), values["fc.weight"].T)
    assert own["output.w"].get_value().flags.c_contiguous
    np.testing.assert_array_equal(own["output.b"].get_value(), values["fc.bias"])
    np.testing.assert_array_equal(own["filters"].get_value(), values["conv.weight"])
    np.testing.assert_array_equal(own["bn.running_mean"].get_value(), values["bn.running_mean"])
    with pytest.raises(ValueError, match=r"conv.weight has shape \(4, 3, 3, 3\) and cannot be transposed"):
        train.load(tmp_path / "a", own.values(), names=names, transpose=["output.w", "filters"])
    with pytest.raises(ValueError, match=r"fc.weight has shape \(2, 5\), the variable \(5, 2\)"):
        train.load(tmp_path / "a", own.values(), names=names)


@pytest.mark.usefixtures("on_device")
def test_swapped(context):
    w = shared("w", np.ones(3, "float32"))
    updates, averages = optimizers.ema({w: w + np.float32(1)}, [w], 0.5)
    step, read = opencl([], [], updates=updates), opencl([], pt.exp(w))
    assert_on_device(read, GpuElemwise)
    step()
    step()  # w is 3; averages 1, 1.5, 2.25
    with train.swapped([w], averages):
        np.testing.assert_allclose(read(), np.exp(np.full(3, 2.25)), rtol=1e-5)
    np.testing.assert_allclose(read(), np.exp(np.full(3, 3.0)), rtol=1e-5)
    with pytest.raises(KeyError), train.swapped([w], averages):
        raise KeyError
    np.testing.assert_array_equal(w.get_value(), np.full(3, 3.0))
    np.testing.assert_array_equal(averages["ema/w"].get_value(), np.full(3, 2.25))
    with pytest.raises(ValueError, match="have no average: b"), train.swapped([shared("b", np.ones(2))], averages):
        pass
