"""Methods, simple ones first, and the table by which the command line knows them."""

from mpicomp.methods.adiana import ADIANA
from mpicomp.methods.agd import AGD
from mpicomp.methods.base import Method
from mpicomp.methods.dasha import DASHA
from mpicomp.methods.dashamvr import DASHAMVR
from mpicomp.methods.dashapage import DASHAPAGE
from mpicomp.methods.dcgd import DCGD
from mpicomp.methods.diana import DIANA
from mpicomp.methods.ef14 import EF14
from mpicomp.methods.ef21 import EF21
from mpicomp.methods.ef21p import EF21P
from mpicomp.methods.gd import GD
from mpicomp.methods.marina import MARINA
from mpicomp.methods.ppmarina import PPMARINA
from mpicomp.methods.twodirection import TwoDirection
from mpicomp.methods.vrdiana import VRDIANA
from mpicomp.methods.vrmarina import VRMARINA

METHODS: dict[str, type[Method]] = {
    "gd": GD,
    "agd": AGD,
    "dcgd": DCGD,
    "diana": DIANA,
    "vrdiana": VRDIANA,
    "marina": MARINA,
    "vrmarina": VRMARINA,
    "ppmarina": PPMARINA,
    "ef14": EF14,
    "ef21": EF21,
    "dasha": DASHA,
    "dashapage": DASHAPAGE,
    "dashamvr": DASHAMVR,
    "adiana": ADIANA,
    "ef21p": EF21P,
    "twodirection": TwoDirection,
}

__all__ = [
    "ADIANA",
    "AGD",
    "DASHA",
    "DASHAMVR",
    "DASHAPAGE",
    "DCGD",
    "DIANA",
    "EF14",
    "EF21",
    "EF21P",
    "GD",
    "MARINA",
    "METHODS",
    "PPMARINA",
    "VRDIANA",
    "VRMARINA",
    "Method",
    "TwoDirection",
]
