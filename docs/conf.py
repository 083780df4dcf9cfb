"""How Sphinx builds the documentation: ``sphinx-build -W docs docs/_build``."""

from docutils import nodes
from sphinx import addnodes

from pytensor_cl import __version__

project = "pytensor-cl"
author = "pytensor-cl developers"
copyright = f"2026, {author}"
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "sphinx_design"]
exclude_patterns = ["_build", "results", "**/.ipynb_checkpoints"]
html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = "pytensor-cl"
html_static_path = ["_static"]
html_css_files = ["site.css"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
nb_merge_streams = True
nb_execution_mode = "off"  # the outputs in the notebooks are checked by tools/notebooks.py

copybutton_selector = (
    "div.highlight-python pre, div.highlight-ipython3 pre, div.highlight-bash pre, div.highlight-py pre"
)

napoleon_google_docstring = False
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say it in words


_MEMBERS = {"attribute", "classmethod", "method", "property", "staticmethod"}


def _show_class(app, domain, objtype, content):
    """Put the class before the name of its member: Sphinx leaves it out in the body of the class."""
    for signature in content.parent.findall(addnodes.desc_signature):
        owner = signature.get("class", "")
        if domain == "py" and objtype in _MEMBERS and owner and signature.parent is content.parent:
            name = next(signature.findall(addnodes.desc_name))
            prefix = signature["fullname"].removesuffix(name.astext())
            name.parent.insert(name.parent.index(name), addnodes.desc_addname("", "", nodes.Text(prefix)))


def setup(app):
    """Connect what is defined here."""
    app.connect("object-description-transform", _show_class)
