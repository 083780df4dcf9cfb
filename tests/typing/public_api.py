"""The public interface as a program with types uses it; ci/lint.sh checks it with ``mypy --strict``, and nothing runs it.

An expected error has a comment ``type: ignore`` with its code: where the error is missing, mypy reports the comment.
"""

from pathlib import Path
from typing import Any, assert_type

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.maker import function
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable as PyTensorVariable

import pytensor_cl
from pytensor_cl import GpuArray, GpuArrayType, GpuArrayVariable, OpenCLError, errors, nn, optimizers, train
from pytensor_cl import pymc as cl_pymc
from pytensor_cl.train import History, Run, Step

TensorVariable = PyTensorVariable[Any, Any]


def lazy_names(array: GpuArray) -> None:
    """Names that the package loads at their first use have their types."""
    assert_type(pytensor_cl.__version__, str)
    assert_type(pytensor_cl.use("opencl:cpu", floatX="float32"), str)
    assert_type(pytensor_cl.sync(), None)
    assert_type([device.spec for device in pytensor_cl.devices()], list[str])
    assert_type(pytensor_cl.gpu_from_host(pt.fmatrix("x")), GpuArrayVariable)
    assert_type(pytensor_cl.explain(function([], [])).device_nodes[0].op.__class__.__name__, str)
    variable = pytensor_cl.shared(np.zeros(3), name="weights", target="dev0")
    variable.set_value(array)
    GpuArrayType("float32", (None, 3))
    pytensor_cl.shaerd(np.zeros(3))  # type: ignore[attr-defined]
    pytensor_cl.use("opencl", name=3)  # type: ignore[arg-type]


def arrays(array: GpuArray) -> None:
    """Attributes and methods of arrays on a device."""
    assert_type(array.shape, tuple[int, ...])
    assert_type(array.ndim, int)
    assert_type(array.nbytes, int)
    assert_type(array.to_host(), np.ndarray[tuple[Any, ...], np.dtype[Any]])
    assert_type(array.copy(), GpuArray)
    array.to_host(3)  # type: ignore[call-arg]


def failures() -> str:
    """All exceptions have one base class."""
    try:
        pytensor_cl.sync()
    except (errors.OutOfDeviceMemory, errors.CompilationError, errors.UnusableDevice) as error:
        base: OpenCLError = error
        return str(base)
    return ""


def network(x: TensorVariable, weights: SharedVariable) -> TensorVariable:
    """Functions of networks return tensors, which have the methods of tensors."""
    hidden = nn.conv2d(x, weights, border_mode="half")
    assert_type(hidden, TensorVariable)
    assert_type(nn.conv2d_transpose(hidden, weights, output_padding=0), TensorVariable)
    assert_type(nn.pool_2d(hidden, 2), TensorVariable)
    assert_type(nn.pool_2d(hidden, ws=(2, 2), return_indices=True), list[TensorVariable])
    assert_type(nn.relu(nn.layer_norm(hidden)), TensorVariable)
    assert_type(nn.parameters(hidden), list[SharedVariable])
    nn.conv2d(x, weights, stride=2)  # type: ignore[call-arg]
    nn.softmax(x, axis="last")  # type: ignore[arg-type]
    return nn.gelu(hidden)


def rules(loss: TensorVariable, params: list[SharedVariable]) -> optimizers.Updates:
    """Optimizers return updates, which are dicts."""
    optimizer = optimizers.AdamW(learning_rate=optimizers.cosine(1e-3, 100), weight_decay=0.1)
    updates = optimizer(loss, params)
    assert_type(updates, optimizers.Updates)
    as_dict: dict[Variable[Any, Any], Variable[Any, Any]] = updates
    function([], loss, updates=as_dict)
    optimizers.AdamW(weight_decya=0.1)  # type: ignore[call-arg]
    return optimizers.adam(loss, params, learning_rate=0.01)


def training(x: TensorVariable, loss: TensorVariable, params: list[SharedVariable]) -> History:
    """The step, the loop, callbacks and files."""
    step = train.step([x], loss, optimizers.SGD(0.1), params, metrics={"mean": loss})
    assert_type(step, Step)

    class Stop(train.EarlyStopping):
        def on_epoch_end(self, run: Run) -> None:
            super().on_epoch_end(run)

    history = train.fit(
        step, [np.zeros((10, 2))], epochs=2, callbacks=[Stop("loss")], checkpoint=Path("run.safetensors")
    )
    train.save("weights.safetensors", params, metadata={"epochs": "2"})
    assert_type(train.read_metadata(Path("weights.safetensors")), dict[str, str])
    with train.swapped(params, {"weights": params[0]}):
        pass
    return history


def posterior(record: cl_pymc.Record) -> None:
    """Many chains of a model of PyMC."""
    assert_type(record.draws, int)
    cl_pymc.sample(draws=100, chains=64, random_seed=1, callback=posterior)
    cl_pymc.sample(draws=0.5)  # type: ignore[arg-type]
