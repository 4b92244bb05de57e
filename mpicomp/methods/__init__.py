"""A table of the methods by their names in texts, simple ones first; a class is imported on first use."""

from typing import TYPE_CHECKING

from mpicomp.base.lazy import Table, importing
from mpicomp.methods.base import Method as Method

if TYPE_CHECKING:
    from mpicomp.methods.adef import ADEF as ADEF
    from mpicomp.methods.adiana import ADIANA as ADIANA
    from mpicomp.methods.adiana_plus import ADIANAPlus as ADIANAPlus
    from mpicomp.methods.agd import AGD as AGD
    from mpicomp.methods.arctopk import ARCTopK as ARCTopK
    from mpicomp.methods.artemis import Artemis as Artemis
    from mpicomp.methods.byzvrmarina import ByzVRMARINA as ByzVRMARINA
    from mpicomp.methods.cg import CG as CG
    from mpicomp.methods.dasha import DASHA as DASHA
    from mpicomp.methods.dashamvr import DASHAMVR as DASHAMVR
    from mpicomp.methods.dashapage import DASHAPAGE as DASHAPAGE
    from mpicomp.methods.dcgd import DCGD as DCGD
    from mpicomp.methods.dcgd_plus import DCGDPlus as DCGDPlus
    from mpicomp.methods.diana import DIANA as DIANA
    from mpicomp.methods.diana_plus import DIANAPlus as DIANAPlus
    from mpicomp.methods.dion import Dion as Dion
    from mpicomp.methods.dore import Dore as Dore
    from mpicomp.methods.doublesqueeze import DoubleSqueeze as DoubleSqueeze
    from mpicomp.methods.econtrol import EControl as EControl
    from mpicomp.methods.ef14 import EF14 as EF14
    from mpicomp.methods.ef21 import EF21 as EF21
    from mpicomp.methods.ef21lmo import EF21LMO as EF21LMO
    from mpicomp.methods.ef21muon import EF21Muon as EF21Muon
    from mpicomp.methods.ef21p import EF21P as EF21P
    from mpicomp.methods.ef21plus import EF21Plus as EF21Plus
    from mpicomp.methods.ef21sgd2m import EF21SGD2M as EF21SGD2M
    from mpicomp.methods.ef21sgdm import EF21SGDM as EF21SGDM
    from mpicomp.methods.efsgd import EFSGD as EFSGD
    from mpicomp.methods.gd import GD as GD
    from mpicomp.methods.heavyball import HeavyBall as HeavyBall
    from mpicomp.methods.lbfgs import LBFGS as LBFGS
    from mpicomp.methods.locodl import LoCoDL as LoCoDL
    from mpicomp.methods.m3 import M3 as M3
    from mpicomp.methods.marina import MARINA as MARINA
    from mpicomp.methods.marinap import MARINAP as MARINAP
    from mpicomp.methods.mcm import MCM as MCM
    from mpicomp.methods.onebitadam import OneBitAdam as OneBitAdam
    from mpicomp.methods.perturbed_sgd import PerturbedSGD as PerturbedSGD
    from mpicomp.methods.powersgd import PowerSGD as PowerSGD
    from mpicomp.methods.ppmarina import PPMARINA as PPMARINA
    from mpicomp.methods.twodirection import TwoDirection as TwoDirection
    from mpicomp.methods.vrdiana import VRDIANA as VRDIANA
    from mpicomp.methods.vrmarina import VRMARINA as VRMARINA

METHODS: Table[Method] = Table(
    __name__,
    {
        "gd": "gd:GD",
        "agd": "agd:AGD",
        "heavyball": "heavyball:HeavyBall",
        "cg": "cg:CG",
        "lbfgs": "lbfgs:LBFGS",
        "dcgd": "dcgd:DCGD",
        "diana": "diana:DIANA",
        "vrdiana": "vrdiana:VRDIANA",
        "marina": "marina:MARINA",
        "vrmarina": "vrmarina:VRMARINA",
        "ppmarina": "ppmarina:PPMARINA",
        "byzvrmarina": "byzvrmarina:ByzVRMARINA",
        "ef14": "ef14:EF14",
        "efsgd": "efsgd:EFSGD",
        "ef21": "ef21:EF21",
        "ef21plus": "ef21plus:EF21Plus",
        "ef21sgdm": "ef21sgdm:EF21SGDM",
        "ef21sgd2m": "ef21sgd2m:EF21SGD2M",
        "ef21lmo": "ef21lmo:EF21LMO",
        "ef21muon": "ef21muon:EF21Muon",
        "econtrol": "econtrol:EControl",
        "dasha": "dasha:DASHA",
        "dashapage": "dashapage:DASHAPAGE",
        "dashamvr": "dashamvr:DASHAMVR",
        "adiana": "adiana:ADIANA",
        "adef": "adef:ADEF",
        "locodl": "locodl:LoCoDL",
        "doublesqueeze": "doublesqueeze:DoubleSqueeze",
        "onebitadam": "onebitadam:OneBitAdam",
        "artemis": "artemis:Artemis",
        "dore": "dore:Dore",
        "mcm": "mcm:MCM",
        "ef21p": "ef21p:EF21P",
        "marinap": "marinap:MARINAP",
        "m3": "m3:M3",
        "twodirection": "twodirection:TwoDirection",
        "perturbed_sgd": "perturbed_sgd:PerturbedSGD",
        "powersgd": "powersgd:PowerSGD",
        "dion": "dion:Dion",
        "arctopk": "arctopk:ARCTopK",
        "dcgd_plus": "dcgd_plus:DCGDPlus",
        "diana_plus": "diana_plus:DIANAPlus",
        "adiana_plus": "adiana_plus:ADIANAPlus",
    },
)

if not TYPE_CHECKING:
    __all__ = [*METHODS.places, "METHODS", "Method"]
    __getattr__, __dir__ = importing(__name__, METHODS.places)
