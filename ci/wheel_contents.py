"""Compare the files of a wheel with those of the checkout: ``wheel_contents.py <wheel>``."""

import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def expected() -> set[str]:
    """Return what the checkout says a wheel holds, without its metadata."""
    package = {p.relative_to(ROOT).as_posix() for p in (ROOT / "pytensor_cl").rglob("*.py")}
    kernels = {f"pytensor_cl/{p.relative_to(ROOT).as_posix()}" for p in (ROOT / "kernels").rglob("*.mako")}
    return package | kernels | {"pytensor_cl/py.typed", "pytensor_cl.pth"}


def main(wheel: str) -> str | None:
    """Return what is wrong with the wheel, or None."""
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    missing, extra = sorted(expected() - held), sorted(held - expected())
    if missing or extra:
        return f"{wheel}: missing {missing}, not expected {extra}"
    print(f"{Path(wheel).name}: {len(held)} files, as expected")
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
