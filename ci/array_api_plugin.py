"""Settings of the array API standard's test suite: accepted failures from a file, no shrinking, no stored examples."""

import os
from pathlib import Path

import pytest
from hypothesis import Phase, settings

_FILE = Path(os.environ["ARRAY_API_XFAILS"])
_SOMETIMES = "# sometimes"


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Shrinking compiles kernels for many minutes where a failure is accepted."""
    suite = settings.get_profile("array-api-tests")
    settings.register_profile("no-shrinking", suite, phases=[Phase.explicit, Phase.generate], database=None)
    settings.load_profile("no-shrinking")


def _accepted() -> dict[str, bool]:
    """Return the names of tests that may fail, and whether they always do."""
    names, always = {}, True
    for line in _FILE.read_text().splitlines():
        if line == _SOMETIMES:
            always = False
        elif line.startswith("array_api_tests/"):
            names[line] = always
    return names


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the accepted failures; a line of the file that names no test is an error."""
    accepted = _accepted()
    for item in items:
        if item.nodeid in accepted:
            item.add_marker(pytest.mark.xfail(strict=accepted.pop(item.nodeid), reason=_FILE.name))
    if accepted and not config.args[1:] and len(items) > 1000:
        raise pytest.UsageError(f"{_FILE.name} names tests that are not there: {sorted(accepted)}")
