# Sourced by the other scripts: where things are, and how many threads they may use.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

checkout=$PWD
work=$checkout/build/ci      # everything that CI makes; git ignores build/
venv=$work/venv
icd=$work/icd

export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
export OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-2}
export NUMBA_NUM_THREADS=${NUMBA_NUM_THREADS:-2}
export MPLBACKEND=Agg
export PIP_DISABLE_PIP_VERSION_CHECK=1
export PYTHONUNBUFFERED=1
unset PYTHONDONTWRITEBYTECODE   # each process of the tests would compile all of them

# Intel's driver; PoCL's comes with its wheel and is seen besides.
export OCL_ICD_VENDORS=$icd

export PIP_CACHE_DIR=${PIP_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/pip}

# Programs that another version of the code has compiled are no test of this one.
export XDG_CACHE_HOME=$work/cache
unset PYTENSOR_FLAGS PYTHONPATH
export PYTENSORRC=$work/no-pytensorrc

# A virtual environment that setup.sh has made comes first.
if [ -d "$venv/bin" ]; then
    PATH=$venv/bin:$PATH
fi
