"""Marks name what there is."""

from __future__ import annotations

import re
from pathlib import Path

from tests.marks import JOBS, MARKS, PRODUCTS, SMOKE, marks_of

HERE = Path(__file__).parent


def test_each_entry_names_a_folder_a_file_or_a_function_of_one():
    wrong = []
    for entry in {*PRODUCTS, *(entry for entries in MARKS.values() for entry in entries)}:
        file, _, function = entry.partition("[")[0].partition("::")
        path = HERE / file
        if not path.exists() or (function and not re.search(rf"^def {function}\(", path.read_text(), re.M)):
            wrong.append(entry)
    assert wrong == []


def test_smoke_jobs_are_jobs():
    assert all(marks_of(f"tests/{entry}") == {"jobs", "smoke"} for entry in SMOKE)


def test_a_case_has_the_marks_of_its_function_its_file_and_its_folder():
    assert marks_of("tests/mpi/test_ranks.py::test_a[1]") == {"jobs"}
    assert marks_of("tests/lab/jobs/test_output.py::test_a") == {"jobs"}
    assert marks_of(f"tests/{SMOKE[0]}") == {"jobs", "smoke"}
    assert marks_of("tests/methods/test_pl.py::test_b[EF21]") == {"slow"}
    assert marks_of("tests/test_marks.py::test_c") == set()
    assert marks_of(f"tests/{PRODUCTS[0]}[1]") == set()
    assert marks_of(f"tests/{PRODUCTS[0]}[2]", repeats=True) == {"slow"}
    assert marks_of("tests/test_marks.py::test_c", repeats=True) == set()
    assert JOBS == tuple(sorted(JOBS))
