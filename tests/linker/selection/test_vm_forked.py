"""Functions of a forked process run on the host: the device is the parent's."""

import pytest

from tests.helpers import on_one_driver, run_script

START = """
    import os, numpy as np, pytensor, pytensor.tensor as pt, pytensor_cl
    pytensor.config.floatX = "float32"
    pytensor_cl.use("opencl:{driver}")
    x, k = pt.vector("x"), pt.lvector("k")
    w = pytensor.shared(np.float32([1, 2, 3]), name="w")
    f = pytensor.function([x, k], [pt.exp(x).sum(), (x[k] * w).sum()], mode="OPENCL")
    vm = f.vm

    def on_device(stats):
        stats.use("device")
        vm._apply(stats)
        stats.calls_left = 1000

    def forked(work):
        reader, writer = os.pipe()
        if os.fork() == 0:
            try:
                found = work()
            except Exception as error:
                found = type(error).__name__
            os.write(writer, json.dumps(found).encode())
            os._exit(0)
        os.close(writer)
        return json.loads(os.fdopen(reader).read())

    values, at = np.zeros(3, "float32"), np.array([0, 1, 2])
"""


@pytest.mark.parametrize("calls", [0, 4])
def test_what_ran_on_the_device_runs_on_a_host(context, calls):
    script = (
        START
        + f"""
    for _ in range({calls}):
        f(values, at)
        on_device(vm.signatures[0])

    def work():
        results = [[float(v) for v in f(values + i, at)] for i in range(4)]
        return [*results, [c.side for c in pytensor_cl.explain(f).choices]]
    seen["child"] = forked(work)
    seen["parent"] = [float(v) for v in f(values, at)]
    """
    )
    seen, _ = run_script(script.format(driver=context.name))
    wanted = [[3 * 2.718281828**i, 6 * i] for i in range(4)]
    for results, (total, product) in zip(seen["child"][:4], wanted, strict=True):
        assert results == pytest.approx([total, product], rel=1e-6)
    assert seen["child"][4:] == [["host"]]
    assert seen["parent"] == [3, 0]


@on_one_driver
def test_arrays_without_elements(context):
    """For C: NUMBA takes the maximum of nothing for minus infinity."""
    script = (
        START
        + """
    largest = pytensor.function([x], [x.max(), x.sum()], mode="OPENCL")
    largest(values)
    total = pytensor.function([x], pt.exp(x).sum(), mode="OPENCL")
    total(values)
    seen["totals"] = forked(lambda: [float(total(values[:n])) for n in (0, 3, 0)])
    seen["largest"] = forked(lambda: [float(v) for v in largest(values[:0])])
    """
    )
    seen, _ = run_script(script.format(driver=context.name))
    assert seen == {"totals": [0, 3, 0], "largest": "ValueError"}


@on_one_driver
def test_errors_are_those_of_the_host_and_what_only_the_device_has_is_out_of_reach(context):
    script = (
        START
        + """
    update = pytensor.function([x], updates=[(w, w + pt.exp(x))], mode="OPENCL")
    with pytensor.config.change_flags(opencl__select_backend=False):
        alone = pytensor.function([x], pt.exp(x).sum(), mode="OPENCL")
    f(values, at)
    on_device(vm.signatures[0])
    seen["errors"] = [forked(lambda: f(values, at + 1)), forked(lambda: [f(values, at), f(values, at + 1)])]
    seen["alone"] = forked(lambda: float(alone(values)))
    vm = update.vm
    update(values)
    on_device(vm.signatures[0])
    update(values)
    seen["update"] = forked(lambda: update(values))
    seen["parent"] = w.get_value().tolist()
    """
    )
    seen, _ = run_script(script.format(driver=context.name))
    assert seen["errors"] == ["IndexError"] * 2
    assert (seen["alone"], seen["update"]) == ("ForkedProcessError", "ForkedProcessError")
    assert seen["parent"] == [3, 4, 5]


@on_one_driver
def test_a_function_that_is_compiled_there_runs_on_the_host(context):
    script = (
        START
        + """
    def compiled():
        h = pytensor.function([x, k], (pt.exp(x)[k] * w).sum(), mode="OPENCL")
        report = pytensor_cl.explain(h)
        return [float(h(values, at)), len(report.device_nodes), sorted(set(n.reason for n in report.host_nodes))]

    def asked_for_the_device():
        return float(pytensor.function([x], pt.exp(x).sum().transfer("dev0"), mode="OPENCL")(values))

    seen["compiled"], seen["asked"] = forked(compiled), forked(asked_for_the_device)
    """
    )
    seen, _ = run_script(script.format(driver=context.name))
    total, on_device, reasons = seen["compiled"]
    assert (total, on_device) == (6, 0)
    assert any("forked" in reason for reason in reasons)
    assert seen["asked"] == "ForkedProcessError"
