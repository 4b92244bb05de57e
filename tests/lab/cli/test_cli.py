"""The commands, as a user types them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec

import pytest

from mpicomp import compressors, methods, problems
from mpicomp.base.errors import ConfigError, MpicompError
from mpicomp.data import BUNDLED, KNOWN
from mpicomp.lab.cli.root import cli
from mpicomp.lab.jobs.submit import job_script
from tests.support.launching import LIMIT, mpicomp

SUBMIT = ("submit", "--problem", "quadratics(d=20)", "--method", "diana(randk(k=2))", "--rounds", "20")
RUN = ("run", "--problem", "quadratics(d=20, lam=0.1)", "--workers", "4", "--rounds", "20")


def test_run_prints_the_outcome():
    done = mpicomp(*RUN, "--method", "diana(randk(k=2))")
    assert done.returncode == 0, done.stderr
    assert "diana(Q=randk(k=2)" in done.stdout
    assert all(phase in done.stdout for phase in ("gradient", "compress", "wait", "server", "decode"))


def test_run_prints_one_line_of_json():
    done = mpicomp(*RUN, "--method", "marina(permk)", "--json")
    outcome = json.loads(done.stdout.splitlines()[-1])
    wanted = (
        "method problem n d ranks rounds f grad_norm_sq up_bytes down_bytes paper_bits_up paper_bits_down"
    )
    assert {*wanted.split(), "seconds", "iterates_sha256"} <= set(outcome)
    assert (outcome["n"], outcome["d"], outcome["ranks"], outcome["rounds"]) == (4, 20, 1, 20)


def test_run_warns_where_f_ended_above_its_start():
    """It ended with status 0, and nothing said that the run had moved away."""
    words = ("--problem", "quadratics(d=10)", "--workers", "2", "--rounds", "4", "--json")
    done = mpicomp("run", *words, "--method", "gd(gamma=5)")
    assert done.returncode == 0 and json.loads(done.stdout)["f"] > 3.135
    assert done.stderr == "mpicomp: f ended above f(x⁰) = 3.135: the step size may be too large.\n"
    assert mpicomp("run", *words, "--method", "gd(gamma=0.1)").stderr == ""


def test_list_names_everything():
    said = mpicomp("list").stdout
    tables = (methods.METHODS, compressors.COMPRESSORS, problems.PROBLEMS, BUNDLED, KNOWN)
    for name in (name for table in tables for name in table):
        assert name in said


def test_doctor_finds_this_environment_sound():
    done = mpicomp("doctor")
    assert done.returncode == 0, done.stdout
    found = "two ranks started and found each other"
    for word in ("launcher", found, "CUDA-aware", "GPU", "numba", "Slurm"):
        assert word in done.stdout


def test_doctor_says_why_a_gpu_cannot_be_used(tmp_path):
    """A driver alone is not enough."""
    driver = tmp_path / "nvidia-smi"
    driver.write_text("#!/bin/sh\necho A card\n")
    driver.chmod(0o755)
    said = mpicomp("doctor", PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}").stdout
    assert re.search(
        r"GPU: A card(; CuPy compiles|, but no CuPy here .*mpicomp\[cuda12\]|, but no CUDA device)", said
    )


def test_plot_redraws_runs(tmp_path):
    for name in ("a", "b"):
        assert mpicomp(*RUN, "--method", "gd", "--out", str(tmp_path / name)).returncode == 0
    done = mpicomp("plot", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "both.png"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "both.png").read_bytes()[:4] == b"\x89PNG"


def test_fetch_from_a_folder_refuses_what_is_not_the_set(tmp_path):
    (tmp_path / "mushrooms").write_text("1 1:1\n2 2:1\n")
    done = mpicomp(
        "data", "fetch", "mushrooms", "--from", str(tmp_path), MPICOMP_CACHE=str(tmp_path / "cache")
    )
    assert done.returncode == 1
    assert "sha" in done.stderr.lower() and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--method", "marnia(randk(k=2))"), "Did you mean 'marina'?"),
        (("--method", "marina(randk(k=2, value=f8))"), "Did you mean 'values'?"),
        (("--method", "marina(topk(k=2))"), "MARINA needs Q to be unbiased"),
        (("--method", "ef21(randk(k=2))"), "EF21 needs C to be contractive"),
        (("--method", "marina(randk(k=0))"), "k=0; allowed"),
        (("--method", "marina(randk(k=21))"), "k=21 exceeds the dimension d=20"),
        (("--method", "gd(gamma=1e6)"), "gamma=1000000.0; try another"),
        (("--method", "gd", "--server", "dedicated"), "a dedicated server needs MPI ranks"),
        (("--method", "gd", "--problem", "logistic(data=digits, lam=1)", "--workers", "9999"), "9999"),
        (("--method", "gd", "--problem", "logistic(data=mushroom, lam=1)"), "Did you mean 'mushrooms'?"),
        (("--method", "gd", "--resume", "--out", "/nonexistent/run"), "holds no run to resume"),
    ],
)
def test_bad_input_is_refused(arguments, text):
    with pytest.raises(MpicompError, match=re.escape(text)):
        cli.main([*RUN, *arguments], standalone_mode=False)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--method", "marina(topk(k=2))"), "Q to be unbiased"),
        (("--method", "gd", "--workers", "0"), "--workers"),
    ],
)
def test_a_refusal_is_one_clear_line(arguments, text):
    """Of the package, and of the command line."""
    done = mpicomp(*RUN, *arguments)
    assert done.returncode not in (0, -11)
    assert text in done.stderr and "Traceback" not in done.stderr


def test_submit_shows_the_script_it_would_submit():
    """The two lines that a user would edit are filled in; what is left out stays as `run` has it."""
    done = mpicomp(*SUBMIT, "--ranks", "16", "--time", "01:00:00", "--nodes", "2", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "#SBATCH --ntasks=16 --nodes=2 --time=01:00:00\n" in done.stdout
    assert "run=(--problem 'quadratics(d=20)' --method 'diana(randk(k=2))' --rounds 20)\n" in done.stdout
    assert done.stdout.endswith('exec mpicomp run --ranks "$SLURM_NTASKS" "${run[@]}"\n')
    assert "scontrol" not in done.stdout
    again = mpicomp(*SUBMIT, "--requeue", "--out", "it's", "--json", "--server", "dedicated", "--dry-run")
    assert "scontrol requeue" in again.stdout
    words = shlex.split(re.search(r"^run=\((.*)\)$", again.stdout, re.MULTILINE)[1])
    own = "${SLURM_ARRAY_TASK_ID:+-$SLURM_ARRAY_TASK_ID}"
    assert words[-5:] == ["--server", "dedicated", "--out", f"it's{own}", "--json"]


@pytest.mark.parametrize("option", ["--account", "--partition", "--time", "--out", "--problem"])
@pytest.mark.parametrize("control", ["\n", "\r", "\x1b", "\u2028", "\x7f"])
def test_no_value_becomes_a_line_of_the_script(option, control):
    """What follows a line break in a comment that Slurm reads would be a command of the job."""
    value = "quadratics(d=20)" if option == "--problem" else "x"
    given = control.join([value, "touch owned"])
    of_run = option in ("--out", "--problem")
    request, arguments = ({}, [option, given]) if of_run else ({option[2:]: given}, [])
    with pytest.raises(ConfigError, match=r"touch owned.* holds a line break or another control") as caught:
        job_script(False, request, arguments)
    assert of_run or option in str(caught.value)


def test_a_line_break_is_refused_before_anything_is_submitted():
    done = mpicomp(*SUBMIT, "--account", "x\ntouch owned", "--dry-run")
    assert done.returncode == 1 and done.stdout == "" and "--account" in done.stderr


def test_a_submitted_run_gets_its_gpus_and_resumes_once():
    """A rank's GPU is asked for; a script that is queued again has its own way of resuming."""
    done = mpicomp(*SUBMIT, "--device", "cuda", "--requeue", "--resume", "--out", "o", "--dry-run")
    assert "--gpus-per-task=1" in done.stdout and "--device cuda" in done.stdout
    assert re.findall(r"--resume\S*", done.stdout) == ["--resume-or-start"]
    assert "gpus" not in mpicomp(*SUBMIT, "--dry-run").stdout


@pytest.mark.parametrize("given", [(), ("--seed", "7")], ids=["no seed", "seed"])
def test_each_task_of_an_array_has_a_seed_and_a_folder_of_its_own(given, tmp_path):
    """The script that is shown, run as Slurm runs it: by itself, then as two tasks of an array."""
    done = mpicomp(*SUBMIT, *given, "--workers", "2", "--requeue", "--out", str(tmp_path / "o"), "--dry-run")
    command = tmp_path / "mpicomp"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m mpicomp "$@"\n')
    command.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    for task in ({}, {"SLURM_ARRAY_TASK_ID": "0"}, {"SLURM_ARRAY_TASK_ID": "1"}):
        environment = os.environ | {"PATH": path, "SLURM_NTASKS": "1"} | task
        ran = subprocess.run(
            ["bash"], input=done.stdout, env=environment, capture_output=True, text=True, timeout=LIMIT
        )
        assert ran.returncode == 0, ran.stderr
    records = {path.parent.name: json.loads(path.read_text()) for path in tmp_path.glob("*/run.json")}
    seeds = {folder: record["config"]["seed"] for folder, record in records.items()}
    assert seeds == {"o": "7" if given else "0", "o-0": "0", "o-1": "1"}


def test_a_status_that_the_launcher_cannot_be_told_is_left_with(tmp_path):
    """On a host without the launcher's folder the command ends with its status, for mpirun to hear of it."""
    wrong = ("run", "--problem", "nosuch", "--method", "gd")
    told = tmp_path / "status"
    assert mpicomp(*wrong, MPICOMP_STATUS=str(told)).returncode == 0 and told.read_text() == "1"
    assert mpicomp(*wrong, MPICOMP_STATUS=str(tmp_path / "nowhere" / "status")).returncode == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--method", "diana(rank(k=2))"), "Did you mean 'rankr'?"),
        (("--problem", "quadratic"), "Did you mean 'quadratics'?"),
        (("--requeue",), "--checkpoint-every keep a state: give --out"),
        (("--resume-or-start",), "--checkpoint-every keep a state: give --out"),
        (("--checkpoint-every", "5"), "--checkpoint-every keep a state: give --out"),
        (("--hold", "1"), "hold=1.0 without a target"),
        (("--every", "5", "--at", "1"), "both say when there is a row"),
        (("--observe", "never", "--target-grad-norm-sq", "1"), "can never be reached"),
        (("--blocks", "3"), "only with server='sharded'"),
        ((), "no sbatch found"),
    ],
)
def test_what_cannot_be_submitted_is_refused(arguments, text, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MpicompError, match=re.escape(text)):
        cli.main([*SUBMIT, *arguments], standalone_mode=False)


def test_a_device_that_is_not_there_is_said_in_one_line():
    """Where there is no GPU, or no CuPy: what to do about it."""
    done = mpicomp("bench", "kernels", "--device", "cuda", "--dtype", "f8")
    assert done.returncode == 1 and "--dtype f8 with --device cuda; allowed: f4" in done.stderr
    if find_spec("cupy") is None:
        done = mpicomp("bench", "kernels", "--device", "cuda")
        assert done.returncode == 1 and "mpicomp[cuda12] or mpicomp[cuda13]" in done.stderr
