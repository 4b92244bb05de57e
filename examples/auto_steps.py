"""Costs of reaching a target with gamma="auto" and with the best step of all powers of two.

    python examples/auto_steps.py digits mushrooms a9a

For each data set and method: rounds, and the rounds and the bytes of "auto" over those of the tuned step.
Steps are tuned with the first seed, or with --tuning-seeds of them; (8x) is 8 times the theorem's or 0.125.
Costs are medians over all seeds.  A target counts where it holds for as many rounds again.
"""

import argparse

import mpicomp
from mpicomp.text.config import as_method

METHODS = {
    "EF21 TopK 5 %": "ef21(C=topk(k=0.05))",
    "EF21 TopK, 1 coordinate": "ef21(C=topk(k=1))",
    "MARINA RandK 5 %": "marina(Q=randk(k=0.05))",
    "MARINA PermK": "marina(Q=permk)",
    "DIANA RandK 5 %": "diana(Q=randk(k=0.05))",
    "DIANA natural": "diana(Q=natural)",
    "EF21-SGDM TopK 5 %": "ef21sgdm(C=topk(k=0.05))",
    "GD": "gd",
}
NETWORKS = {"network": "mlp(data=digits, hidden=100)", "mnist": "mlp(data=mnist.t)"}


def compared(data, method, seeds, rounds, tuning_seeds):
    """The comparison of the method's two steps on a data set."""
    settings = {"rounds": rounds, "seeds": range(seeds), "tuning_seeds": tuning_seeds, "hold": 1.0}
    if data in NETWORKS:  # no theorem gives their step
        first, problem, tune = 0.125, NETWORKS[data], (1, 3)
        settings |= {"workers": 4, "target_grad_norm_sq": 1e-3}
    else:
        lam, target, workers = (0.01, 1e-7, 8) if data == "digits" else (0.001, 1e-6, 12)
        first, problem, tune = "theory", f"logistic(data={data}, lam={lam})", (6, 8)
        settings |= {"workers": workers, "target_grad_norm_sq": target}
    steps = {"tuned": first, "auto": "auto"}
    methods = {label: as_method(method).with_step(step) for label, step in steps.items()}
    return mpicomp.compare(methods, problem, tune={"tuned": tune}, progress=False, **settings)


def cost(line):
    """The rounds of a line of the comparison, and the factor of its tuned step."""
    factor = {"theory": "1"}.get(line.step, line.step.removeprefix("theory*"))
    times = "" if line.label == "auto" else f" ({factor}x{'†' * line.at_edge})"
    return f"{'' if line.reached == line.seeds else '> '}{line.rounds:.0f}{times}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="+", help=f"names of data sets, or of networks: {', '.join(NETWORKS)}")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tuning-seeds", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2500)
    parser.add_argument("--method", default="", help="only the methods whose names have this text")
    words = parser.parse_args()
    print("| data | method | tuned | auto | rounds, auto / tuned | bytes, auto / tuned |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for data in words.data:
        for name, method in METHODS.items():
            if words.method not in name:
                continue
            tuned, auto = compared(data, method, words.seeds, words.rounds, words.tuning_seeds).lines()
            ratios = auto.rounds / tuned.rounds, auto.total_bytes / tuned.total_bytes
            cells = data, name, cost(tuned), cost(auto), *(f"{ratio:.2f}" for ratio in ratios)
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
