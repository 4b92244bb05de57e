"""The site: Sphinx with MyST, built by `make docs`; warnings are errors there."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from sphinx.application import Sphinx

from mpicomp.base.version import __version__

project, version, release = "mpicomp", __version__, __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "docstrings", "catalogue_pages"]
exclude_patterns = ["_build", "_ext"]
nitpicky = True
# Two classes that only authors of methods meet; they have no page.
nitpick_ignore = [("py:class", f"mpicomp.methods.base.{name}") for name in ("Message", "Nothing")]

myst_heading_anchors = 4  # links to headings, as [EF21](methods.md#ef21)

# torch takes hundreds of megabytes, and only its names are needed.
autodoc_mock_imports = ["torch"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
python_display_short_literal_types = True

smartquotes = False  # start="gradient" is to be copied
highlight_language = "none"  # indented blocks are formulas and shell commands
nb_execution_mode = "off"  # outputs are stored: `make notebook`
html_theme = "furo"
html_title = "mpicomp"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False

# Pages are read on the forge too, where they link to files of the root that the site has as pages.
ROOT_FILES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"}


def link_to_pages(content: list[str]) -> None:
    for file, page in ROOT_FILES.items():
        for target in (file, f"../{file}"):
            content[0] = content[0].replace(f"]({target})", f"]({page})")


def setup(app: Sphinx) -> None:
    app.connect("source-read", lambda app, name, content: link_to_pages(content))
    app.connect("include-read", lambda app, path, parent, content: link_to_pages(content))
