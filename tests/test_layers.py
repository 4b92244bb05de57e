"""The architecture, read from the imports: they only point down, and each library has its place."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "mpicomp"

# From the bottom up.  A module may import from its own line and from lines below it.
LAYERS = [
    ["base"],
    ["kernels"],
    ["codecs"],
    ["keys"],
    ["compressors", "data", "problems"],
    ["methods"],
    ["text", "transports"],
    ["averaging"],
    ["runtime"],
    ["loops", "images"],
    ["torch"],
    ["lab"],
    ["__init__", "__main__"],
]
LEVEL = {module: level for level, modules in enumerate(LAYERS) for module in modules}

# Inside these packages too, from the bottom up; above it all the classes, and then ``__init__``.
INSIDE = {
    "compressors": ["vectors", "lending", "base", "support"],
    "methods": ["parameters", "base", "support"],
    "text": ["quoting", "literals", "own_classes", "unimported", "config"],
    "lab": ["experiment", "jobs", "bench", "cli"],
}

TORCH = (
    "__init__",
    "alike",
    "buffers",
    "clipping",
    "comparing",
    "content",
    "ddp",
    "fragments",
    "gloo",
    "gradients",
    "group_meeting",
    "hook",
    "late",
    "local_steps",
    "local_warnings",
    "opening",
    "optimiser",
    "overlap",
    "parameters",
    "process_group",
    "recipe",
    "saving",
    "state",
    "stateful",
    "steps",
    "tensors",
    "timing",
    "unused",
    "wrapping",
)

# Libraries that only these files may import.
HOMES = {
    "mpi4py": {
        "transports/arrivals.py",
        "transports/mpi.py",
        "transports/mpi_buffers.py",
        "transports/mpi_exchange.py",
        "transports/mpi_meeting.py",
        "transports/point_to_point.py",
        "transports/ending.py",
        "transports/ulfm.py",
        "transports/waiting.py",
        "lab/jobs/script.py",
        "lab/bench/round.py",
        "lab/bench/aggregate.py",
        "lab/bench/together.py",
        "lab/bench/train/rank.py",
        "lab/bench/serving/rank.py",
    },
    "matplotlib": {
        "lab/experiment/canvas.py",
        "lab/experiment/figure.py",
        "lab/experiment/glyphs.py",
        "lab/bench/figures.py",
        "lab/bench/serving/traffic.py",
        # These four for its types.
        *(f"lab/experiment/{name}.py" for name in ("layout", "results", "scripting")),
    },
    "sklearn": {"data/libsvm.py", "data/bundled.py"},
    "PIL": {"images/png.py"},
    "cupy": {"kernels/cuda/gpu.py"},
    "torch": {
        f"lab/bench/{name}.py"
        for name in ("peers", "cuda", "train/models", "train/contestants", "train/rank")
    }
    | {f"torch/{name}.py" for name in TORCH},
    "numba": {"kernels/compiling.py", "kernels/compiled/jit.py", "kernels/compiled/hadamard.py"},
    "llvmlite": {"kernels/compiling.py", "kernels/compiled/jit.py", "kernels/compiled/hadamard.py"},
    "click": {
        f"lab/cli/{name}.py"
        for name in (
            "__init__",
            "advise",
            "root",
            "options",
            "sections",
            "suites",
            "work",
            "launch",
            "look",
            "bench",
            "bench_hosts",
            "images",
            "predict",
        )
    },
    "constriction": {"codecs/entropy.py"},
    "threadpoolctl": {"base/blas.py"},
    "pandas": {
        "runtime/frames.py",
        "runtime/result.py",
        "lab/experiment/results.py",
        "lab/experiment/trials.py",
    },  # the last three for its types
}

FACE = {"", "__main__"}  # what users import, and `python -m`: the only files that may import "mpicomp" itself


def name_of(path: Path) -> str:
    """The dotted name of a module below the package, as ``runtime.loop``; the package's own is empty."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").rstrip(".")


FILES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported(tree: ast.Module) -> list[str]:
    """The dotted names that a module imports, anywhere in it, and in the literals given to import_module."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
            "import_module",
            "__import__",
        ):
            names += [a.value for a in node.args[:1] if isinstance(a, ast.Constant)]
    return names


def resolved(name: str) -> str | None:
    """The module below the package in which the imported ``name`` is, or None if it is another library's."""
    if name.split(".")[0] != PACKAGE.name:
        return None
    name = name.removeprefix(PACKAGE.name).lstrip(".")
    while name not in FILES:  # a class or a function of a module
        name = name.rpartition(".")[0]
    return name


@cache
def imports() -> dict[str, list[str]]:
    """The dotted names that each module imports."""
    return {name: imported(ast.parse(path.read_text())) for name, path in FILES.items()}


@cache
def arrows() -> dict[str, set[str]]:
    """The modules of the package that each module imports."""
    return {name: {to for to in map(resolved, names) if to is not None} for name, names in imports().items()}


def room(name: str) -> str:
    return name.split(".")[0] or "__init__"


def test_every_module_has_a_layer():
    assert {room(name) for name in FILES} == set(LEVEL)


def test_imports_point_down():
    up = [
        f"{name} imports {to or PACKAGE.name}"
        for name, below in arrows().items()
        for to in below
        if LEVEL[room(to)] > LEVEL[room(name)]
    ]
    assert not up


def test_nothing_below_its_face_imports_the_package_itself():
    assert [name for name, below in arrows().items() if "" in below and name not in FACE] == []


def test_no_files_import_each_other_in_a_circle():
    """What is left once files that import none of the others, or that none imports, are taken away."""
    left = {name: below - {name} for name, below in arrows().items()}
    while free := {name for name, below in left.items() if not below} | left.keys() - set().union(
        *left.values()
    ):
        left = {name: below - free for name, below in left.items() if name not in free}
    assert not left


def test_the_test_of_layers_sees_every_way_to_import():
    """A name from the package itself, a literal, a function's own import, one for types alone."""
    ways = [
        "from mpicomp import Aggregator",
        "from mpicomp.lab.cli import main",
        "import_module('mpicomp.lab.cli.root')",
        "import importlib; importlib.import_module('mpicomp')",
        "def f():\n    import mpicomp.lab as lab",
        "if TYPE_CHECKING:\n    from mpicomp.runtime.loop import Loop",
    ]
    found = [[resolved(name) for name in imported(ast.parse(way))] for way in ways]
    assert found == [[""], ["lab.cli"], ["lab.cli.root"], [None, ""], ["lab"], ["runtime.loop"]]


def level_inside(package: str, module: str) -> int:
    levels = INSIDE[package]
    return levels.index(module) if module in levels else len(levels) + (module == "")


def test_imports_inside_a_package_point_down():
    """In compressors ``base`` imports neither ``support`` nor a class, and ``support`` imports no class."""
    up = []
    for package in INSIDE:
        for name in (name for name in FILES if room(name) == package):
            own = level_inside(package, f"{name}.".split(".")[1])
            to_own = (to for to in arrows()[name] if room(to) == package)
            up += [(name, to) for to in to_own if level_inside(package, f"{to}.".split(".")[1]) > own]
    assert not up


def test_libraries_stay_in_their_files():
    strays = []
    for name, names in imports().items():
        where = str(FILES[name].relative_to(PACKAGE))
        strays += [f"{where} imports {n}" for n in names if where not in HOMES.get(n.split(".")[0], {where})]
    assert not strays


def test_no_method_or_compressor_subclasses_another():
    """A class is abstract or final."""
    from inspect import isabstract

    from mpicomp import compressors, methods

    for cls in [*compressors.COMPRESSORS.values(), *methods.METHODS.values()]:
        assert not isabstract(cls)
        assert all(isabstract(base) or base is object for base in cls.__mro__[1:] if base.__module__ != "abc")


def test_importing_the_package_needs_neither_mpi_nor_a_figure_library():
    """Nor scipy's parts, which scipy loads when they are asked for: every rank imports the package."""
    import subprocess
    import sys

    heavy = {"mpi4py", "PIL", "matplotlib", "pandas", "sklearn", "numba", "cupy", "torch", "click", "rich"}
    heavy |= {f"scipy.{part}" for part in ("linalg", "sparse", "special")}
    code = f"import sys, mpicomp; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "method", ["PowerSGD(2, rows=4, gamma=0.1)", "PerturbedSGD(mpicomp.TopK(2), eta=0.1, r=0.1, I_reset=2)"]
)
def test_no_part_of_scipy_is_loaded_while_rounds_are_timed(method):
    """These draw normals in a round.  The first gradient is that of x0's observation, which is not timed."""
    import subprocess
    import sys

    code = f"""
import sys, mpicomp
import numpy as np

seen = []

class Flat(mpicomp.Objective):
    def value(self, x):
        return 0.0
    def grad(self, x):
        seen.append({{name for name in sys.modules if name.startswith("scipy")}})
        return np.ones_like(x)

class Plain(mpicomp.Problem):
    def dimension(self):
        return 24
    def objective(self, i, n):
        return Flat()

mpicomp.run(mpicomp.{method}, Plain(), workers=2, rounds=3)
print(sorted(seen[-1] - seen[0]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_small_problem_loads_no_compiler():
    import subprocess
    import sys

    code = """
import sys, mpicomp
from mpicomp.problems import Quadratics
for C in (mpicomp.TopK(20), mpicomp.Sign()):
    mpicomp.run(mpicomp.EF21(C, gamma=0.1), Quadratics(d=200), workers=2, rounds=3)
mpicomp.run(mpicomp.MARINA(mpicomp.RandK(20), gamma=0.1, p=0.1), Quadratics(d=2000), workers=2, rounds=3)
print(sorted({"numba", "llvmlite"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
