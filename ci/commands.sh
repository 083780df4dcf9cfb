#!/usr/bin/env bash
# Each of the README's two commands as the first thing that runs on a machine: in a new environment and an empty home.
# The second one takes a fortieth of the tests here (PYTENSOR_CL_SHARE); ci/test.sh runs all.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

empty_home() {
    unset OCL_ICD_VENDORS XDG_CACHE_HOME
    export HOME=$work/$1/home
    rm -rf "${work:?}/$1"
    mkdir -p "$HOME"
    python -m venv "$work/$1/venv"
    PATH=$work/$1/venv/bin:$PATH
    hash -r
}

(
    empty_home check
    pip install -qq .
    python -m pytensor_cl check
)
(
    empty_home tests
    pip install -qq -c ci/constraints.txt '.[test]'
    export PYTENSOR_CL_SHARE=${PYTENSOR_CL_SHARE:-1/40}
    pytest -q
)
