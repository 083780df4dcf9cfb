"""Loops of recurrent layers, whose gradient is one loop backwards that reads what the forward loop has saved."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytensor
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.replace import _vectorize_node, clone_replace, vectorize_graph

from pytensor_cl.nn.marker import Marker

Variables = list[Variable]


def split(gates: Variable, count: int) -> Variables:
    """Return the gates (N, H) of an array (N, count * H)."""
    n, width = (gates.shape[k] if known is None else known for k, known in enumerate(gates.type.shape))
    rows = gates.reshape((n, count, width // count))
    return [rows[:, k] for k in range(count)]


def conformed(variable: Variable, like: Variable) -> Variable:
    """Return an array of the static shape of another one: the states of a loop must agree in lengths of 1."""
    pairs = list(zip(variable.type.shape, like.type.shape, strict=True))
    if any(n == 1 and wanted is None for n, wanted in pairs):
        variable = pt.alloc(variable, *like.shape)
    if any(n is None and wanted is not None for n, wanted in pairs):
        variable = pt.specify_shape(variable, like.type.shape)
    return variable


def masked(mask: Variable, values: Variable) -> Variable:
    """Return the values where the mask is True, else 0, whatever they are there."""
    return pt.switch(mask, values, pt.zeros_like(values))


class Loop(NamedTuple):
    """Results of a loop over steps."""

    states: Variables
    """All states after the first one (T, N, H)."""
    whole: Variables
    """All states with the first one (T + 1, N, H)."""
    results: Variables
    """Arrays of all steps that are no states."""

    @property
    def last(self) -> Variables:
        """Return the last states; the first ones if there are no steps."""
        return [v[-1] for v in self.whole]


def loop_of(
    step: Callable[..., Variables],
    sequences: Sequence[Variable],
    starts: Sequence[Variable],
    parameters: Sequence[Variable],
    results: int,
    name: str,
    go_backwards: bool = False,
) -> Loop:
    """Return what the steps compute from rows of the sequences, the states and the parameters."""
    found = pytensor.scan(
        step,
        sequences=list(sequences),
        outputs_info=[*starts, *[None] * results],
        non_sequences=list(parameters),
        go_backwards=go_backwards,
        strict=True,
        return_updates=False,
        return_list=True,
        name=name,
    )
    states = found[: len(starts)]
    return Loop(states, [v.owner.inputs[0] for v in states], found[len(starts) :])


class RecurrentLoop(Marker):
    """Steps of a recurrent layer.

    Inputs: the input's products (T, N, gates * H), the states before the first step (N, H), the weights (gates * H, H),
    a bias (gates * H,) if `has_bias`, and a mask (T, N) if `has_mask`; rows where it is False keep their states.
    Outputs: per state all of them (T, N, H); per state the last one (N, H); and what only the gradient needs: per state
    all with the first one (T + 1, N, H), and what the steps save.
    """

    __props__: tuple[str, ...] = ("has_bias", "has_mask")
    has_bias, has_mask = False, False
    states_count, saved_count, products = 1, 0, 1
    """Numbers of states, of arrays that a step saves, and of results of `step_back`."""

    # Methods that a layer defines

    def step(self, x: Variable, product: Variable, states: Variables) -> tuple[Variables, Variables]:
        """Return the next states, and what the gradient needs of the step."""
        raise NotImplementedError

    def step_back(
        self, saved: Variables, before: Variables, after: Variables, grads: Variables
    ) -> tuple[Variables, list[Variable | None]]:
        """Return gradients of the product, and of what `input_grad` needs; and of the states before.

        The latter are those that do not come through the product; None is zero. Each operation has a factor that only
        the step knows: PyTensor would compute the others of all steps before the loop, which then has more to read.
        """
        raise NotImplementedError

    def input_grad(self, results: Variables) -> Variable:
        """Return the gradient of the input's products from what `step_back` returns of all steps."""
        return results[0]

    # The loop

    def unpack(self, inputs: Sequence[Variable]) -> tuple[Variable, Variables, Variable, Any, Any]:
        """Return the input's products, the states, the weights, and the bias and the mask, which may be None."""
        rest = list(inputs)
        x, states = rest.pop(0), [rest.pop(0) for _ in range(self.states_count)]
        weights = rest.pop(0)
        bias = rest.pop(0) if self.has_bias else None
        return x, states, weights, bias, rest.pop(0) if self.has_mask else None

    def build_inner_graph(self, *inputs: Variable) -> Variables:
        """Return the outputs of the loop."""
        x, starts, weights, bias, mask = self.unpack(inputs)
        count = self.states_count

        def step(x_t: Variable, *rest: Variable) -> Variables:
            values = list(rest)
            live = values.pop(0)[:, None] if self.has_mask else None
            states, w = values[:count], values[count]
            product = pt.dot(states[0], w)
            if self.has_bias:
                product = product + values[count + 1]
            found, saved = self.step(x_t, product, states)
            if live is not None:
                found = [pt.switch(live, new, old) for new, old in zip(found, states, strict=True)]
            return [*found, *saved]

        sequences = [x, mask] if self.has_mask else [x]
        parameters = [weights.T, bias] if self.has_bias else [weights.T]
        loop = loop_of(step, sequences, starts, parameters, self.saved_count, type(self).__name__)
        return [*loop.states, *loop.last, *loop.whole, *loop.results]

    # The gradient

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return which outputs depend on which inputs: all but on the mask."""
        return [[v.type.dtype != "bool"] * len(node.outputs) for v in node.inputs]

    def pullback(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], output_grads: Sequence[Variable]
    ) -> Variables:
        """Return the gradients: one loop backwards, and products of all steps at once."""
        count = self.states_count
        if any(map(_is_connected, output_grads[3 * count :])):
            return self._pullback_of_composition(inputs, outputs, output_grads)
        x, _, weights, _, mask = self.unpack(inputs)
        whole = outputs[2 * count : 3 * count]
        later = [_total(output_grads[k], output_grads[2 * count + k], slice(1, None)) for k in range(count)]
        later = [None if v is None else conformed(v, outputs[0]) for v in later]
        last, saved = output_grads[count : 2 * count], outputs[3 * count :]
        results, starts = self._loop_back(later, last, whole, saved, weights, mask)
        starts = [_total(v, output_grads[2 * count + k], 0) for k, v in enumerate(starts)]
        rows = x.shape[0] * x.shape[1]
        flat = results[0].reshape((rows, weights.shape[0]))
        before = whole[0][:-1].reshape((rows, weights.shape[1]))
        bias_grad = [flat.sum(axis=0)] * self.has_bias
        dx = self.input_grad(results)
        return [dx, *starts, pt.dot(flat.T, before), *bias_grad, *[disconnected_type()] * self.has_mask]

    def _loop_back(
        self,
        later: Sequence[Variable | None],
        last: Sequence[Variable],
        whole: Sequence[Variable],
        saved: Sequence[Variable],
        weights: Variable,
        mask: Variable | None,
    ) -> tuple[Variables, Variables]:
        """Return what `step_back` returns of all steps, and the gradients of the starts.

        `later`: gradients of all states (T, N, H), `last` of the last ones.
        """
        count = self.states_count
        given = [k for k in range(count) if later[k] is not None]
        masks = [] if mask is None else [mask]
        sequences = [*(later[k] for k in given), *masks, *saved, *(v[:-1] for v in whole), *(v[1:] for v in whole)]

        def step(*values: Variable) -> Variables:
            rest = list(values)

            def take(number: int) -> Variables:
                return [rest.pop(0) for _ in range(number)]

            added, live = dict(zip(given, take(len(given)), strict=True)), take(len(masks))
            saved_t, before, after = take(len(saved)), take(count), take(count)
            grads, (w,) = take(count), rest
            grads = [v + added[k] if k in added else v for k, v in enumerate(grads)]
            passed: list[Variable] = []
            if live:
                is_live = live[0][:, None]
                passed = [masked(~is_live, v) for v in grads]
                grads = [masked(is_live, v) for v in grads]
            results, earlier = self.step_back(saved_t, before, after, grads)
            through = pt.dot(results[0], w)
            earlier[0] = through if earlier[0] is None else through + earlier[0]
            if live:
                earlier = [a + b for a, b in zip(earlier, passed, strict=True)]
            return [*earlier, *results]

        zero = pt.zeros_like(whole[0][0])
        starts = [conformed(v, zero) if _is_connected(v) else zero for v in last]
        loop = loop_of(step, sequences, starts, [weights], self.products, f"{type(self).__name__}Gradient", True)
        steps, rows = whole[0].shape[0] - 1, whole[0].shape[1]
        widths = [weights.shape[0], *[weights.shape[1]] * (self.products - 1)]
        results = zip(loop.results, widths, strict=True)
        return [v[::-1].reshape((steps, rows, width)) for v, width in results], loop.last  # of no steps: (0, 0, 0)

    def _pullback_of_composition(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], output_grads: Sequence[Variable]
    ) -> Variables:
        """Return the gradients as `Scan` derives them, of what the steps save too."""
        dummies = [v.type() for v in inputs]  # an input may depend on another one
        pairs = zip(self.build_inner_graph(*dummies), output_grads, strict=True)
        known = [(v, g, g.type()) for v, g in pairs if _is_connected(g)]
        total = sum((v * given).sum() for v, _, given in known)  # outputs are parts of each other: no `known_grads`
        floats = dummies[: len(dummies) - self.has_mask]
        found = pytensor.grad(total, floats, disconnected_inputs="ignore")
        values = dict(zip(dummies, inputs, strict=True)) | {given: g for _, g, given in known}
        found = clone_replace(found, values)
        return [*found, *[disconnected_type()] * self.has_mask]


def _is_connected(gradient: Variable) -> bool:
    return not isinstance(gradient.type, DisconnectedType)


def _total(gradient: Variable, of_whole: Variable, rows: slice | int) -> Variable | None:
    """Return a gradient plus rows of that of all states; None if there is neither."""
    found = [gradient] if _is_connected(gradient) else []
    if _is_connected(of_whole):
        found.append(of_whole[rows])
    return sum(found[1:], found[0]) if found else None


class TanhLoop(RecurrentLoop):
    """h' = tanh(x + product)."""

    def step(self, x: Variable, product: Variable, states: Variables) -> tuple[Variables, Variables]:
        """Return the next state."""
        return [pt.tanh(x + product)], []

    def step_back(
        self, saved: Variables, before: Variables, after: Variables, grads: Variables
    ) -> tuple[Variables, list[Variable | None]]:
        """Return the gradients of a step."""
        d = grads[0] - grads[0] * after[0] * after[0]
        return [d], [None]


class ReluLoop(RecurrentLoop):
    """h' = relu(x + product)."""

    def step(self, x: Variable, product: Variable, states: Variables) -> tuple[Variables, Variables]:
        """Return the next state."""
        total = x + product
        return [pt.switch(total <= 0, pt.zeros_like(total), total)], []

    def step_back(
        self, saved: Variables, before: Variables, after: Variables, grads: Variables
    ) -> tuple[Variables, list[Variable | None]]:
        """Return the gradients of a step."""
        d = pt.switch(after[0] <= 0, pt.zeros_like(after[0]), grads[0])
        return [d], [None]


class GRULoop(RecurrentLoop):
    """r, z = sigmoid(x + product); q = product; n = tanh(x + r * q); h' = n + z * (h - n)."""

    saved_count, products = 4, 2

    def step(self, x: Variable, product: Variable, states: Variables) -> tuple[Variables, Variables]:
        """Return the next state; saved are r, z, n and q."""
        (xr, xz, xn), (pr, pz, q) = split(x, 3), split(product, 3)
        r, z = pt.sigmoid(xr + pr), pt.sigmoid(xz + pz)
        n = pt.tanh(xn + r * q)
        return [n + z * (states[0] - n)], [r, z, n, q]

    def step_back(
        self, saved: Variables, before: Variables, after: Variables, grads: Variables
    ) -> tuple[Variables, list[Variable | None]]:
        """Return the gradients of a step."""
        (r, z, n, q), (d,) = saved, grads
        dz, dn = d * z, d - d * z
        dz = dz - dz * z
        dz = dz * before[0] - dz * n
        dn = dn - dn * n * n
        dr = dn * q * r
        dr = dr - dr * r
        return [pt.concatenate([dr, dz, dn * r], axis=1), dn], [d * z]

    def input_grad(self, results: Variables) -> Variable:
        """Return the gradient of the input's products, whose part of n is not multiplied by r."""
        dp, dn = results
        return pt.concatenate([dp[:, :, : 2 * dn.shape[2]], dn], axis=2)


class LSTMLoop(RecurrentLoop):
    """i, f, o = sigmoid(x + product); g = tanh(x + product); c' = f * c + i * g; h' = o * tanh(c')."""

    states_count, saved_count = 2, 5

    def step(self, x: Variable, product: Variable, states: Variables) -> tuple[Variables, Variables]:
        """Return the next states; saved are the gates and tanh(c')."""
        i, f, g, o = split(x + product, 4)
        i, f, g, o = pt.sigmoid(i), pt.sigmoid(f), pt.tanh(g), pt.sigmoid(o)
        c = f * states[1] + i * g
        t = pt.tanh(c)
        return [o * t, c], [i, f, g, o, t]

    def step_back(
        self, saved: Variables, before: Variables, after: Variables, grads: Variables
    ) -> tuple[Variables, list[Variable | None]]:
        """Return the gradients of a step."""
        (i, f, g, o, t), (dh, dc) = saved, grads
        of_o = dh * o * t
        dc = dc + dh * o - of_o * t
        of_i, of_f, of_g = dc * i * g, dc * f * before[1], dc * i
        parts = [of_i - of_i * i, of_f - of_f * f, of_g - of_g * g * g, of_o - of_o * o]
        d = pt.concatenate(parts, axis=1)
        return [d], [None, dc * f]


# Batches


def _folded(variable: Variable, lead: Sequence[Variable], core: int, has_steps: bool) -> Variable:
    """Return an array (B.., T, N, ..), or (B.., N, ..), whose rows are those of all batches."""
    ndim = variable.type.ndim
    full = pt.broadcast_to(variable, (*lead, *variable.shape[ndim - core :]))
    if has_steps:
        full = pt.moveaxis(full, len(lead), 0)
    first, rest = full.shape[:has_steps], full.shape[has_steps + len(lead) + 1 :]
    return full.reshape((*first, pt.prod(full.shape[has_steps : has_steps + len(lead) + 1]), *rest), ndim=core)


def _unfolded(variable: Variable, lead: Sequence[Variable], rows: Variable, has_steps: bool) -> Variable:
    """Return an array (B.., T, N, ..), or (B.., N, ..), from one with the rows of all batches."""
    shape = (*variable.shape[:has_steps], *lead, rows, *variable.shape[has_steps + 1 :])
    full = variable.reshape(shape, ndim=variable.type.ndim + len(lead))
    return pt.moveaxis(full, 0, len(lead)) if has_steps else full


@_vectorize_node.register(RecurrentLoop)
def _vectorize(op: RecurrentLoop, node: Apply, *inputs: Variable) -> Variables:
    """Make one loop of a batch of loops: with the rows of all batches, if all have the same parameters."""
    x, starts, weights, bias, mask = op.unpack(inputs)
    if weights.type.ndim > 2 or (bias is not None and bias.type.ndim > 1):
        dummies = [v.type() for v in node.inputs]
        return list(vectorize_graph(op.build_inner_graph(*dummies), dict(zip(dummies, inputs, strict=True))))
    cores = [(x, 3), *((v, 2) for v in starts), *([] if mask is None else [(mask, 2)])]
    shapes = [tuple(v.shape)[: v.type.ndim - core] for v, core in cores]
    ndim = max(map(len, shapes))
    lead = list(pt.broadcast_shape(*shapes, arrays_are_shapes=True)) if ndim else []
    parameters = [weights] if bias is None else [weights, bias]
    masks = [] if mask is None else [_folded(mask, lead, 2, True)]
    rows = [_folded(x, lead, 3, True), *(_folded(v, lead, 2, False) for v in starts), *parameters, *masks]
    count = op.states_count
    return [
        _unfolded(v, lead, starts[0].shape[-2], not count <= k < 2 * count)
        for k, v in enumerate(op(*rows, return_list=True))
    ]
