#!/usr/bin/env bash
# The documentation builds without a warning. The code on its pages runs with the tests (tests/test_docs.py).
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

sphinx-build -W --keep-going -q -b html docs "$work/docs/html"

# The notebooks of the tutorials run and print what they have stored.
python tools/notebooks.py --check

# The page that says what runs where is written by the code that it is about.
OMP_NUM_THREADS=1 python tools/op_coverage.py --check

# Tables of measurements have the lines and columns that the code above them prints; the numbers may differ.
python tools/doc_tables.py --check
