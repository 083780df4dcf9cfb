"""``python -m pytensor_cl``."""

import sys

from pytensor_cl.cli import main

if __name__ == "__main__":
    sys.exit(main())
