"""How Sphinx builds the documentation: ``sphinx-build -W docs docs/_build``."""

from pytensor_cl import __version__

project = "pytensor-cl"
author = "pytensor-cl developers"
copyright = f"2026, {author}"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "pytensor-cl"

myst_heading_anchors = 3

napoleon_google_docstring = False
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say it in words
add_module_names = False
