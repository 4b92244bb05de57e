"""Methods, simple ones first, and the table by which the command line knows them."""

from mpicomp.methods.adiana import ADIANA
from mpicomp.methods.adiana_plus import ADIANAPlus
from mpicomp.methods.agd import AGD
from mpicomp.methods.base import Method
from mpicomp.methods.dasha import DASHA
from mpicomp.methods.dcgd import DCGD
from mpicomp.methods.dcgd_plus import DCGDPlus
from mpicomp.methods.diana import DIANA
from mpicomp.methods.diana_plus import DIANAPlus
from mpicomp.methods.ef14 import EF14
from mpicomp.methods.ef21 import EF21
from mpicomp.methods.ef21p import EF21P
from mpicomp.methods.gd import GD
from mpicomp.methods.marina import MARINA
from mpicomp.methods.twodirection import TwoDirection

METHODS: dict[str, type[Method]] = {
    "gd": GD,
    "agd": AGD,
    "dcgd": DCGD,
    "diana": DIANA,
    "marina": MARINA,
    "ef14": EF14,
    "ef21": EF21,
    "dasha": DASHA,
    "adiana": ADIANA,
    "ef21p": EF21P,
    "twodirection": TwoDirection,
    "dcgd_plus": DCGDPlus,
    "diana_plus": DIANAPlus,
    "adiana_plus": ADIANAPlus,
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
    "GD",
    "MARINA",
    "METHODS",
    "ADIANAPlus",
    "DCGDPlus",
    "DIANAPlus",
    "Method",
    "TwoDirection",
]
