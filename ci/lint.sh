#!/usr/bin/env bash
# What can be said about the code without running it.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

ruff check .
ruff format --check .
mypy
mypy --config-file tests/typing/mypy.ini
lint-imports --no-cache --no-logo
