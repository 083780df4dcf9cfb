"""The process that `early_check` starts.

``python -m pytensor_cl.runtime.features.early_check_process DEVICE [FOLDER]`` checks a device; the results are kept in
the package's cache folder.
"""

import sys

from pytensor_cl.runtime.device import resolve
from pytensor_cl.runtime.features.self_check import features_of


def main(device: str, cache_dir: str | None = None) -> None:
    """Check a device, as the flag ``device`` names it."""
    features_of(resolve(device), cache_dir)


if __name__ == "__main__":
    main(*sys.argv[1:])
