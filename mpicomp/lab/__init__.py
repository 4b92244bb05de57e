"""The laboratory: many runs, their tables and figures, benchmarks, and the command ``mpicomp``.

Its libraries come with ``pip install 'mpicomp[lab]'``.  Raises ``NotInstalled`` where they are not there.
"""

from importlib import import_module
from importlib.util import find_spec

from mpicomp.base.extras import needed_by

with needed_by("mpicomp.lab (advise, compare, tune, load, plot, the command)", "lab"):
    for library in ("click", "rich", "matplotlib", "sklearn"):
        if find_spec(library) is None:
            import_module(library)
