#!/usr/bin/env bash
# On a machine with a GPU: examples, choices by measurement, arrays, the driver, speed beside CuPy, JAX and PyTorch where
# they are installed, merged launches, many chains, and a share of the tests, in this order within a number of seconds. A
# step that fails does not end the run.
#     bash ci/gpu.sh [all | examples | variants | arrays | driver | bench | launches | chains | tests]...
# Without arguments all steps run.
# What a measurement has to choose, in one call of a minute: the fastest form of float32 products, and more.
#     BUDGET=90 bash ci/gpu.sh variants
# After a repair, the short form: what was wrong, and nothing else.
#     BUDGET=150 ONLY="gemm sort" TESTS=tests/routines/gemm SHARE=1/1 bash ci/gpu.sh bench tests
# PYTHON (default python3) has the package, installed or on PYTHONPATH, and pytest. Everything that is found goes to OUT,
# and in short form to OUT/results.json, from which tools/gpu_results.py makes the tables of docs/gpu.md.
# Other variables: DEVICE (opencl:gpu), KIND (gpu; cpu for a trial without a GPU), SCALE (4, of the workloads; 0.01 for a
# trial), VARIANT_SCALE (1, of variants and arrays; 0.02 for a trial), ONLY (families or names of workloads), SHARE (1/3,
# of the tests), TESTS (folders), WORKERS (processes of the tests: two less than there are cores).
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
PYTHON=${PYTHON:-python3} DEVICE=${DEVICE:-opencl:gpu} KIND=${KIND:-gpu}
OUT=$(mkdir -p "${OUT:-build/gpu}" && cd "${OUT:-build/gpu}" && pwd) || exit 2
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 MPLBACKEND=Agg
export PYTHONFAULTHANDLER=1  # a driver may end the process
export PYTENSOR_FLAGS=floatX=float32 XLA_PYTHON_CLIENT_PREALLOCATE=false CUPY_TF32=0 CUDA_CACHE_MAXSIZE=4294967296
export OUT
exec > >(tee "$OUT/log.txt") 2>&1
began=$SECONDS budget=${BUDGET:-600}
: >"$OUT/steps.txt"

left() { echo $((budget - (SECONDS - began))); }
wants() { [[ " ${steps} " == *" all "* || " ${steps} " == *" $1 "* ]]; }
steps=${*:-all}

# step NAME SECONDS COMMAND...: runs a command for so many seconds at most, and notes how it ended.
step() {
    local name=$1 most=$2 room rc start=$SECONDS
    shift 2
    room=$(left)
    [ "$most" -lt "$room" ] || most=$room
    if [ "$most" -lt 5 ]; then
        echo "== $name: no time is left"
        echo "$name - 0" >>"$OUT/steps.txt"
        return 1
    fi
    echo "== $name ($most s at most, $room s left)"
    timeout -k 10 -s TERM "$most" "$@"
    rc=$?
    echo "== $name: exit status $rc after $((SECONDS - start)) s"
    echo "$name $rc $((SECONDS - start))" >>"$OUT/steps.txt"
    return $rc
}

to_file() { local file=$1; shift; "$@" >"$file"; }
export -f to_file

# Where the package is on PYTHONPATH only, its start-up hook is not read: the benchmark of chains needs it.
"$PYTHON" -c 'import sys; from pytensor_cl.cli.start_up_hook import is_installed; sys.exit(not is_installed())' || {
    hook=$(mktemp -d)
    cp pytensor_cl.pth "$hook/"
    printf 'import os, site\nsite.addsitedir(os.path.dirname(__file__))\n' >"$hook/sitecustomize.py"
    export PYTHONPATH=$hook:$PYTHONPATH
}

nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem --format=csv,noheader 2>/dev/null
echo "${COMMIT:-$(git rev-parse HEAD 2>/dev/null)}" >"$OUT/commit.txt"
if ! step devices 90 "$PYTHON" -m pytensor_cl devices; then
    echo 'no OpenCL device: nothing else can run'
    exit 1
fi
"$PYTHON" -c 'import sys; from pytensor_cl.runtime.device import resolve; print(resolve(sys.argv[1]).info.name)' \
    "$DEVICE" || { echo "no device $DEVICE: nothing else can run"; exit 1; }

# Where a C compiler is there, the end of a process in the driver is reported with the stack of C functions as well.
native=
if command -v cc >/dev/null && cc -shared -fPIC -o "$OUT/native_stack.so" tools/native_stack.c 2>/dev/null; then
    native=$OUT/native_stack.so
fi

# Programs as users write them, all at a time, beside the same in mode NUMBA. All that they print is kept.
examples() {
    local folder name rc pids=() names=(cnn_digits resnet8_digits transformer_text many_chains pymc_radon)
    folder=$(mktemp -d)
    mkdir -p "$OUT/examples"
    for name in "${names[@]}"; do
        export PYTENSOR_FLAGS=device=$DEVICE
        case $name in
        many_chains) set -- --chains 256 --draws 100 --out "$folder/$name" ;;
        pymc_*) set -- --chains 0 ;;
        *) set -- --epochs 1 --compare NUMBA --out "$folder/$name"; PYTENSOR_FLAGS+=,floatX=float32 ;;
        esac
        LD_PRELOAD=$native "$PYTHON" "examples/$name.py" "$@" >"$OUT/examples/$name.txt" 2>&1 &
        pids+=($!)
    done
    for name in "${names[@]}"; do
        wait "${pids[0]}"
        rc=$?
        pids=("${pids[@]:1}")
        echo "--- $name: exit status $rc"
        if [ "$rc" = 0 ]; then tail -n 20 "$OUT/examples/$name.txt"; else tail -n 400 "$OUT/examples/$name.txt"; fi
    done
}
export -f examples
export PYTHON DEVICE native
if wants examples; then
    step examples 90 bash -c 'examples > "$0" 2>&1' "$OUT/examples.txt"
    grep -e '^---' "$OUT/examples.txt"
    grep -l -e 'Fatal Python error' "$OUT"/examples/*.txt
fi
if wants variants; then
    room=$(left)
    [ "$room" -lt 75 ] || room=75
    step variants "$room" "$PYTHON" -W ignore benchmarks/gpu_variants.py "$OUT/variants.json" --device "$DEVICE" \
        --seconds $((room - 15)) --scale "${VARIANT_SCALE:-1}"
fi
if wants arrays; then
    room=$(left)
    [ "$room" -lt 50 ] || room=50
    step arrays "$room" "$PYTHON" -W ignore benchmarks/gpu_arrays.py "$OUT/arrays.json" --device "$DEVICE" \
        --seconds $((room - 10)) --scale "${VARIANT_SCALE:-1}"
fi
if wants driver; then
    step doctor 60 bash -c 'to_file "$@"' - "$OUT/doctor.json" "$PYTHON" -m pytensor_cl doctor --device "$DEVICE" --json
    step features 45 "$PYTHON" benchmarks/gpu_features.py "$OUT/features.json" --device-type "$KIND"
    step probe 60 "$PYTHON" benchmarks/gpu_probe.py "$OUT/probe.json" --device-type "$KIND" ${QUICK:+--quick}
    step check 40 "$PYTHON" -m pytensor_cl check --device "$DEVICE" --repeats 1
fi
if wants bench; then
    room=$(left)
    [ "$room" -lt 200 ] || room=200
    read -r -a only <<<"${ONLY:-}"
    step bench "$room" "$PYTHON" -W ignore benchmarks/gpu.py "$OUT/bench.json" --scale "${SCALE:-4}" \
        --device "$DEVICE" --seconds $((room - 15)) --profile --binaries "$OUT/binaries.tar.xz" \
        ${only[@]:+--only "${only[@]}"}
fi
if wants launches && "$PYTHON" -c 'import pymc' 2>/dev/null; then
    PYTENSOR_FLAGS=device=$DEVICE step launches 50 "$PYTHON" -W ignore benchmarks/gpu_launches.py "$OUT/launches.json" \
        --seconds 40
fi
if wants chains && "$PYTHON" -c 'import pymc' 2>/dev/null; then
    has_jax=$("$PYTHON" -c 'import jax; print(1)' 2>/dev/null)
    PYTENSOR_FLAGS=device=$DEVICE step chains 60 bash -c 'to_file "$@"' - "$OUT/chains.txt" \
        "$PYTHON" benchmarks/chains.py --model logistic --chains "${CHAINS:-1024}" --gradient --rounds 1 \
        ${has_jax:+--jax-python "$PYTHON"}
    has_blackjax=$("$PYTHON" -c 'import blackjax; print(1)' 2>/dev/null)
    PYTENSOR_FLAGS=device=$DEVICE step trees 60 bash -c 'to_file "$@"' - "$OUT/trees.txt" \
        "$PYTHON" benchmarks/chains.py --model slopes --samplers nuts --trees both --rounds 1 \
        ${has_blackjax:+--blackjax}
fi
if wants tests; then
    # Each worker has a context of its own, so a kernel that ends one ends that of one worker only.
    cores=$(nproc)
    spec='import sys; from pytensor_cl.runtime.device import resolve; print(resolve(sys.argv[1]).stable_spec.split(":")[1])'
    PYTENSOR_CL_TEST_DRIVERS=$("$PYTHON" -c "$spec" "$DEVICE")
    export PYTENSOR_CL_TEST_DRIVERS PYTENSOR_CL_SHARE=${SHARE:-1/3} PYTENSOR_FLAGS=
    export NUMBA_NUM_THREADS=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
    room=$(left)
    limits=()
    if "$PYTHON" -c 'import pytest_timeout' 2>/dev/null; then
        # A test whose kernels take long to compile fails then. The other method would end the worker, as a fault does.
        limits=(--timeout=120 --timeout-method=signal "--session-timeout=$((room > 30 ? room - 20 : room))")
    fi
    read -r -a folders <<<"${TESTS:-tests/routines tests/ops tests/scalar tests/nn}"
    LD_PRELOAD=$native step tests "$room" bash -c 'to_file "$@"' - "$OUT/tests.txt" "$PYTHON" -m pytest -q -rfE --tb=short \
        -n "${WORKERS:-$((cores > 3 ? cores - 2 : 1))}" --dist=worksteal -p no:cacheprovider \
        --junitxml="$OUT/tests.xml" -p tests.report_failures "${limits[@]}" "${folders[@]}"
    tail -n 40 "$OUT/tests.txt"
fi
"$PYTHON" tools/gpu_results.py collect "$OUT" "$OUT/results.json" && echo "results: $OUT/results.json"
echo "== all: $((SECONDS - began)) s"
