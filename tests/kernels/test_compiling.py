"""Two processes compile the kernels: which part each has, and a second process that fails."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mpicomp.kernels import compiled, compiling

FOLDER = Path(compiled.__file__).parent


def needed(module: str) -> set[str]:
    """``module`` and all modules beside it that it imports, in whatever way; ``jit`` compiles nothing."""
    found = set()
    for node in ast.walk(ast.parse((FOLDER / f"{module}.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == compiling.PACKAGE:
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{compiling.PACKAGE}."):
            found.add(node.module.rpartition(".")[2])
    return {module}.union(*map(needed, found - {"jit"}))


def test_neither_part_needs_a_module_of_the_other():
    """Two processes that compile one function at the same time may lose an entry of its index."""
    here, there = (set().union(*map(needed, part)) for part in compiled.PARTS)
    assert (here, there) == tuple(map(set, compiled.PARTS))
    assert not here & there
    left = {path.stem for path in FOLDER.glob("*.py")} - {"__init__", "all", "jit"} - here - there
    assert left == {"sign"} and needed("sign") & here and needed("sign") & there


PACKAGE = {
    "__init__.py": "PARTS = ('first',), ('second',)",
    "first.py": "import os\nprint('first', os.getpid() == int(os.environ['PARENT']), flush=True)",
    "second.py": "import os\nopen(os.environ['NOTE'], 'a').write(f'{os.getpid()} ')",
    "all.py": "from one_kernel import first, second",
}
CODE = """
import os, sys
from pathlib import Path
from mpicomp.kernels import compiling
sys.path.insert(0, {package!r})
compiling.PACKAGE = "one_kernel"
compiling.cores = lambda: range({cores})
sys.executable = {executable!r}
os.environ["PARENT"], os.environ["NOTE"] = str(os.getpid()), {note!r}
print(compiling.compile_all(Path({folder!r})).__name__, os.getpid())
"""


@pytest.mark.parametrize(
    ("cores", "executable", "processes"),
    [(2, sys.executable, 2), (1, sys.executable, 1), (2, "/no/python", 1), (2, "/bin/false", 1)],
)
def test_what_the_second_process_does_not_do_the_first_does(cores, executable, processes, tmp_path):
    package = tmp_path / "package" / "one_kernel"
    package.mkdir(parents=True)
    for name, text in PACKAGE.items():
        (package / name).write_text(text)
    note = tmp_path / "note"
    names = {"package": str(package.parent), "folder": str(tmp_path), "note": str(note)}
    code = CODE.format(**names, cores=cores, executable=executable)
    told = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert told[:3] == ["first", "True", "one_kernel.all"]
    imported = note.read_text().split()  # a number of each process that has imported the second part
    assert len(imported) == processes and imported[-1] == told[-1]


@pytest.mark.parametrize("wrong", ["source", "target"])
def test_a_second_process_of_another_source_or_target_compiles_nothing(wrong, tmp_path):
    right = {"source": str(Path(compiling.__file__).parent), "target": compiling.made_for()}
    code = "import sys; from mpicomp.kernels import compiling; compiling.second(*sys.argv[1:])"
    arguments = [str(tmp_path), *(right | {wrong: "another"}).values(), f"{compiling.PACKAGE}.philox"]
    assert subprocess.run([sys.executable, "-c", code, *arguments]).returncode == 1
    assert not list(tmp_path.iterdir())


def test_numba_colours_nothing_with_colorama(tmp_path):
    """It would start colorama, which writes to a rank's stdout as the program ends."""
    codes = "type('Codes', (), {'__getattr__': lambda *_: ''})()"
    text = (
        f"__version__ = '1.0'\ndef init(): print('begun')\nreinit = deinit = print; Fore = Style = {codes}\n"
    )
    (tmp_path / "colorama.py").write_text(text)
    code = """
import os
from mpicomp.kernels import compiling
before = dict(os.environ)
compiling.made_for()
assert os.environ == before
from numba.core.errors import termcolor
termcolor().errmsg("text")
"""
    path = os.pathsep.join([str(tmp_path), *sys.path])
    environment = os.environ | {"PYTHONPATH": path}
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True) == ""
