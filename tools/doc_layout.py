"""Look for what is cut off in the built documentation, in a browser, at the width of a desktop and of a telephone.

usage: python tools/doc_layout.py BUILT_HTML [--width 1400 --width 480] [--browser /usr/bin/chromium] [--only TEXT]

Prints each element that reaches beyond the column of its page and stands in no box with a scroll bar, each box that
hides a part of its contents, and each page that is wider than the window; the exit status is 1 if there is one. It
needs playwright (``pip install playwright``) and an installed Chromium.
"""

import argparse
import shutil
import sys
from pathlib import Path

WIDTHS = (1400, 480)
SLACK = 10
"""Pixels by which headings and tables of the theme reach into the margin."""

# Runs in the page. Text that only screen readers get is a box of one pixel.
FIND = """
slack => {
    const found = [], page = document.documentElement;
    if (page.scrollWidth > window.innerWidth + slack) found.push(`the page is ${page.scrollWidth} pixels wide`);
    const column = document.querySelector('article');
    if (!column) return found;
    const right = column.getBoundingClientRect().right;
    const scrolls = element => {
        const style = getComputedStyle(element).overflowX;
        return style === 'auto' || style === 'scroll';
    };
    const label = element => `<${element.tagName.toLowerCase()} class="${element.className}">`
        + ` "${(element.textContent || '').trim().replace(/\\s+/g, ' ').slice(0, 60)}"`;
    const visit = element => {
        const box = element.getBoundingClientRect();
        if (box.width <= 1 || getComputedStyle(element).visibility === 'hidden') return;
        if (box.right > right + slack) {
            found.push(`${Math.round(box.right - right)} pixels beyond the column: ${label(element)}`);
            return;  // what is inside is the same
        }
        const hides = ['hidden', 'clip'].includes(getComputedStyle(element).overflowX);
        if (hides && element.scrollWidth > element.clientWidth + slack) {
            found.push(`${element.scrollWidth - element.clientWidth} pixels hidden: ${label(element)}`);
        }
        if (!scrolls(element)) for (const child of element.children) visit(child);
    };
    for (const child of column.children) visit(child);
    return found;
}
"""


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the built pages")
    parser.add_argument("--width", type=int, action="append", help=f"pixels (default: {WIDTHS})")
    parser.add_argument("--browser", default=shutil.which("chromium"), help="default: chromium, if it is installed")
    parser.add_argument("--only", default="", help="pages whose path has this in it")
    return parser.parse_args()


def main() -> int:
    """Print what is cut off."""
    from playwright.sync_api import sync_playwright

    options = arguments()
    pages = [p for p in sorted(options.folder.rglob("*.html")) if options.only in str(p) and "_static" not in p.parts]
    problems = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.browser, args=["--no-sandbox"])
        for width in options.width or WIDTHS:
            page = browser.new_page(viewport={"width": width, "height": 1000})
            for path in pages:
                page.goto(path.resolve().as_uri())
                for text in page.evaluate(FIND, SLACK):
                    sys.stdout.write(f"{path.relative_to(options.folder)} at {width}: {text}\n")
                    problems += 1
            page.close()
        browser.close()
    sys.stdout.write(f"{len(pages)} pages, {problems} problems\n")
    return int(problems > 0 or not pages)


if __name__ == "__main__":
    sys.exit(main())
