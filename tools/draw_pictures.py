"""Make the pictures of docs/pictures.md and docs/profiling.md.

usage: python tools/draw_pictures.py [--out FOLDER] [--browser PROGRAM]

Writes draw.svg, draw-unfolded.svg, timeline.png and roofline.png into docs/images, and with a browser of the family of
Chromium also viewer.png and profile.png, which are photographs of pages. Times are those of the machine that runs it.
"""

import argparse
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from matplotlib import pyplot

import pytensor_cl

IMAGES = Path(__file__).parents[1] / "docs" / "images"


def network() -> tuple[Any, tuple[np.ndarray, ...]]:
    """Return the function of docs/pictures.md and its argument."""
    x = pt.fmatrix("x")
    w = pytensor.shared(np.ones((500, 500), "float32"), name="w")
    f = pytensor.function([x], pt.special.softmax(pt.tanh(x @ w), axis=1).sum(axis=0), mode="OPENCL", name="f")
    return f, (np.ones((1000, 500), "float32"),)


def loop() -> tuple[Any, tuple[np.ndarray, ...]]:
    """Return a recurrent function and its arguments."""
    x, h = pt.ftensor3("x"), pt.fmatrix("h")
    w = pytensor.shared(np.eye(64, dtype="float32"), name="w")
    states = pytensor.scan(lambda xt, state: pt.tanh(xt + state @ w), sequences=x, outputs_info=h, return_updates=False)
    f = pytensor.function([x, h], states[-1], mode="OPENCL", name="loop")
    return f, (np.ones((10, 32, 64), "float32"), np.zeros((32, 64), "float32"))


def step() -> tuple[Any, tuple[np.ndarray, ...]]:
    """Return a step of training of a small network, and its arguments."""
    rng = np.random.default_rng(0)
    x, target = pt.fmatrix("x"), pt.fmatrix("target")
    weights = [
        pytensor.shared(rng.normal(size=size).astype("float32") / 8, name=f"w{k}")
        for k, size in enumerate(((64, 256), (256, 256), (256, 10)))
    ]
    hidden = pt.tanh(pt.tanh(x @ weights[0]) @ weights[1])
    loss = -(target * pt.log(pt.special.softmax(hidden @ weights[2], axis=1))).sum(axis=1).mean()
    updates = {w: w - np.float32(0.1) * g for w, g in zip(weights, pt.grad(loss, weights), strict=True)}
    f = pytensor.function([x, target], loss, updates=updates, mode="OPENCL", name="train")
    labels = np.eye(10, dtype="float32")[rng.integers(0, 10, 512)]
    return f, (rng.normal(size=(512, 64)).astype("float32"), labels)


def profiled(make: Callable[[], tuple[Any, tuple[np.ndarray, ...]]], calls: int = 20) -> tuple[Any, Any]:
    """Return a function and the profile of some calls, of which the first ones are not timed."""
    with pytensor.config.change_flags(opencl__placement="device"):
        f, arguments = make()
    for _ in range(5):
        f(*arguments)
    with pytensor_cl.profile(f) as profile:
        for _ in range(calls):
            f(*arguments)
    return f, profile


def photograph(browser: str, page: Path, picture: Path, size: str) -> None:
    """Save what a browser shows of a page."""
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={size}", "--virtual-time-budget=2000"]
    subprocess.run([browser, *options, f"--screenshot={picture}", page.as_uri()], check=True, capture_output=True)


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=IMAGES, help="folder (default: docs/images)")
    parser.add_argument("--browser", help="program such as chromium, for pictures of pages")
    options = parser.parse_args()
    f, profile = profiled(network)
    pytensor_cl.draw(f, options.out / "draw.svg")
    steps, loop_profile = profiled(loop)
    pytensor_cl.draw(steps, options.out / "draw-unfolded.svg", profile=loop_profile, unfold=True)
    train, times = profiled(step)
    shortest = min(range(times.calls), key=lambda k: times.plot_timeline(call=k).get_xlim()[1])
    pyplot.close("all")
    times.plot_timeline(call=shortest).figure.savefig(options.out / "timeline.png", dpi=90)
    times.plot_roofline().figure.savefig(options.out / "roofline.png", dpi=90, bbox_inches="tight")
    if options.browser:
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.html"
            pytensor_cl.draw(train, page)
            photograph(options.browser, page, options.out / "viewer.png", "1000,700")
            profile.to_html(page)
            photograph(options.browser, page, options.out / "profile.png", "1000,620")


if __name__ == "__main__":
    main()
