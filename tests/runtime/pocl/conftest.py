"""These tests are of PoCL's hooks: without the folder `runtime/pocl` there is nothing to test."""

from importlib.util import find_spec

if find_spec("pytensor_cl.runtime.pocl") is None:
    collect_ignore_glob = ["*"]
