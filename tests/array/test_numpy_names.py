"""NumPy's names that the namespace does not have: the error names what takes their place."""

import re

import numpy as np
import pytest

import pytensor_cl.array as xp
from pytensor_cl.array.numpy_names import _NAMES_HERE


@pytest.mark.parametrize(
    "module, name, hint",
    [
        (xp, "array", "it is asarray, which copies arrays of the host here"),
        (xp, "arctan2", "it is atan2 here"),
        (xp, "interp", r"on the host it is np\.interp\(np\.asarray\(x\)\)"),
        (xp.linalg, "lstsq", r"it is pinv\(a\) @ b here"),
        (xp.linalg, "tensorinv", r"on the host it is np\.linalg\.tensorinv\(np\.asarray\(x\)\)"),
        (xp.random, "rand", r"it is default_rng\(seed\)\.random\(shape\) here"),
        (xp.random, "normal", r"default_rng\(seed\)\.normal"),
    ],
)
def test_missing_names(module, name, hint):
    with pytest.raises(AttributeError, match=hint):
        getattr(module, name)


def test_other_names_have_no_hint():
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'$"):
        xp.nonsense


def test_the_table_names_what_exists():
    modules = {module.__name__: module for module in (xp, xp.linalg, xp.random)}
    for module, names in _NAMES_HERE.items():
        for name, here in names.items():
            assert not hasattr(modules[module], name)
            found = [hasattr(modules[module], word) for word in re.findall(r"^\w+", here)]
            assert found == [True], here
    assert not set(dir(np)) & set(_NAMES_HERE["pytensor_cl.array"]) & set(xp.__all__)
