"""`draw`: a compiled function as a picture."""

from os import PathLike
from pathlib import Path
from typing import Any

from pytensor_cl.linker.linker import OpenCLLinker
from pytensor_cl.linker.reports.drawing.model import Graph, function_graph
from pytensor_cl.linker.reports.drawing.svg import svg
from pytensor_cl.linker.reports.drawing.viewer import notebook, viewer
from pytensor_cl.linker.reports.page import save
from pytensor_cl.linker.reports.profile import Profile, last_profile


class Picture:
    """A compiled function as a picture; notebooks show it.

    Attributes
    ----------
    title
        Name of the function.
    graph
        The nodes and edges.
    """

    def __init__(self, graph: Graph, title: str, unfold: bool) -> None:
        self.graph, self.title, self._unfold = graph, title, unfold

    def __repr__(self) -> str:
        counts = f"{len(self.graph.nodes)} boxes, {len(self.graph.edges)} edges"
        return f"<picture of {self.title}: {counts}; a notebook shows it, save('f.html') and save('f.svg') write it>"

    def to_svg(self) -> str:
        """Return the picture as SVG."""
        return svg(self.graph, self.title, unfold=self._unfold)

    def to_html(self) -> str:
        """Return the picture as an interactive page, which needs no other file."""
        return viewer(self.graph, self.title)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def _repr_html_(self) -> str:
        return notebook(self.graph, self.title)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the picture to a file.

        Parameters
        ----------
        path
            ``.svg`` for a drawing, ``.html`` for an interactive page.

        Raises
        ------
        ValueError
            The name has another ending.
        """
        ending = Path(path).suffix.lower()
        if ending not in (".svg", ".html", ".htm"):
            raise ValueError(f"a picture is written as .svg or .html, not {ending or 'without an ending'}: {path}")
        save(path, self.to_svg() if ending == ".svg" else self.to_html())


def draw(
    fn: Any, file: str | PathLike[str] | None = None, *, profile: Profile | None = None, unfold: bool = False
) -> Picture:
    """Draw a compiled function: what computes where, what is transferred, and the values between.

    Parameters
    ----------
    fn
        A function of mode OPENCL.
    file
        A file to write, ``.svg`` or ``.html``. The page of HTML can be moved and searched, and parts of it folded.
    profile
        A profile of the function, whose times and shapes are shown; the last one that still exists unless it is given.
    unfold
        Whether the SVG shows what is inside of fused kernels, loops and branches. The page unfolds them on request.

    Returns
    -------
    Picture
        The picture. A notebook shows it, and it can be saved later.

    Raises
    ------
    TypeError
        The function was compiled for another linker.
    ValueError
        The file has another ending, or the profile is of other functions.

    Examples
    --------
    >>> pytensor_cl.draw(f, "f.html")  # doctest: +SKIP
    """
    linker = getattr(getattr(fn, "maker", None), "linker", None)
    if not isinstance(linker, OpenCLLinker):
        raise TypeError(
            f"draw takes compiled functions of mode OPENCL; got {fn!r} with linker {linker!r}: compile it with "
            "pytensor.function(..., mode='OPENCL')"
        )
    if profile is None:
        profile = last_profile(fn)
    elif not any(fn is each for each in profile.functions):
        raise ValueError("the profile is of other functions: give draw the profile of this one, or none")
    picture = Picture(function_graph(fn, profile), fn.name or "function", unfold)
    if file is not None:
        picture.save(file)
    return picture
