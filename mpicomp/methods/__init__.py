"""Methods, simple ones first, and the table by which the command line knows them."""

from mpicomp.methods.agd import AGD
from mpicomp.methods.base import Method
from mpicomp.methods.dcgd import DCGD
from mpicomp.methods.diana import DIANA
from mpicomp.methods.ef14 import EF14
from mpicomp.methods.ef21 import EF21
from mpicomp.methods.gd import GD
from mpicomp.methods.marina import MARINA

METHODS: dict[str, type[Method]] = {
    "gd": GD,
    "agd": AGD,
    "dcgd": DCGD,
    "diana": DIANA,
    "marina": MARINA,
    "ef14": EF14,
    "ef21": EF21,
}

__all__ = ["AGD", "DCGD", "DIANA", "EF14", "EF21", "GD", "MARINA", "METHODS", "Method"]
