"""Sphinx settings; tools/build_docs.py gathers the pages and builds."""

from cudadoctor import __version__

project = "cudadoctor"
version = release = __version__
author = project_copyright = "the cudadoctor authors"
html_title = f"cudadoctor {release}"
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_use_index = html_domain_indices = False

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4
smartquotes = False  # quotes stand in commands and error texts
exclude_patterns = ["build", "_static"]

default_role = "code"  # docstrings mark code with single backticks
toc_object_entries = False  # hundreds of them, copied into every page's sidebar
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
