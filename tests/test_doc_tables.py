"""The tool that keeps tables of measurements in the documentation up to date."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = """# Page

```python
rows = ["name", "one"]
print("nothing of interest")
```

```python
print("kernels   share")
print("-------   -----")
print("dev0  some CPU (a platform)  12.5")
print(f"{rows[1]}       1.25 ms    87 %")
```

<!-- printed by the code above: tools/doc_tables.py -->
```text
kernels  share
-------  -----
dev0  another (platform)  3
one   330 us   5 %
```
"""


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("doc_tables", ROOT / "tools" / "doc_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_numbers_units_and_devices_are_not_compared(tool):
    assert tool.differences(PAGE, tool.printed(PAGE, "page")) == []


def test_the_order_of_rows_is_not_compared(tool):
    assert tool.structure("a  b\n-  -\nx  1\ny  2\n\nc\n-\nz") == tool.structure("a  b\n-  -\ny  3\nx  4\n\nc\n-\nz")
    assert tool.structure("a  b\n-  -\nx  1") != tool.structure("x  b\n-  -\na  1")
    short, cut = (
        f"context  peak\n-  -\ndev0  {name}  1.5\n\nnode (per call)\n-" for name in ("A (B)", "A(R) (B an...")
    )
    assert tool.structure(short) == tool.structure(cut)


@pytest.mark.parametrize(
    ("old", "new"),
    [("one   330", "two   330"), ("kernels  share", "kernels  share  GB/s"), ("one   330 us   5 %\n", ""), ("5 %", "")],
)
def test_names_columns_and_rows_are(tool, old, new):
    stale = PAGE.replace(
        f"```text\n{PAGE.split('```text')[1][1:]}", "```text\n" + PAGE.split("```text")[1][1:].replace(old, new)
    )
    assert stale != PAGE
    assert tool.differences(stale, tool.printed(stale, "page"))


def test_a_page_is_refreshed(tool):
    made = tool.refreshed(PAGE, tool.printed(PAGE, "page"))
    assert "one       1.25 ms    87 %\n```" in made and "330 us" not in made
    assert made.replace("12.5", "") != PAGE and made.startswith(PAGE.split("```text")[0])


def test_the_page_about_profiling_has_a_generated_table(tool):
    text = (ROOT / "docs" / "profiling.md").read_text()
    assert len(tool.TABLE.findall(text)) == text.count(tool.MARK) == 1
