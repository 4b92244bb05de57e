"""What the package says of itself: version, citation, extras."""

from __future__ import annotations

import json
import re
from configparser import ConfigParser
from pathlib import Path

from mpicomp.base.version import __version__

ROOT = Path(__file__).parent.parent
KEYS = {
    *("cff-version", "message", "type", "title", "abstract", "version", "license", "authors", "keywords"),
}


def cited() -> dict[str, str]:
    """The keys of CITATION.cff with their texts; the file has one line a key, but for its lists."""
    lines = (ROOT / "CITATION.cff").read_text().splitlines()
    pairs = [line.partition(":") for line in lines if re.match(r"[a-z]", line)]
    values = {key: value.strip() for key, _, value in pairs}
    return {key: json.loads(value) if value.startswith('"') else value for key, value in values.items()}


def test_the_citation_is_of_this_version_and_licence():
    """The keys that version 1.2.0 of the Citation File Format asks for, and no key that it does not know."""
    found, config = cited(), ConfigParser()
    config.read(ROOT / "setup.cfg")
    assert {"cff-version", "message", "title", "authors"} <= found.keys() <= KEYS
    assert found["cff-version"] == "1.2.0" and found["type"] == "software"
    assert found["version"] == __version__
    assert found["license"] == config["metadata"]["license"]
    author = f'- name: "{config["metadata"]["author"]}"'
    assert author in (ROOT / "CITATION.cff").read_text()
    assert config["metadata"]["author"] in (ROOT / "LICENSE").read_text()


def test_the_command_is_the_function_that_says_how_to_install_the_laboratory():
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    assert config["options.entry_points"]["console_scripts"].split() == [
        "mpicomp",
        "=",
        "mpicomp.__main__:main",
    ]
