"""Sphinx: the pages of this folder as a site, by `make docs`."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import entries  # noqa: E402

project = "mpicomp"
html_title = "mpicomp"
extensions = ["myst_parser"]
exclude_patterns = ["_build"]
myst_heading_anchors = 4
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072b2", "color-brand-content": "#0072b2"},
    "dark_css_variables": {"color-brand-primary": "#56b4e9", "color-brand-content": "#56b4e9"},
}

# Pages outside this folder, which the site has under other names.
OUTSIDE = {"](../CONTRIBUTING.md": "](contributing.md", "](../CHANGELOG.md": "](changes.md"}


def setup(app):
    """Make the pages of entries, and let links to pages outside lead to those of the site."""
    entries.write(HERE / "entries")

    def read(app, name, source):
        for outside, inside in OUTSIDE.items():
            source[0] = source[0].replace(outside, inside)

    app.connect("source-read", read)
