"""The architecture, read from the imports: they only point down, and each library has its place."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "mpicomp"

# From the bottom up.  A module may import from its own line and from lines below it.
LAYERS = [
    ["version", "base"],
    ["kernels"],
    ["codecs"],
    ["keys", "messages"],
    ["compressors", "data", "problems"],
    ["methods"],
    ["transports"],
    ["runtime"],
    ["embedded", "follow", "imaging"],
    ["torch"],
    ["own_classes", "quoting"],
    ["literals"],
    ["config"],
    ["experiment", "jobs"],
    ["bench"],
    ["cli", "__init__", "__main__"],
]
LEVEL = {module: level for level, modules in enumerate(LAYERS) for module in modules}

# Inside these packages too, from the bottom up; above it all the classes, and then ``__init__``.
INSIDE = {"compressors": ["base", "support"], "methods": ["parameters", "base", "support"]}

TORCH = (
    "__init__",
    "alike",
    "buffers",
    "clipping",
    "content",
    "hook",
    "optimiser",
    "overlap",
    "saving",
    "tensors",
)

# Libraries that only these files may import.
HOMES = {
    "mpi4py": {
        "transports/arrivals.py",
        "transports/inbox.py",
        "transports/mpi.py",
        "transports/mpi_exchange.py",
        "transports/neighbours.py",
        "transports/ending.py",
        "transports/ulfm.py",
        "transports/waiting.py",
        "bench/round.py",
        "bench/aggregate.py",
        "bench/together.py",
        "bench/train/rank.py",
        "bench/serving/rank.py",
    },
    "matplotlib": {
        "experiment/canvas.py",
        "experiment/figure.py",
        "bench/linkfigure.py",
        "bench/train/figure.py",
        "bench/serving/traffic.py",
        # These four for its types.
        *(f"experiment/{name}.py" for name in ("endlabels", "layout", "results", "scripting")),
    },
    "sklearn": {"data/libsvm.py", "data/bundled.py"},
    "PIL": {"data/png.py"},
    "cupy": {"kernels/cuda/gpu.py"},
    "torch": {
        f"bench/{name}.py" for name in ("peers", "cuda", "train/models", "train/contestants", "train/rank")
    }
    | {f"torch/{name}.py" for name in TORCH},
    "numba": {"kernels/loading.py", "kernels/compiled/jit.py"},
    "llvmlite": {"kernels/loading.py", "kernels/compiled/jit.py"},
    "click": {
        f"cli/{name}.py"
        for name in (
            "__init__",
            "root",
            "options",
            "sections",
            "suites",
            "work",
            "look",
            "bench",
            "bench_hosts",
            "images",
            "predict",
        )
    },
    "constriction": {"codecs/entropy.py"},
    "threadpoolctl": {"base/blas.py"},
    "pandas": {"runtime/frames.py", "runtime/run.py", "experiment/results.py"},  # the last two for its types
}

FILES = sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> list[str]:
    """The dotted names that ``path`` imports, anywhere in it."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            names += [f"{module}.{alias.name}" for alias in node.names]
    return names


def top(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_every_module_has_a_layer():
    assert {top(path) for path in FILES} == set(LEVEL)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path):
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "mpicomp" and len(parts) > 1 and parts[1] in LEVEL:
            assert LEVEL[parts[1]] <= LEVEL[top(path)], f"{path.name} imports {name}"


def level_inside(package: str, module: str) -> int:
    levels = INSIDE[package]
    return levels.index(module) if module in levels else len(levels) + (module == "__init__")


@pytest.mark.parametrize("package", INSIDE)
def test_imports_inside_a_package_point_down(package):
    """``base`` imports neither ``support`` nor a class, and ``support`` imports no class."""
    for path in (PACKAGE / package).rglob("*.py"):
        own = path.relative_to(PACKAGE / package).parts[0].removesuffix(".py")
        for name in imports(path):
            parts = name.split(".")
            if parts[:2] == ["mpicomp", package]:
                assert level_inside(package, parts[2]) <= level_inside(package, own), f"{path} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_libraries_stay_in_their_files(path):
    where = str(path.relative_to(PACKAGE))
    for name in imports(path):
        home = HOMES.get(name.split(".")[0])
        assert home is None or where in home, f"{where} imports {name}"


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
