"""The methods, simple ones first, and the table of their names on the command line."""

from mpicomp.methods.adiana import ADIANA
from mpicomp.methods.adiana_plus import ADIANAPlus
from mpicomp.methods.agd import AGD
from mpicomp.methods.arctopk import ARCTopK
from mpicomp.methods.artemis import Artemis
from mpicomp.methods.base import Method
from mpicomp.methods.cg import CG
from mpicomp.methods.dasha import DASHA
from mpicomp.methods.dashamvr import DASHAMVR
from mpicomp.methods.dashapage import DASHAPAGE
from mpicomp.methods.dcgd import DCGD
from mpicomp.methods.dcgd_plus import DCGDPlus
from mpicomp.methods.diana import DIANA
from mpicomp.methods.diana_plus import DIANAPlus
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
from mpicomp.methods.heavyball import HeavyBall
from mpicomp.methods.lbfgs import LBFGS
from mpicomp.methods.marina import MARINA
from mpicomp.methods.mcm import MCM
from mpicomp.methods.perturbed_sgd import PerturbedSGD
from mpicomp.methods.powersgd import PowerSGD
from mpicomp.methods.ppmarina import PPMARINA
from mpicomp.methods.twodirection import TwoDirection
from mpicomp.methods.vrdiana import VRDIANA
from mpicomp.methods.vrmarina import VRMARINA

METHODS: dict[str, type[Method]] = {
    "gd": GD,
    "agd": AGD,
    "heavyball": HeavyBall,
    "cg": CG,
    "lbfgs": LBFGS,
    "dcgd": DCGD,
    "diana": DIANA,
    "vrdiana": VRDIANA,
    "marina": MARINA,
    "vrmarina": VRMARINA,
    "ppmarina": PPMARINA,
    "ef14": EF14,
    "efsgd": EFSGD,
    "ef21": EF21,
    "ef21plus": EF21Plus,
    "ef21sgdm": EF21SGDM,
    "ef21sgd2m": EF21SGD2M,
    "dasha": DASHA,
    "dashapage": DASHAPAGE,
    "dashamvr": DASHAMVR,
    "adiana": ADIANA,
    "doublesqueeze": DoubleSqueeze,
    "artemis": Artemis,
    "dore": Dore,
    "mcm": MCM,
    "ef21p": EF21P,
    "twodirection": TwoDirection,
    "perturbed_sgd": PerturbedSGD,
    "powersgd": PowerSGD,
    "arctopk": ARCTopK,
    "dcgd_plus": DCGDPlus,
    "diana_plus": DIANAPlus,
    "adiana_plus": ADIANAPlus,
}

__all__ = [
    "ADIANA",
    "AGD",
    "CG",
    "DASHA",
    "DASHAMVR",
    "DASHAPAGE",
    "DCGD",
    "DIANA",
    "EF14",
    "EF21",
    "EF21P",
    "EF21SGD2M",
    "EF21SGDM",
    "EFSGD",
    "GD",
    "LBFGS",
    "MARINA",
    "MCM",
    "METHODS",
    "PPMARINA",
    "VRDIANA",
    "VRMARINA",
    "ADIANAPlus",
    "ARCTopK",
    "Artemis",
    "DCGDPlus",
    "DIANAPlus",
    "Dore",
    "DoubleSqueeze",
    "EF21Plus",
    "HeavyBall",
    "Method",
    "PerturbedSGD",
    "PowerSGD",
    "TwoDirection",
]
