"""JAX calls Ops that have no JAX code."""

from typing import Any

import numpy as np


def call_from_jax(op_type: type) -> None:
    """Make JAX call ``perform`` of Ops back on the host; the callback uses NumPy alone: calling JAX inside deadlocks.

    The Ops have a method ``output_shapes(node, shapes)``, which returns the shapes of the results.
    """
    import jax
    from pytensor.link.jax.dispatch import jax_funcify

    @jax_funcify.register(op_type)
    def funcify(op: Any, node: Any, **kwargs: Any) -> Any:
        input_dtypes = [v.type.dtype for v in node.inputs]
        dtypes = [jax.dtypes.canonicalize_dtype(v.type.dtype) for v in node.outputs]

        def on_host(*values: Any) -> tuple[np.ndarray, ...]:
            arrays = [np.asarray(value, dtype) for value, dtype in zip(values, input_dtypes, strict=True)]
            storage: list[list[Any]] = [[None] for _ in node.outputs]
            op.perform(node, arrays, storage)
            return tuple(np.asarray(cell[0], dtype) for cell, dtype in zip(storage, dtypes, strict=True))

        def call(*values: Any) -> Any:
            shapes = op.output_shapes(node, [value.shape for value in map(jax.numpy.asarray, values)])
            structs = tuple(map(jax.ShapeDtypeStruct, shapes, dtypes))
            results = jax.pure_callback(on_host, structs, *values, vmap_method="sequential")
            return results if len(results) > 1 else results[0]

        return call
