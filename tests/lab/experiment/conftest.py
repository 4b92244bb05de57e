"""What several files of tests of comparisons look at, and none of them changes."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(scope="session")
def noise(tmp_path_factory) -> str:
    """A file of labels that the features say nothing of: (1 - σ)² is 1/4 at 0 and about 1/2 far away."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "noise.svm"
    rows = [" ".join(f"{j}:{x:.3f}" for j, x in enumerate(rng.normal(size=5), 1)) for _ in range(300)]
    path.write_text("".join(f"{rng.choice([-1, 1])} {row}\n" for row in rows))
    return str(path)
