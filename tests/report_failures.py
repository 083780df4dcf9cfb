"""A plugin of pytest that writes each failure to a file at once: the run may be ended before its summary.

``-p tests.report_failures``; the file is ``failures.txt`` in the folder of the environment variable ``OUT``.
"""

import os
from pathlib import Path

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write the end of a failure's text; the process that collects the reports of all workers does."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        with (Path(os.environ.get("OUT", ".")) / "failures.txt").open("a", encoding="utf-8") as file:
            file.write(f"----- {report.nodeid} ({report.when})\n{str(report.longrepr)[-2000:]}\n")
