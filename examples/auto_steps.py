"""Costs of reaching a target with gamma="auto", with the step of theory, and with the best of powers of two.

    python examples/auto_steps.py digits mushrooms a9a

For each data set and method: rounds, and the rounds and the bytes of "auto" over those of the tuned step.
Steps are tuned with the first seed; costs are medians over all.
"""

import argparse

import mpicomp
from mpicomp.text.config import as_method

METHODS = {
    "GD": "gd",
    "EF21 TopK 5 %": "ef21(C=topk(k=0.05))",
    "EF21 TopK, 1 coordinate": "ef21(C=topk(k=1))",
    "MARINA RandK 5 %": "marina(Q=randk(k=0.05))",
    "MARINA PermK": "marina(Q=permk)",
    "DIANA RandK 5 %": "diana(Q=randk(k=0.05))",
    "DIANA natural": "diana(Q=natural)",
    "EF21-SGDM TopK 5 %": "ef21sgdm(C=topk(k=0.05))",
    "EF21+ TopK 5 %": "ef21plus(C=topk(k=0.05))",
    "DASHA RandK 5 %": "dasha(Q=randk(k=0.05))",
}
NETWORKS = {
    "network": "mlp(data=digits, hidden=100)",
    "mnist": "mlp(data=mnist.t)",
    "fashion": "mlp(data=fashion_mnist.t)",
}


def compared(data, method, seeds, rounds):
    """The comparison of the method's three steps on a data set."""
    if data in NETWORKS:
        first, problem = 0.125, NETWORKS[data]
        settings = {"workers": 4, "target_grad_norm_sq": 1e-3}
    else:
        first, problem = "theory", f"logistic(data={data}, lam={0.01 if data == 'digits' else 0.001})"
        settings = {"workers": 8 if data == "digits" else 12}
        settings["target_grad_norm_sq"] = 1e-7 if data == "digits" else 1e-6
    settings |= {"rounds": rounds, "seeds": range(seeds), "tuning_seeds": 1}
    chosen = {step: as_method(method).with_step(step) for step in (first, "auto")}
    labelled = {"theory": chosen[first], "auto": chosen["auto"], "tuned": chosen[first]}
    if data in NETWORKS:
        del labelled["theory"]
    return mpicomp.compare(labelled, problem, tune={"tuned": (0, 4)}, progress=False, **settings)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--methods", default="", help="a part of their names")
    words = parser.parse_args()
    print("| data | method | theory | tuned | auto | rounds, auto / tuned | bytes, auto / tuned |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for data in words.data:
        for name, method in METHODS.items():
            if words.methods.lower() in name.lower():
                lines = {
                    line.label: line for line in compared(data, method, words.seeds, words.rounds).lines()
                }
                print(f"| {data} | {name} | {row(lines)} |", flush=True)


def row(lines):
    def cost(line):
        if line is None or line.rounds is None:
            return "" if line is None else "diverged"
        missed = "> " if line.reached < line.seeds else ""
        return (
            f"{missed}{line.rounds:.0f} ({line.step.replace('theory*', '')}×)"
            if line.label == "tuned"
            else f"{missed}{line.rounds:.0f}"
        )

    tuned, auto = lines["tuned"], lines["auto"]
    ratios = [auto.rounds / tuned.rounds, auto.total_bytes / tuned.total_bytes]
    return " | ".join(
        [*(cost(lines.get(k)) for k in ("theory", "tuned", "auto")), *(f"{r:.2f}" for r in ratios)]
    )


if __name__ == "__main__":
    main()
