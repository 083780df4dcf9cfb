#!/usr/bin/env bash
# The oldest and the newest PyTensor that pyproject.toml allows. The other steps use the one that ci/constraints.txt pins.
# Each gets a fresh environment, installed as a user installs it, and a part of the tests. What the newest does
# differently from docs/coverage.md is printed, and is no failure.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

read -r pinned oldest limit < <(python - <<'EOF'
import re, pathlib, tomllib
pinned = re.search(r"^pytensor==(\S+)$", pathlib.Path("ci/constraints.txt").read_text(), re.MULTILINE)[1]
wanted = next(d for d in tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"] if d.startswith("pytensor"))
print(pinned, *re.fullmatch(r"pytensor>=(\S+),<(\S+)", wanted).groups())
EOF
)
newest=$(pip download -qq --no-deps --dest "$work/newest" "pytensor<$limit" && basename "$work"/newest/pytensor-*.whl | cut -d- -f2)
printf 'PyTensor: oldest %s, pinned %s, newest %s\n' "$oldest" "$pinned" "$newest"

export PYTENSOR_CL_TEST_DRIVERS=pocl PYTENSOR_CL_STRICT_COVERAGE=1
for version in "$oldest" "$newest"; do
    if [ "$version" = "$pinned" ]; then
        printf -- '--- PyTensor %s is the pinned one, which the other steps test\n' "$version"
        continue
    fi
    printf -- '--- PyTensor %s\n' "$version"
    fresh=$work/pytensor-$version
    python -m venv "$fresh"
    "$fresh/bin/python" -m pip install -qq '.[test]' "pytensor==$version"
    "$fresh/bin/python" -m pytest -q tests/test_coverage.py tests/rewriting tests/test_mode.py
    [ "$version" != "$newest" ] || OMP_NUM_THREADS=1 "$fresh/bin/python" tools/op_coverage.py --check --drivers pocl
    rm -rf "$fresh"
done
