"""Methods, simple ones first, and the table by which the command line knows them."""

from mpicomp.methods.adiana import ADIANA
from mpicomp.methods.agd import AGD
from mpicomp.methods.artemis import Artemis
from mpicomp.methods.base import Method
from mpicomp.methods.dasha import DASHA
from mpicomp.methods.dcgd import DCGD
from mpicomp.methods.diana import DIANA
from mpicomp.methods.dore import Dore
from mpicomp.methods.doublesqueeze import DoubleSqueeze
from mpicomp.methods.ef14 import EF14
from mpicomp.methods.ef21 import EF21
from mpicomp.methods.ef21p import EF21P
from mpicomp.methods.ef21plus import EF21Plus
from mpicomp.methods.ef21sgd2m import EF21SGD2M
from mpicomp.methods.ef21sgdm import EF21SGDM
from mpicomp.methods.efsgd import EFSGD
from mpicomp.methods.gd import GD
from mpicomp.methods.marina import MARINA
from mpicomp.methods.mcm import MCM
from mpicomp.methods.twodirection import TwoDirection

METHODS: dict[str, type[Method]] = {
    "gd": GD,
    "agd": AGD,
    "dcgd": DCGD,
    "diana": DIANA,
    "marina": MARINA,
    "ef14": EF14,
    "efsgd": EFSGD,
    "ef21": EF21,
    "ef21plus": EF21Plus,
    "ef21sgdm": EF21SGDM,
    "ef21sgd2m": EF21SGD2M,
    "dasha": DASHA,
    "adiana": ADIANA,
    "doublesqueeze": DoubleSqueeze,
    "artemis": Artemis,
    "dore": Dore,
    "mcm": MCM,
    "ef21p": EF21P,
    "twodirection": TwoDirection,
}

__all__ = [
    "ADIANA",
    "AGD",
    "DASHA",
    "DCGD",
    "DIANA",
    "EF14",
    "EF21",
    "EF21P",
    "EF21SGD2M",
    "EF21SGDM",
    "EFSGD",
    "GD",
    "MARINA",
    "MCM",
    "METHODS",
    "Artemis",
    "Dore",
    "DoubleSqueeze",
    "EF21Plus",
    "Method",
    "TwoDirection",
]
