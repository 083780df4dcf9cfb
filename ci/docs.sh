#!/usr/bin/env bash
# The documentation builds without a warning, and its code runs.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

sphinx-build -W --keep-going -q -b html docs "$work/docs/html"
sphinx-build -W --keep-going -q -b doctest docs "$work/docs/doctest"
