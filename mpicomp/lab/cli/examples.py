"""An example command line for each method, compressor and problem of the catalogue."""

from __future__ import annotations

from typing import Any

from mpicomp.compressors import COMPRESSORS, Absolute, Contractive, Unbiased
from mpicomp.methods import METHODS
from mpicomp.text.config import describe

# The values of parameters without a default, in examples of methods, of compressors, and of some by name.
_OF_METHODS = {"Q": "randk(k=0.1)", "C": "topk(k=0.1)", "down": "randk(k=0.5)", "batch": "10", "r": "4"}
_OF_COMPRESSORS = {
    "k": "0.1",
    "q": "0.1",
    "s": "7",
    "lam": "0.01",
    "beta": "20",
    "blocks": "8",
    "Q": "natural",
    "S": "randk(k=0.1)",
    "U": "natural",
    "C": "topk(k=0.1)",
}
_BY_NAME = {
    "dashamvr": {"Q": "randk(k=0.1)", "batch": "10", "b": "0.1"},
    "ef21lmo": {"C": "topk(k=0.1)", "rounds": "100", "gap": "0.7"},
    "ef21muon": {"C": "topk(k=0.1)", "down": "topk(k=0.1)", "norm": "l2", "rounds": "100", "gap": "0.7"},
    "adef": {"C": "topk(k=0.1)", "gamma": "0.1"},
    "doublesqueeze": {"C": "topk(k=0.1)", "down": "topk(k=0.1)"},
    "m3": {"Q": "randk(k=0.1)", "Q_down": "permk"},
    "locodl": {"Q": "randk(k=0.1)", "mu": "0.01"},
    "onebitadam": {"warmup": "20", "gamma": "0.01"},
    "perturbed_sgd": {"C": "topk(k=0.1)", "eta": "0.05", "r": "0.01"},
    "powersgd": {"r": "1", "rows": "8", "gamma": "0.5"},
    "dion": {"rows": "8", "gamma": "0.01"},
    "arctopk": {"k": "0.1", "width": "8"},
    "rankr": {"r": "1", "rows": "8"},
    "layered": {"rules": "{'*': topk(k=0.1)}"},
    "quadratics": {"d": "100"},
    "logistic": {"data": "digits", "lam": "1e-2"},
    "nonconvex_logistic": {"data": "digits"},
    "nonconvex_glm": {"data": "digits"},
    "least_squares": {"data": "digits", "lam": "1e-2"},
    "saddle": {"noise": "0.1"},
    "autoencoder": {"data": "digits"},
    "softmax": {"data": "digits"},
    "mlp": {"data": "digits"},
    "local_images": {"data": "digits"},
    "full_images": {"data": "digits"},
    "noisy": {"problem": "quadratics(d=100)", "sigma": "0.1"},
    "attacked": {"problem": "logistic(data=digits, lam=1e-2)", "liars": "2"},
}
_MADE_FOR: dict[Any, str] = {  # a method for a compressor of the kind
    Unbiased: "diana(Q={})",
    Contractive: "ef21(C={})",
    Absolute: "efsgd(C={})",
}
_FOR_QUADRATICS = ("heavyball", "cg")
_WITHOUT_CONSTANTS = ("saddle", "autoencoder", "mlp", "local_images", "full_images")
_WITH_LIARS = "byzvrmarina(Q=randk(k=0.1), liars=2)"
_ROUNDS = {"full_images": "10"}  # each takes about a second; all others have 100


def kinds(cls: type) -> list[type]:
    """The classes of compressors that ``cls`` is of; for Layered, those of its example."""
    return [kind for kind in _MADE_FOR if issubclass(cls, kind)] or [Contractive]


def example(name: str) -> str:
    """A method, compressor or problem as text, with the parameters that must be given."""
    given = _BY_NAME.get(name)
    if given is None:
        cls, values = (
            (METHODS[name], _OF_METHODS) if name in METHODS else (COMPRESSORS[name], _OF_COMPRESSORS)
        )
        given = {key: values[key] for key, default in describe(cls).parameters.items() if default is None}
    return f"{name}({', '.join(f'{key}={value}' for key, value in given.items())})" if given else name


def command(name: str) -> list[str]:
    """The arguments with which `mpicomp` runs the method of that name, or a method with the compressor, or
    on the problem, of that name."""
    method = example(name)
    problem = f"{'least_squares' if name in _FOR_QUADRATICS else 'logistic'}(data=digits, lam=1e-2)"
    if name in COMPRESSORS:
        method = _MADE_FOR[kinds(COMPRESSORS[name])[0]].format(method)
    elif name not in METHODS:
        problem = method
        method = f"ef21(C=topk(k=0.1){', gamma=0.05' if name in _WITHOUT_CONSTANTS else ''})"
        if name == "attacked":
            method = _WITH_LIARS
    rounds = _ROUNDS.get(name, "100")
    return ["run", "--problem", problem, "--method", method, "--workers", "8", "--rounds", rounds]
