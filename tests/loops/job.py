"""One rank of a job with an aggregator; what it does is named by the first argument.

Prints a line of JSON on rank 0, where it comes to its end.
"""

from __future__ import annotations

import json
import sys

from tests.loops.jobs import errors, saving, steps, unlike
from tests.loops.jobs.common import RANK

if __name__ == "__main__":
    name, *given = sys.argv[1:]
    (job,) = (getattr(module, name) for module in (steps, saving, unlike, errors) if name in vars(module))
    told = job(*given)
    if RANK == 0:
        print(json.dumps(told))
