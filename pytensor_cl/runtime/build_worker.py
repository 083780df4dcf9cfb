"""Build programs in a worker process, so that they are on disk when another process builds them.

Usage: ``python -m pytensor_cl.runtime.build_worker PLATFORM VERSION DEVICE``, with the arguments of `ProgramCache` on
the first line of stdin and a program on each further line, as JSON. Each is answered by ``done`` or ``failed``.
`parallel_build` starts it.
"""

import json
import os
import sys

from pytensor_cl.errors import CompilationError
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.compilation.variants import default_variants
from pytensor_cl.runtime.program import ProgramCache

NICENESS = 5


def _answer(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(platform: str, version: str, device: str) -> None:
    """Open the device, then build what stdin has, at a lower priority than the parent."""
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    platforms = (p for p in cl.get_platforms() if (p.name, p.version) == (platform, version))
    found = next(platforms).get_devices()[int(device)]
    context = cl.Context([found])
    options, cache_dir, by_reference = json.loads(sys.stdin.readline())
    programs = ProgramCache(context, options, cache_dir, default_variants(found), structs_by_reference=by_reference)
    _answer("done")
    for line in sys.stdin:
        try:
            programs.build_text(json.loads(line))
        except (CompilationError, cl.Error):  # the parent finds out
            _answer("failed")
        else:
            _answer("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
