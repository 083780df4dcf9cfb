#!/usr/bin/env bash
# The wheel, made from the sdist, holds what it should and works outside the checkout;
# then the same for an editable install. A second build in another environment gives the same bytes.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

unset OCL_ICD_VENDORS   # the driver is that of the wheel's dependencies, also where setup.sh did not run

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

# build FOLDER OUTPUT: the metadata names the version of hatchling, so reproducible builds need the same one.
build() {
    PIP_CONSTRAINT=$checkout/ci/constraints.txt python -m build --outdir "$2" "$1"
}

# The files of the sdist in another folder, newer and with other modes, built by a process with another umask, language,
# time zone and hash seed.
build_elsewhere() {
    mkdir "$outside/elsewhere"
    tar -xzf "$dist"/*.tar.gz -C "$outside/elsewhere" --strip-components=1 --touch
    rm "$outside/elsewhere/PKG-INFO"
    chmod -R g+w,o-rwx "$outside/elsewhere"
    (
        umask 077
        export TZ=Asia/Tokyo LC_ALL=C PYTHONHASHSEED=1
        build "$outside/elsewhere" "$outside/dist"
    )
}

unset SOURCE_DATE_EPOCH   # hatchling has a date of its own where it is not set
rm -rf "$dist" "$fresh"
build . "$dist"
python ci/wheel_contents.py "$dist"/*.whl

build_elsewhere
for file in "$dist"/*; do
    cmp "$file" "$outside/dist/$(basename "$file")"
done
(cd "$dist" && sha256sum -- *)

python -m venv "$fresh"
"$fresh/bin/python" -m pip install -qq "$dist"/*.whl
smoke

"$fresh/bin/python" -m pip install -qq --force-reinstall --no-deps --editable .
smoke
