#!/usr/bin/env bash
# The examples in short form, on both drivers, compared with the default backend.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# NUMBA compiles a network for up to two minutes: the comparison is made for one network, on one driver.
compare=(--compare NUMBA)
for driver in pocl intel; do
    export PYTENSOR_FLAGS=device=opencl:$driver,floatX=float32
    printf -- '--- %s\n' "$driver"
    python examples/logistic_regression.py --steps 50 --compare NUMBA --out "$work"
    python examples/mlp_digits.py --epochs 2 --compare NUMBA --out "$work"
    for network in cnn_digits resnet8_digits vae_digits lstm_text transformer_text; do
        python "examples/$network.py" --epochs 1 "${compare[@]}" --out "$work"
        compare=()
    done
    python examples/own_kernels.py

    export PYTENSOR_FLAGS=device=opencl:$driver
    python examples/many_chains.py --chains 64 --draws 40 --out "$work"
    python examples/gaussian_process.py --points 100 --out "$work"
    python examples/hidden_markov_model.py --steps 200 --chains 0
    python examples/stochastic_volatility.py --days 200 --chains 0
    python examples/state_space_model.py --steps 100 --chains 0
    python examples/mixture.py --count 300 --chains 0
    python examples/pymc_logistic_regression.py --rows 5000 --chains 0
    python examples/pymc_radon.py --chains 0
done
