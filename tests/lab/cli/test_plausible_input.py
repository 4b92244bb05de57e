"""Input that a user may well give, and what it gets: a result, or one line that says what to do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

import mpicomp
from mpicomp import GD
from mpicomp.base.errors import ConfigError, DataError, RecordError
from mpicomp.data import fetch
from mpicomp.images import ImageModel
from mpicomp.lab.cli.root import cli
from mpicomp.lab.experiment import toml
from mpicomp.lab.experiment.report import plot_files, publish
from mpicomp.lab.experiment.study import load_file, parse
from mpicomp.lab.experiment.suite_file import parse_suite
from mpicomp.lab.jobs.launch import launch
from mpicomp.lab.jobs.launcher import Launcher
from mpicomp.problems import MLP, Logistic, Quadratics, Softmax
from mpicomp.text.config import parse_method, parse_problem
from tests.support.launching import LIMIT
from tests.support.launching import mpicomp as command

RUN = ("run", "--problem", "quadratics(d=9)", "--method", "gd", "--rounds", "3", "--workers", "2")

# --- suites and studies ---

SUITE = """
problem = "quadratics(d=9)"
workers = 2
rounds = 3
{}
[[method]]
method = "gd"
{}
"""
STUDY = """
workers = 2
rounds = 3
{}
[[case]]
label = "a"
problem = "quadratics(d=9)"
[[method]]
method = "gd"
{}
"""


@pytest.mark.parametrize("read", [parse, parse_suite])
@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("max_seconds = inf", "max_seconds = inf; allowed: .*a finite number"),
        ("target_grad_norm_sq = nan", "target_grad_norm_sq = nan; allowed"),
        ("title = 1979-05-27", "title = 1979-05-27; allowed: a text"),
        ("seeds = [1979-05-27T07:32:00]", "seeds = 1979-05-27 07:32:00; allowed"),
        ("every = 07:32:00", "every = 07:32:00; allowed"),
        (f"x = {'[' * 20}{']' * 20}", "x is nested too deeply"),
        (f"x = {'[' * 900}{']' * 900}", "nested too deeply"),
        ("x = 3", "x = 3; allowed"),
        (f"x0 = [1, {10**400}]", "x0 has an integer of 1329 bits; allowed: 64 bits"),
        (f"target_grad_norm_sq = {2**64}", "target_grad_norm_sq has an integer of 65 bits"),
        (f"max_bytes = 0x{'f' * 5000}", "max_bytes has an integer of 20000 bits"),
        (f"seeds = [{'1' * 5000}]", "not a TOML file: Exceeds the limit"),  # as Python says
    ],
)
def test_a_value_that_no_suite_has_is_named(line, text, read):
    with pytest.raises(ConfigError, match=text):
        read(SUITE.format(line, ""))
    if read is parse:
        with pytest.raises(ConfigError, match=text):
            read(STUDY.format(line, ""))


@pytest.mark.parametrize("text", [SUITE, STUDY])
def test_a_suite_may_begin_with_a_byte_order_mark(text, tmp_path):
    (tmp_path / "s.toml").write_bytes(b"\xef\xbb\xbf" + text.format("", "").replace("\n", "\r\n").encode())
    assert load_file(tmp_path / "s.toml") == parse(text.format("", ""))


def test_a_suite_without_an_end_is_not_read_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr(toml, "_LONGEST", len(text := SUITE.format("", "")))
    (tmp_path / "s.toml").write_text(text)
    assert load_file(tmp_path / "s.toml") == parse(text)
    (tmp_path / "s.toml").write_text(text + "\n")
    for path in (tmp_path / "s.toml", "/dev/zero"):
        with pytest.raises(ConfigError, match=rf"^{path}: it is longer than {len(text)} characters"):
            load_file(path)


def test_a_suite_that_can_be_read_once_is_for_one_process(tmp_path):
    (tmp_path / "s.toml").write_text(SUITE.format("", ""))
    read = (
        "cat s.toml | {0} -m mpicomp compare /dev/stdin --out out",
        "{0} -m mpicomp compare /dev/stdin --out out",
    )
    for ranks, status in (("", 0), (" --ranks 2", 1)):
        for one, given in zip(read, (None, tmp_path / "s.toml"), strict=True):
            with open(given or os.devnull) as stdin:
                done = subprocess.run(
                    ["bash", "-c", one.format(sys.executable) + ranks],
                    cwd=tmp_path, stdin=stdin, capture_output=True, text=True, timeout=LIMIT,
                )  # fmt: skip
            assert done.returncode == status, done.stderr
            if ranks:
                said = "mpicomp: /dev/stdin can be read once, and every rank reads the suite: give a file.\n"
                assert done.stderr == said
            else:
                shutil.rmtree(tmp_path / "out")


@pytest.mark.parametrize("line", ["tune = [0, inf]", "tune = [0, nan]", "label = 1979-05-27"])
def test_a_value_that_no_method_has_is_named(line):
    for text in (SUITE, STUDY):
        with pytest.raises(ConfigError, match=f"{line.split()[0]} = .*; allowed"):
            parse(text.format("", line))


@pytest.mark.parametrize(
    "source",
    [
        "method = 1\nworkers = 2\nrounds = 3\nproblem = 'quadratics(d=9)'",
        "case = []",
        "case = 3",
        "case = [1]",
        "method = 1\n[[case]]\nlabel = 'a'",
        "method = [1]\n[[case]]\nlabel = 'a'",
        "[[case]]\nlabel = 'a'\nmethod = 1",
        "[[case]]\nlabel = 'a'\nmethod = [1]",
        "[[case]]\nlabel = 3",
        "[case]\nlabel = 'a'",
    ],
)
def test_what_is_no_table_is_refused(source):
    with pytest.raises(ConfigError, match=r"method|\[\[case\]\]"):
        parse(source)


# --- texts ---

DEEP = [
    ("method", "ef21(" + "shrunk(" * 900 + "randk(k=2)" + ")" * 901),
    ("method", "ef21(" + "shrunk(" * 150 + "randk(k=2)" + ")" * 151),
    ("method", "gd(gamma=" + "-" * 900 + "1)"),
    ("method", "gd(gamma=" + "-" * 50_000 + "1)"),
    ("method", "gd(gamma=" + "(1," * 150 + "1" + ")" * 151),
    ("method", "gd" + "()" * 900),
    ("method", "gd" + ".a" * 900),
    ("problem", "noisy(" * 900 + "quadratics" + ", 1)" * 900),
]


@pytest.mark.parametrize(("kind", "text"), DEEP, ids=[f"{t[:12]}-{len(t)}" for _, t in DEEP])
def test_a_text_that_nests_deeply_is_refused(kind, text):
    with pytest.raises(ConfigError):
        {"method": parse_method, "problem": parse_problem}[kind](text)


# --- numbers ---


@pytest.mark.parametrize("options", [{"lam": 1e-17}, {"noise": 1e12}, {"noise": 1e308}], ids=str)
def test_quadratics_without_a_minimum_in_double_precision(options):
    with pytest.raises(ConfigError, match=r"lam = .*Take a larger lam, or less noise"):
        Quadratics(d=9, **options).constants(2)


def test_quadratics_of_small_lam_are_as_before():
    assert Quadratics(d=9, lam=1e-12).constants(2).mu == 1e-12


def big(folder, size) -> str:
    """A file with two classes and features as large as ``size``."""
    rows = [f"{(-1) ** j} {j + 1}:{size} {j + 2}:1" for j in range(12)]
    (folder / "big").write_text("\n".join(rows))
    return str(folder / "big")


@pytest.mark.parametrize("size", [1e80, 1e100, 1e150, 1e300])
@pytest.mark.parametrize("problem", [Logistic, Softmax])
@pytest.mark.filterwarnings("error")
def test_features_whose_fourth_powers_overflow(problem, size, tmp_path):
    with pytest.raises(DataError, match=r".*/big has features as large as 1e\+.*Scale the features"):
        mpicomp.run(GD(), problem(big(tmp_path, size), lam=0.1), workers=2, rounds=3)


@pytest.mark.parametrize("size", [1e39, 1e300])
@pytest.mark.filterwarnings("error")
def test_features_beyond_the_precision_of_a_network(size, tmp_path):
    with pytest.raises(DataError, match=r".*/big has features as large as 1e\+.*Scale the features"):
        mpicomp.run(GD(0.1), MLP(big(tmp_path, size)), workers=2, rounds=3)


@pytest.mark.parametrize("gamma", ["theory", 0.1])
def test_an_index_that_makes_vectors_larger_than_the_memory(gamma, tmp_path, monkeypatch):
    monkeypatch.setattr("mpicomp.runtime.loop._memory", lambda: 2.0**34)
    (tmp_path / "data").write_text("1 1:1 2147483647:1\n-1 1:2\n")
    with pytest.raises(ConfigError, match=r"dimension 2147483647: a vector takes 17\.2 GB.*largest index"):
        mpicomp.run(GD(gamma), Logistic(str(tmp_path / "data"), lam=0.1), workers=2, rounds=3)


@pytest.mark.parametrize("problem", ["quadratics(d=99999999999999999999999)", "saddle(d=999999999999)"])
def test_a_dimension_beyond_the_memory_is_told_before_a_worker_makes_a_vector(problem):
    with pytest.raises(ConfigError, match=r"has dimension 9+: a vector takes"):
        mpicomp.run(GD(0.1), problem, workers=2, rounds=3)


# --- files and folders ---


def test_a_run_without_rows_is_not_drawn(tmp_path):
    mpicomp.run(GD(), Quadratics(d=9), workers=2, rounds=3, out=tmp_path / "run")
    (tmp_path / "run" / "rows.csv").unlink()
    with pytest.raises(RecordError, match=r"cannot read .*rows\.csv: No such file"):
        plot_files([tmp_path / "run"])


@pytest.mark.parametrize("first", ["nosuch.py", "python", "mpicomp"])
def test_a_script_that_is_not_there_is_refused_once(first, tmp_path, monkeypatch):
    """Not by each rank."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["launch", "--ranks", "2", first, "run"])
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception).startswith(f"no such file: {first}. launch runs a script, as in ")


@pytest.mark.parametrize("first", ["--stall-timeout", "-v"])
def test_an_option_that_launch_lacks_is_no_script(first):
    """Each rank looked for a file of this name."""
    done = CliRunner().invoke(cli, ["launch", "--ranks", "2", first, "train.py"])
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception).startswith(f"launch has no option {first}; allowed before the script: --ranks")


@pytest.mark.parametrize("words", [["nosuch"], ["nosuch.train"], ["./train.py"], []])
def test_a_module_that_is_not_there_is_refused_once(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    started = []
    monkeypatch.setattr("mpicomp.lab.cli.launch.launch", lambda ranks, *_, **__: started.append(ranks))
    done = CliRunner().invoke(cli, ["launch", "--ranks", "2", "-m", *words])
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception).startswith(f"no module {''.join(words)!r} on Python's path or in the current")
    (tmp_path / "nosuch").mkdir()
    (tmp_path / "nosuch" / "train.py").touch()
    for there in ("nosuch.train", "mpicomp", "timeit", "json.tool"):
        CliRunner().invoke(cli, ["launch", "--ranks", "2", "-m", there])
    assert started == [2] * 4


TAKE_A_FOLDER = {
    "load": mpicomp.load,
    "run": lambda folder: mpicomp.run(GD(), Quadratics(d=9), workers=2, rounds=3, out=folder),
    "compare": lambda folder: mpicomp.compare([GD()], Quadratics(d=9), workers=2, rounds=3, out=folder),
    "save": lambda folder: mpicomp.Aggregator(GD(), np.zeros(3)).save(folder),
    "Aggregator.load": lambda folder: mpicomp.Aggregator(GD(), np.zeros(3)).load(folder),
    "JSONLines": mpicomp.callbacks.JSONLines,
    "publish": publish,
    "plot_files": lambda folder: plot_files([folder]),
    "fetch": lambda folder: fetch("a9a", folder),
    "ImageModel.load": ImageModel.load,
}


@pytest.mark.parametrize("take", TAKE_A_FOLDER)
@pytest.mark.parametrize("wrong", [None, b"folder", 3, ["folder"], "", "a\0b"], ids=repr)
def test_what_is_no_path_is_refused_in_one_line(take, wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if wrong is None and take in ("run", "compare", "fetch"):
        return  # for none
    with pytest.raises(ConfigError, match=r"names no (folder|file); allowed: a path, as a text") as error:
        TAKE_A_FOLDER[take](wrong)
    assert repr(wrong) in str(error.value) and not list(tmp_path.iterdir())


@pytest.mark.parametrize("take", TAKE_A_FOLDER)
def test_so_is_a_path_that_is_too_deep(take, tmp_path, monkeypatch):
    """It ended in a RecursionError of pathlib."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"inside 1999 folders; allowed: 199\. Give a shorter path\."):
        TAKE_A_FOLDER[take]("/".join("a" * 2000))
    assert not list(tmp_path.iterdir())


def test_so_are_more_workers_than_there_can_be(tmp_path):
    """The objectives of 10^9 workers were made one after the other, until memory or patience ended."""
    suite = SUITE.format("", "").replace("workers = 2", "workers = 1_000_000_000")
    assert "1_000" in suite
    for take in (
        lambda n: mpicomp.run(GD(gamma=0.1), Quadratics(d=9), workers=n, rounds=3),
        lambda n: mpicomp.Aggregator(GD(gamma=0.1), like=np.zeros(3), workers=n),
        lambda n: parse_suite(suite),
    ):
        with pytest.raises(ConfigError, match="workers=1000000000; allowed: an integer from 1 to 10000000"):
            take(10**9)


@pytest.mark.parametrize("wrong", [None, 3, b"demo"])
def test_what_holds_no_methods_is_refused_in_one_line(wrong):
    said = re.escape(f"compare was given {wrong!r}; allowed: methods in a list, or")
    with pytest.raises(ConfigError, match=f"^{said}"):
        mpicomp.compare(wrong, Quadratics(d=9), workers=2, rounds=3)


def test_an_empty_name_is_not_this_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ConfigError, match=r"out='' names no folder; allowed: a path, .*, or None; '\.' is the current folder"
    ):
        mpicomp.run(GD(), Quadratics(d=9), workers=2, rounds=3, out="")
    (tmp_path / "s.toml").write_text(SUITE.format("", ""))
    for arguments in (RUN, ("submit", *RUN[1:]), ("compare", "s.toml"), ("plot", ".")):
        done = command(*arguments, "--out", "")
        assert done.returncode == 2 and "an empty path. Name a folder; '.' is" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["s.toml"]


# --- Python and its streams ---


def shell(redirection: str, *arguments: str, python: str = "", **environment: str):
    """The command line with a redirection of the shell's."""
    line = f'exec "$0" {python} -m mpicomp "$@" {redirection}'
    return subprocess.run(
        ["sh", "-c", line, sys.executable, *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def test_without_docstrings_the_list_is_shorter():
    done = shell("", "list", python="-OO")
    assert done.returncode == 0 and "marina(Q" in done.stdout and "Traceback" not in done.stderr


@pytest.mark.parametrize("columns", ["abc", "-5"])
def test_a_width_of_the_terminal_that_is_no_number_does_not_count(columns):
    done = shell("", *RUN, COLUMNS=columns)
    assert done.returncode == 0 and "quadratics" in done.stdout


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_a_launcher_s_variable_that_holds_no_number_does_not_count(name):
    done = shell("", *RUN, **{name: "", "SLURM_PROCID": "x"})
    assert done.returncode == 0 and "2 on 1 rank" in done.stdout


def test_a_current_folder_that_was_removed_is_named(tmp_path):
    """It was taken for a standard output that cannot be written."""
    line = f'mkdir gone; cd gone; rmdir ../gone; "{sys.executable}" -m mpicomp compare demo --out x'
    environment = os.environ | {"PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        ["sh", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 1
    assert done.stderr == "mpicomp: the current folder was removed. Change to another one.\n"


def test_more_memory_than_there_is_is_one_line():
    done = shell("", "bench", "kernels", "-d", "1e15")
    assert done.returncode == 1 and done.stderr.startswith("mpicomp: out of memory. Unable to allocate")
    assert done.stderr.count("\n") == 1
    done = shell("", "bench", "kernels", "-d", "1e30")
    assert done.stderr == "mpicomp: -d '1e30'; allowed: whole numbers from 100 to 1e15, such as 1e5.\n"


def test_more_memory_than_one_rank_has_ends_the_job(tmp_path):
    """The rank that had too little said nothing and left with status 0, and the others waited for it."""
    fails = "from mpicomp.lab import cli; cli.cli.main = lambda **_: bytes(10**16); cli.main()"
    told = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "MPICOMP_STATUS": str(tmp_path / "s")}
    done = subprocess.run(
        [sys.executable, "-c", fails], env=os.environ | told, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 1 and done.stderr.endswith("MemoryError\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_run_with_closed_streams_is_recorded(closed, tmp_path):
    """Nor does anything else go where the streams were."""
    done = shell(closed, *RUN, "--out", str(tmp_path / "run"))
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert (tmp_path / "run" / "rows.csv").read_text().startswith("round,f,")
    assert len((tmp_path / "run" / "rows.csv").read_text().splitlines()) == 3
    assert shell(closed, "run", "--problem", "none", "--method", "gd").returncode == 1


@pytest.mark.parametrize("arguments", [RUN, ("list",)], ids=lambda a: a[0])
def test_output_that_cannot_be_written_is_one_line(arguments):
    done = shell(">/dev/full", *arguments)
    assert done.returncode == 1
    assert done.stderr == "mpicomp: cannot write to standard output: No space left on device.\n"


@pytest.mark.parametrize("ascii", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_a_terminal_without_unicode_gets_what_it_can_show(ascii, tmp_path):
    if "LC_ALL" in ascii:
        ascii = ascii | {"PYTHONCOERCECLOCALE": "0"}
    done = shell("", *RUN, "--out", str(tmp_path / "run"), **ascii)
    assert done.returncode == 0, done.stderr
    assert "|?f|" in done.stdout and (tmp_path / "run" / "summary.json").exists()
    assert shell("", "list", **ascii).returncode == 0
    (tmp_path / "s.toml").write_text(SUITE.format('title = "é"', ""), encoding="utf-8")
    done = shell("", "compare", str(tmp_path / "s.toml"), "--out", str(tmp_path / "c"), **ascii)
    assert done.returncode == 0, done.stderr


# --- ranks ---


@pytest.mark.parametrize("vendor", ["openmpi", "mpich", "slurm", "unknown"])
def test_a_rank_has_one_thread_or_as_many_as_omp_num_threads_says(vendor, monkeypatch):
    """MKL's own variable was 1 in any case, and torch with MKL takes its number for all that it does."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    launcher = Launcher("mpirun", vendor, 5, "")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [launcher.environment().get(name) for name in names] == ["1", "1", "1"]
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert not launcher.environment().keys() & {*names}


def test_more_ranks_than_the_memory_holds_are_not_started(monkeypatch):
    """mpirun started 2000 of 100,000 within a minute, and went on when it was told to end."""
    monkeypatch.setattr("mpicomp.lab.jobs.launch._ALLOCATIONS", ())
    monkeypatch.setattr("mpicomp.lab.jobs.launch.find_launcher", lambda: Launcher("mpirun", "openmpi", 5, ""))
    monkeypatch.setattr("mpicomp.lab.jobs.launch._Job", lambda *_: pytest.fail("started"))
    with pytest.raises(ConfigError, match=r"ranks=100000000; allowed: at most \d+ on this host of .* GB"):
        launch(100_000_000, ["program.py"])
