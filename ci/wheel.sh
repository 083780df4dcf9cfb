#!/usr/bin/env bash
# The wheel, made from the sdist, holds what it should and works outside the checkout;
# then the same for an editable install.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

dist=$work/dist
fresh=$work/wheel-venv
outside=$(mktemp -d)
trap 'rm -rf "$outside"' EXIT

smoke() {
    # From an empty folder, in an environment without the checkout on its path.
    (
        cd "$outside"
        PYTENSOR_FLAGS=device=opencl:pocl,floatX=float32 "$fresh/bin/python" "$checkout/ci/smoke.py"
        "$fresh/bin/python" -m pytensor_cl check --json
    )
}

rm -rf "$dist" "$fresh"
python -m build --outdir "$dist" .
python ci/wheel_contents.py "$dist"/*.whl

python -m venv "$fresh"
"$fresh/bin/python" -m pip install -qq "$dist"/*.whl
smoke

"$fresh/bin/python" -m pip install -qq --force-reinstall --no-deps --editable .
smoke
