"""The loop: the only place where a method, a problem and a transport meet."""

from __future__ import annotations

import json
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from mpicomp import checkpoint, messages
from mpicomp.compressors.base import Array
from mpicomp.errors import DivergedError, MpicompError
from mpicomp.keys import Key
from mpicomp.ledger import Ledger
from mpicomp.measure import Measured, measure
from mpicomp.methods.base import Method
from mpicomp.problems.base import Objective, Problem
from mpicomp.record import Recorder, Row, versions
from mpicomp.transports import Transport, connect

GROWTH = 1e12  # a squared gradient norm this many times the first one counts as divergence
