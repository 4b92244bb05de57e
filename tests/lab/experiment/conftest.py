"""What several files of tests of comparisons look at, and none of them changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mpicomp.lab.experiment.compare import compare
from mpicomp.lab.experiment.report import publish
from mpicomp.lab.experiment.results import Comparison
from mpicomp.lab.experiment.suite_file import parse_suite
from tests.support.suites import SUITE


@pytest.fixture(scope="session")
def noise(tmp_path_factory) -> str:
    """A file of labels that the features say nothing of: (1 - σ)² is 1/4 at 0 and about 1/2 far away."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "noise.svm"
    rows = [" ".join(f"{j}:{x:.3f}" for j, x in enumerate(rng.normal(size=5), 1)) for _ in range(300)]
    path.write_text("".join(f"{rng.choice([-1, 1])} {row}\n" for row in rows))
    return str(path)


@pytest.fixture(scope="session")
def done(tmp_path_factory) -> tuple[Path, Comparison]:
    """The folder of the comparison of ``SUITE``, with its tables and figure, and the comparison itself."""
    out = tmp_path_factory.mktemp("suite") / "out"
    comparison = compare(parse_suite(SUITE), out)
    publish(out)
    return out, comparison
