"""Names that are imported when they are asked for, and libraries that an extra brings."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import mpicomp
from mpicomp.base.extras import NotInstalled, needed_by
from mpicomp.base.lazy import Table

LAZY = ("mpicomp", "mpicomp.methods", "mpicomp.compressors", "mpicomp.problems")


def imported_for_types(package: str) -> set[str]:
    """The names that ``package`` imports, for type checkers or for all."""
    tree = ast.parse(Path(str(import_module(package).__file__)).read_text())
    found = {
        alias.asname for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    return {name for name in found if name}


@pytest.mark.parametrize("package", LAZY)
def test_type_checkers_see_the_names_that_are_there(package):
    module = import_module(package)
    seen = imported_for_types(package)
    if package == "mpicomp":
        seen = seen.union(*(imported_for_types(below) for below in LAZY[1:])) - {
            "METHODS",
            "COMPRESSORS",
            "PROBLEMS",
        }
        assert set(module.__all__) == seen
    else:
        assert set(module.__all__) == seen | {package.rpartition(".")[2].upper()}
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        _ = module.nothing


def test_a_table_imports_what_is_asked_for_and_names_without_importing():
    table: Table[object] = Table("mpicomp.methods", {"gd": "gd:GD", "nobody": "missing:Nobody"})
    assert table["gd"] is mpicomp.GD and list(table) == ["gd", "nobody"] and "nobody" in table
    assert table.name_of(mpicomp.GD) == "gd" and table.name_of(mpicomp.TopK) is None
    with pytest.raises(ModuleNotFoundError):
        table["nobody"]
    table.add("topk", "mpicomp.compressors.topk:TopK")
    assert table["topk"] is mpicomp.TopK and table.places["TopK"] == "mpicomp.compressors.topk:TopK"
    with pytest.raises(KeyError):
        table["agd"]


def python(code: str, *without: str) -> subprocess.CompletedProcess[str]:
    """``code`` in an interpreter in which the libraries ``without`` are not installed."""
    hide = f"""
import sys

class Hidden:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {without!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden)
"""
    return subprocess.run([sys.executable, "-c", hide + code], capture_output=True, text=True)


def test_the_package_loads_few_modules_and_neither_laboratory_nor_annex():
    done = python("import mpicomp\nprint(*(name for name in sys.modules if name.startswith('mpicomp')))")
    loaded = done.stdout.split()
    assert 1 < len(loaded) < 100
    assert not [
        name for name in loaded if name.startswith(("mpicomp.lab", "mpicomp.images", "mpicomp.torch"))
    ]


LAB = ("click", "rich", "matplotlib", "sklearn", "PIL", "pandas")


def test_without_the_libraries_of_the_laboratory_runs_and_loops_work():
    done = python(
        """
import numpy as np, mpicomp
from mpicomp import EF21, GD, Aggregator, Logistic, Quadratics, TopK
mpicomp.run(GD(), Quadratics(d=5), workers=2, rounds=3)
mpicomp.run("marina(randk(k=0.5))", Logistic((np.eye(4), np.arange(4) % 2), lam=0.1), workers=2, rounds=3)
print(Aggregator(EF21(TopK(k=1)), like=np.zeros(3))(np.ones(3)))
""",
        *LAB,
    )
    assert done.returncode == 0 and done.stdout.startswith("["), done.stderr


@pytest.mark.parametrize("name", ["compare", "tune", "load", "plot"])
def test_what_needs_the_laboratory_says_how_to_install_it(name):
    done = python(f"import mpicomp\ntry: mpicomp.{name}\nexcept mpicomp.ConfigError as e: print(e)", *LAB)
    assert "needs click, which is not installed: pip install 'mpicomp[lab]'." in done.stdout


def test_the_command_says_how_to_install_it():
    done = python("from mpicomp.__main__ import main\nmain()", "rich")
    assert done.returncode == 1 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("mpicomp: ") and line.endswith("pip install 'mpicomp[lab]'.")


def test_data_of_scikit_learn_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setenv("MPICOMP_CACHE", str(tmp_path))
    done = python(
        "import mpicomp\nmpicomp.run('gd', 'logistic(data=digits, lam=1)', workers=1, rounds=1)", *LAB
    )
    assert (
        "the data set digits needs sklearn, which is not installed: pip install 'mpicomp[lab]'."
        in done.stderr
    )


def test_an_error_within_that_is_none_of_a_missing_library_is_left_alone():
    with pytest.raises(ZeroDivisionError), needed_by("a", "b"):
        1 / 0  # noqa: B018
    with pytest.raises(NotInstalled, match="a needs nobody_s, which is not installed"), needed_by("a", "b"):
        import nobody_s.part  # type: ignore[import-not-found]  # noqa: F401
