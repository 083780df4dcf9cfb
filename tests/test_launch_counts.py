"""The number of launches of a call on a GPU: a change that adds some shows here."""

import re
import subprocess
import sys

from tests.helpers import CHECKOUT

MOST = {"network": 17, "varying slopes": 7, "mean of looked up": 18, "adam": 1}


def test_calls_need_no_more_launches():
    command = [sys.executable, "-m", "tools.launch_counts", *MOST]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    found = {name: int(n) for name, n in re.findall(r"^(.*?): \d+ kernels, (\d+) launches", done.stdout, re.MULTILINE)}
    assert len(found) == len(MOST), done.stdout + done.stderr
    for begin, most in MOST.items():
        (count,) = (n for name, n in found.items() if name.startswith(begin))
        assert count <= most, begin
