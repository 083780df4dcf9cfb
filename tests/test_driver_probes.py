"""The tool that runs the probe graphs on every driver."""

import importlib
import json

import numpy as np
import pytest

from tests.conftest import DRIVERS
from tests.helpers import CHECKOUT


@pytest.fixture(scope="module")
def tool():
    if not (CHECKOUT / "tools" / "driver_probes.py").is_file():
        pytest.skip("not a checkout")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(CHECKOUT))
        return importlib.import_module("tools.driver_probes")


def test_arguments_become_single_precision(tool):
    assert tool.in_single(np.zeros(3)).dtype == "float32"
    assert tool.in_single(np.zeros(3, "complex128")).dtype == "complex64"
    assert tool.in_single(np.zeros(3, "int64")).dtype == "int64"
    assert type(tool.in_single(0.5)) is np.float32
    assert [a.dtype for a in tool.in_single([np.zeros(2), np.zeros(2, "int8")])] == ["float32", "int8"]


def test_most_probes_are_numeric_and_need_no_double_precision(tool):
    numeric = tool.numbers_of_numeric()
    assert 0.6 * len(tool.PROBES) < len(numeric) < len(tool.PROBES)
    assert all(tool.group_of(tool.PROBES[k].op)[2] == tool.NUMERIC for k in numeric)


@pytest.mark.filterwarnings("ignore")
def test_graphs_run_on_a_driver(tool, tmp_path):
    numbers = [k for k, probe in enumerate(tool.PROBES) if probe.name.startswith("tensor.math.Dot-")][:3]
    tool.run_here(numbers, DRIVERS[0], tmp_path / "lines")
    results, begun = tool._read(tmp_path / "lines")
    assert begun == [] and numbers
    assert [(r.number, r.state, r.is_on_device) for r in results] == [(k, tool.RIGHT, True) for k in numbers]


def test_a_graph_that_ends_the_process_counts_alone(tool, tmp_path, monkeypatch):
    processes = []

    def process(numbers, driver, environment, log):
        """Ends at number 5; what was begun before it in the same batch has no answer either."""
        processes.append(list(numbers))
        path, lines = tmp_path / "lines", []
        for start in range(0, len(numbers), tool.BATCH):
            batch = list(numbers[start : start + tool.BATCH])
            lines.append(["begin", *batch])
            if 5 in batch:
                path.write_text("\n".join(map(json.dumps, lines)))
                return path, "the process ended with -11"
            lines += [["end", k, tool.RIGHT, True, ""] for k in batch]
        path.write_text("\n".join(map(json.dumps, lines)))
        return path, ""

    monkeypatch.setattr(tool, "_in_a_process", process)
    numbers = range(3 * tool.BATCH)
    results = {r.number: r for r in tool.run_on("pocl", numbers, {}, tmp_path / "log")}
    assert sorted(results) == list(numbers)
    assert [k for k in numbers if results[k].state != tool.RIGHT] == [5]
    assert results[5] == tool.Result(5, tool.CRASHED, False, "the process ended with -11")
    assert sorted(map(len, processes)) == [1] * tool.BATCH + [2 * tool.BATCH, 3 * tool.BATCH]


def test_the_table_has_a_row_for_a_driver(tool):
    driver = tool.drivers()[0]
    numeric = sorted(tool.numbers_of_numeric())[:2]
    results = [tool.Result(numeric[0], tool.RIGHT, True), tool.Result(numeric[1], tool.WRONG, False, "0 instead of 1")]
    row = tool._row(driver, "1.0", results, 2.4)
    assert row == f"| {driver.title} | 1.0 | 2 | 1 | 1 | 0 | 0 | 1 of 2 (50.0 %) | 2 |"
    assert len(tool.table([row]).splitlines()) == 3


def test_rows_of_other_drivers_are_kept(tool):
    titles = [driver.title for driver in tool.drivers()]
    page = f"text\n{tool.BEGIN}\n{tool.table([f'| {t} | old |' for t in titles[:3]])}\n{tool.END}\n"
    rows = tool.with_kept_rows([f"| {titles[1]} | new |"], page)
    assert rows == [f"| {titles[0]} | old |", f"| {titles[1]} | new |", f"| {titles[2]} | old |"]
