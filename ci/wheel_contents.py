"""Compare the files and the version of a wheel with those of the checkout: ``wheel_contents.py <wheel>``."""

import re
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def expected() -> set[str]:
    """Return what the checkout says a wheel holds, without its metadata."""
    suffixes = {".py", ".pyi", ".css", ".js"}  # style sheets and scripts are those of reports
    package = {p.relative_to(ROOT).as_posix() for p in (ROOT / "pytensor_cl").rglob("*") if p.suffix in suffixes}
    kernels = {f"pytensor_cl/{p.relative_to(ROOT).as_posix()}" for p in (ROOT / "kernels").rglob("*.mako")}
    return package | kernels | {"pytensor_cl/py.typed", "pytensor_cl.pth"}


def version(wheel: zipfile.ZipFile) -> str:
    """Return the version in the wheel's metadata."""
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return re.search(r"^Version: (.+)$", wheel.read(metadata).decode(), re.MULTILINE)[1]


def main(path: str) -> str | None:
    """Return what is wrong with the wheel, or None."""
    wheel = zipfile.ZipFile(path)
    declared = f'__version__ = "{version(wheel)}"\n'
    for content in ((ROOT / "pytensor_cl/__init__.py").read_bytes(), wheel.read("pytensor_cl/__init__.py")):
        if declared.encode() not in content:
            return f"{path}: pytensor_cl/__init__.py has no line {declared!r}"
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    missing, extra = sorted(expected() - held), sorted(held - expected())
    if missing or extra:
        return f"{path}: missing {missing}, not expected {extra}"
    print(f"{Path(path).name}: {len(held)} files, as expected")
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
