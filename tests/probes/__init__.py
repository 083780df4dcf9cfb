"""Small graphs, at least one for each Op of PyTensor that a user can reach, and what the mode does with them.

`census` lists the Ops, `probe` says what a probe is, `survey` runs them; the other files are the probes themselves. `tools/op_coverage.py`
makes a page of the results, `tests/test_coverage.py` a test.
"""
