"""Numbers that decide speed stand in the record of their family, each with its unit or meaning."""

import ast
import re
from pathlib import Path

import pytest

import pytensor_cl
import pytensor_cl.routines

ROOT = Path(pytensor_cl.routines.__file__).parent
RECORDS = sorted(ROOT.glob("*/limits.py"))
UNIT = re.compile(
    "BYTES|ELEMENTS|ITEMS|ROWS?|COLUMNS|VECTORS|LANES|DIMS|COST|RATIO|TERMS|DEPTH|STEP|TILE|POSITIONS|CHANNELS|SHARE|PER_"
)
# What no measurement changes: structs and formats, mathematics, limits of OpenCL and of NumPy.
NO_MEASUREMENT = {
    "MAX_GROUPS RESERVED _BATCH _CHANNEL _DIMS _BATCH_DIMS TAPS COUNT SIZE _SIZE INPUT OUTPUT NEVER MAX_SIZE RADICES",
    "OF_W OF_V ASCENDING SHIFTED CONJUGATED SCALED LEAST_SHAPE NORMAL_R NORMAL_INVERSE_R EXPONENTIAL_R LARGEST_POPULATION",
    "_HALF_LOG_2PI _EXACT_FACTORIALS FEW_TRIALS _MODULUS _WORD _BLOCK ALWAYS_RECOMPUTE _NDIM _LEAD WARP",
}


def constants(path):
    """The numeric constants of a module: name, and the comment behind the value."""
    text = path.read_text()
    for node in ast.parse(text).body:
        if not isinstance(node, ast.Assign) or any(isinstance(n, ast.Call) for n in ast.walk(node.value)):
            continue
        values = [n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)]
        if values and all(type(v) in (int, float) for v in values):
            comment = text.splitlines()[node.end_lineno - 1].partition("  # ")[2]
            yield from ((n.id, comment) for n in ast.walk(node.targets[0]) if isinstance(n, ast.Name))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.parent.name)
def test_every_number_has_a_unit_or_a_comment(path):
    found = dict(constants(path))
    assert found and [name for name, comment in found.items() if not comment and not UNIT.search(name)] == []


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.parent.name)
def test_other_modules_of_a_family_have_no_such_numbers(record):
    known = {name for names in NO_MEASUREMENT for name in names.split()}
    others = (path for path in record.parent.glob("*.py") if path != record)
    assert [(path.name, name) for path in others for name, _ in constants(path) if name not in known] == []


def test_divisions_that_round_up_have_a_name():
    root = Path(pytensor_cl.__file__).parent
    found = {path.name for path in root.rglob("*.py") if "-(-" in path.read_text()}
    assert found == {"integers.py", "blockwise.py"}  # the definitions, and a division of variables
