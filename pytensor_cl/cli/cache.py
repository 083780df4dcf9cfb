"""``cache``: the compiled kernels on disk."""

import argparse

from pytensor_cl.cli.cache_folders import CacheFolder, cache_folders
from pytensor_cl.cli.text import print_json, print_table, size


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    actions = ("info", "clear")
    parser.add_argument("action", choices=actions, nargs="?", default="info", help="default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _describe(folder: CacheFolder) -> dict[str, object]:
    return {
        "owner": folder.owner,
        "path": str(folder.path),
        "entries": sum(1 for _ in folder.entries()),
        "bytes": folder.size(),
        "writable": not folder.problem(),
        "problem": folder.problem(),
    }


def _print_text(folders: list[dict], action: str) -> None:
    rows = [(f["owner"], f["path"], f["entries"], size(f["bytes"])) for f in folders]
    print_table(("cache", "folder", "entries", "size"), rows, right=("entries", "size"), wrapped=("folder",))
    for problem in dict.fromkeys(f["problem"] for f in folders if f["problem"]):
        print(f"not used: {', '.join(f['owner'] for f in folders if f['problem'] == problem)}: {problem}")
    if action == "clear":
        print("removed: the next build of each kernel compiles it again")


def run(options: argparse.Namespace) -> int:
    """Show the size of each cache, before it was cleared."""
    folders = cache_folders()
    found = [_describe(folder) for folder in folders]
    if options.action == "clear":
        for folder in folders:
            folder.clear()
    if options.json:
        print_json(found)
    else:
        _print_text(found, options.action)
    return 0
