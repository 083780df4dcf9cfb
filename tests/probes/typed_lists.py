"""Typed lists."""

import numpy as np
from pytensor.typed_list import basic

from tests.probes.probe import probe

X = np.arange(3, dtype="float32")
LIST = [X, X + 1, X + 2]

PROBES = (
    probe(basic.GetItem, lambda v: v[1] + 1, LIST),
    probe(basic.Append, lambda v, x: basic.append(v, x)[3], LIST, X),
    probe(basic.Extend, lambda v: basic.extend(v, v)[4], LIST),
    probe(basic.Insert, lambda v, x: basic.insert(v, 1, x)[1], LIST, X),
    probe(basic.Remove, lambda v, x: basic.remove(v, x)[0], LIST, X),
    probe(basic.Reverse, lambda v: basic.reverse(v)[0], LIST),
    probe(basic.Index, lambda v, x: basic.index_(v, x), LIST, X + 1),
    probe(basic.Count, lambda v, x: basic.count(v, x), LIST, X + 1),
    probe(basic.Length, lambda v: basic.length(v), LIST),
    probe(basic.MakeList, lambda x: basic.make_list([x, x + 1])[1], X),
)
