"""How Sphinx builds the site: `make docs`. It fetches nothing, and every warning is an error."""

import tidelog

project = "tidelog"
author = "the tidelog authors"
release = tidelog.__version__
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]

myst_heading_anchors = 3  # a link may name a heading: limits.md#what-is-served

default_role = "code"  # docstrings have names in single backticks
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_use_type_comments = False

html_theme = "furo"
html_title = f"tidelog {release}"
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
