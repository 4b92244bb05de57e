"""How kernels are loaded, compiled once for all, and on how many threads they run."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from time import sleep

import numpy as np
import pytest

from mpicomp import kernels
from mpicomp.compressors import (
    EDEN,
    BlockDithering,
    BlockFloat,
    Dithering,
    HardThreshold,
    Identity,
    Natural,
    NaturalDithering,
    RotatedSign,
    Sign,
    Ternary,
    TopK,
)
from mpicomp.kernels import LOADING, LONG_BITMAP, MANY, threads
from mpicomp.kernels.loading import load_compiled
from tests.support.backends import FLOATS
from tests.support.conformance import CASES


def run_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | environment,
    )
    return done.stdout.strip()


# --- threads ---


@pytest.mark.parametrize("count", [1, 163_839, 163_840, 163_841, 10**6, 3 * 10**6 + 1])
@pytest.mark.parametrize("number", [1, 2, 3, 16])
def test_slices_are_everything_in_order_and_start_at_whole_chunks(number, count, monkeypatch):
    monkeypatch.setattr(threads, "threads", lambda: number)
    slices = threads.sliced(lambda a, b: (a, b), count)
    assert len(slices) <= number
    assert [a for a, _ in slices] == [0, *(b for _, b in slices[:-1])]
    assert slices[-1][1] == count
    assert all(a % 1024 == a % 1280 == 0 and a < b for a, b in slices)


THREADED = [
    *(
        Sign(),
        Natural(),
        Natural("f8"),
        Ternary(),
        NaturalDithering(7),
        BlockDithering(),
        BlockFloat(4, 128),
        NaturalDithering(60),
        HardThreshold(1.0),
    ),
    *(RotatedSign(2), EDEN(3, block=128)),
    *(Identity("f2"), Identity("bf16")),
    *(Dithering(7, "inf"), Dithering(7), Dithering(300), TopK(0.01), TopK(0.4), TopK(25_000)),
]


@pytest.mark.parametrize("C", THREADED, ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("d", [5120 * 5 + 77, 5120 * 6])
def test_any_number_of_threads_gives_the_same_bytes(C, dtype, d, monkeypatch):
    key = CASES[0].key()
    x = np.random.default_rng(7).standard_normal(d).astype(dtype)
    x[:: d // 50] = 3.0  # ties
    results = []
    for number in (1, 3):
        monkeypatch.setattr(threads, "threads", lambda number=number: number)
        monkeypatch.setattr(threads, "UNIT", 5120)
        out = x.copy()
        message = C.compress(x, key)
        C.decompress_add(message, out, key, 0.3)
        kernels.add_scaled(out, x, 0.1)
        results.append((message.tobytes(), out.tobytes()))
    assert results[0] == results[1]
    assert threads.sliced(lambda a, b: 1, d) == [1, 1, 1]


def test_a_fork_starts_threads_of_its_own():
    """It inherits the pool without its threads, and waited for them for ever."""
    code = """
import os, signal, threading
from mpicomp.kernels.threads import UNIT, sliced
both = threading.Barrier(2)
sliced(lambda start, stop: both.wait(), 2 * UNIT)
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(sliced(lambda start, stop: stop - start, 2 * UNIT) != [UNIT, UNIT])
print(os.waitpid(child, 0)[1])
"""
    assert run_python(code, MPICOMP_NUM_THREADS="2") == "0"


def test_a_number_of_threads_that_is_none_is_refused():
    code = """
from mpicomp.base.errors import ConfigError
from mpicomp.kernels.threads import threads
try:
    print(threads())
except ConfigError as error:
    print(error)
"""
    assert run_python(code, MPICOMP_NUM_THREADS="3") == "3"
    assert "MPICOMP_NUM_THREADS=-1; allowed: a positive" in run_python(code, MPICOMP_NUM_THREADS="-1")
    code = code.replace(
        "threads())", "mpicomp.run(mpicomp.GD(0.1), mpicomp.problems.Quadratics(d=5), workers=2))"
    )
    refused = "MPICOMP_NUM_THREADS=0; allowed: a positive"  # though no compiled kernel is to run
    assert refused in run_python("import mpicomp\n" + code, MPICOMP_NUM_THREADS="0")


@pytest.mark.parametrize("given", ["0", "-1", "x", "1.5", ""])
def test_threads_of_numba_that_it_cannot_take_are_refused_in_one_line(given):
    """numba raised a ``ValueError`` as it was imported, or warned with a traceback."""
    code = "import mpicomp; mpicomp.run('gd', 'quadratics(d=5000)', workers=2, rounds=1)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"NUMBA_NUM_THREADS": given},
    )
    said = f"NUMBA_NUM_THREADS={given}; allowed: a positive integer. Or unset it."
    assert done.stderr.splitlines()[-1] == f"mpicomp.base.errors.ConfigError: {said}"


def test_blanks_around_the_threads_of_numba_are_none_of_the_number():
    """As ``wc`` prints it; numba takes it."""
    code = "from mpicomp.kernels import compiling; print(compiling._plain_numba().config.NUMBA_NUM_THREADS)"
    environment = os.environ | {"NUMBA_NUM_THREADS": " 2"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr) == ("2\n", "")


# --- loading ---


def test_short_vectors_go_by_the_compiled_kernels_once_these_are_there():
    """They are loaded for a long vector, or for as many short ones as pay for it; not for fewer."""
    code = """
import numpy as np
from mpicomp import kernels
short, long = np.zeros(10), np.zeros(kernels.LONG)
def state():
    backends = kernels.backend_for(short), kernels.backend_for_length(10)
    return kernels.loading.loaded(), *(on.pieces is kernels.definition for on in backends)
{}
"""
    wakes = (
        f"kernels.preload({LOADING})",
        f"kernels.preload(1, {LONG_BITMAP})",
        "kernels.backend_for(long)",
    )
    for waking in wakes:
        lines = f"kernels.preload({LOADING - 1}, {LONG_BITMAP - 1}); print(state()); {waking}; print(state())"
        assert run_python(code.format(lines)) == "(False, True, True)\n(True, False, False)"


def test_nothing_is_compiled_for_fewer_short_vectors_than_pay_for_it(tmp_path):
    code = f"""
from pathlib import Path
from mpicomp import kernels
kernels.loading._folders = lambda: [Path({str(tmp_path / "kernels")!r})]
kernels.preload({MANY - 1})
print(kernels.loading.loaded())
"""
    assert run_python(code) == "False" and not (tmp_path / "kernels").exists()


def test_a_run_loads_nothing_in_its_rounds():
    """A tenth of so many coordinates is a set that the compiled kernels code as a bitmap."""
    code = f"""
import mpicomp
from mpicomp import kernels
seen = set()

class Flat(mpicomp.Objective):
    def value(self, x):
        return 0.0
    def grad(self, x):
        seen.add(kernels.loading.loaded())
        return x + 1

class Plain(mpicomp.Problem):
    def dimension(self):
        return {LONG_BITMAP}
    def objective(self, i, n):
        return Flat()

mpicomp.run(mpicomp.EF21(mpicomp.TopK(k=0.1), gamma=0.1), Plain(), workers=4, rounds=2)
print(seen)
"""
    assert run_python(code) == "{True}"


@pytest.mark.parametrize("workers", [1, 4])
def test_a_run_loads_the_kernels_before_its_first_round_if_it_is_long_enough(workers):
    """Both end after their first round; how long they may last counts, in rounds times workers."""
    code = f"""
import mpicomp
from mpicomp import kernels
problem, gd = mpicomp.problems.Quadratics(d=5), mpicomp.GD(gamma=0.1)
for rounds in (kernels.LOADING // {workers} - 1, kernels.LOADING // {workers}):
    seen = []
    mpicomp.run(gd, problem, workers={workers}, rounds=rounds, every=1, max_bytes=1,
                progress=lambda k, row: seen.append(kernels.loading.loaded()))
    print(seen)
"""
    assert run_python(code) == "[False]\n[True]"


@pytest.mark.parametrize("enough", [False, True])
def test_a_comparison_loads_the_kernels_for_all_of_its_runs_or_for_none(enough, tmp_path):
    """Or their seconds could not be compared.  Each of the six runs is too short by itself."""
    rounds = LOADING // 4 // 6 + enough
    (tmp_path / "suite.toml").write_text(f"""
problem = "quadratics(d=5)"
workers = 4
rounds = {rounds}
every = 1
max_bytes = 1
seeds = [0, 1, 2, 3, 4, 5]
[[method]]
label = "GD"
method = "gd(gamma=0.1)"
""")
    code = f"""
import mpicomp
from mpicomp import kernels
from mpicomp.lab.experiment.compare import compare
from mpicomp.lab.experiment.suite_file import load_suite
seen = []
suite = load_suite({str(tmp_path / "suite.toml")!r})
loaded = kernels.loading.loaded
compare(suite, {str(tmp_path / "out")!r}, progress=lambda stage, k, row: seen.append(loaded()))
print(seen)
"""
    assert run_python(code) == str([enough] * 6)


def test_threads_load_the_kernels_one_after_the_other(monkeypatch):
    """Each puts numba's configuration back as it found it: two at once left that of the kernels."""
    loading, most = [], []

    def load():
        loading.append(1)
        most.append(len(loading))
        sleep(0.02)
        loading.pop()

    monkeypatch.setattr("mpicomp.kernels.loading._load", load)
    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(load_compiled)
    assert most == [1] * 4


def test_nothing_is_compiled_a_second_time():
    """This process loads the kernels, so another one finds all of them on disk."""
    load_compiled()
    code = """
from mpicomp.kernels.loading import load_compiled
on = load_compiled()
from mpicomp.kernels import compiled
from numba.core.dispatcher import Dispatcher
import sys
kernels = {
    v for name, m in sys.modules.items() if name.startswith("mpicomp.kernels.compiled")
    for v in vars(m).values() if isinstance(v, Dispatcher)
}
print(len(kernels) > 20, sum(sum(k.stats.cache_misses.values()) for k in kernels))
"""
    assert run_python(code) == "True 0"
    program = "import numba, os; os.environ['NUMBA_OPT'] = '3'" + code  # numba looks there as it compiles
    assert run_python(program) == "True 0"


COLORAMA = """
import atexit
class Codes:
    def __getattr__(self, name):
        return ""
Fore = Style = Codes()
__version__ = "0.4.6"
def init():
    atexit.register(print, "an escape code")
reinit = deinit = lambda: None
"""


@pytest.mark.parametrize(("scheme", "coloured"), [({}, False), ({"NUMBA_COLOR_SCHEME": "dark_bg"}, True)])
def test_numba_writes_no_escape_codes_unless_colours_were_chosen(scheme, coloured, tmp_path):
    """With colorama installed each rank ended with one on standard output, in what mpirun wrote to a file."""
    load_compiled()
    (tmp_path / "colorama.py").write_text(COLORAMA)
    code = """
import os
before = dict(os.environ)
from mpicomp.kernels.loading import load_compiled
load_compiled()
print(dict(os.environ) == before)
"""
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    said = run_python(code, PYTHONPATH=path, **scheme)
    assert said == ("True\nan escape code" if coloured else "True")


def test_where_no_folder_can_be_written_numpy_serves(tmp_path):
    """Neither beside the package nor in a cache: a file is where each folder would be."""
    for name in ("package", "cache", "own"):
        (tmp_path / name).write_text("")
    code = f"""
from pathlib import Path
from mpicomp.kernels import definition, loading
loading._BESIDE = Path({str(tmp_path / "package")!r})
print(loading.load_compiled() is definition)
"""
    caches = {"MPICOMP_CACHE": str(tmp_path / "cache"), "XDG_CACHE_HOME": str(tmp_path / "own")}
    assert run_python(code, **caches) == "True"


def test_what_an_earlier_source_made_is_removed_and_nothing_else(tmp_path):
    from mpicomp.kernels import loading

    machine = f"{loading._machine()}-{os.geteuid()}"
    new, old, others, unfinished = (
        tmp_path / f"kernels-{name}" for name in (f"b-{machine}", f"a-{machine}", "a-0", f"c-{machine}")
    )
    for folder in (new, old, others, unfinished):
        folder.mkdir()
        if folder != unfinished:  # somebody is compiling it
            (folder / "complete").touch()
    with pytest.MonkeyPatch.context() as patch:
        loading._remove_superseded(new)  # in the user's cache
        assert old.exists()
        patch.setattr(loading, "_BESIDE", tmp_path)
        loading._remove_superseded(new)
    assert set(tmp_path.iterdir()) == {new, others, unfinished}
