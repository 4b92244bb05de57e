"""Rounds that gamma="auto" takes on batches, to the loss that the best constant step ends with.

    python examples/auto_batches.py a9a mushrooms

For each problem and method: the constant step, of the powers of two, with which f is least after --rounds
rounds; the f it ends with; and the rounds of "auto" until its f is as low, over --rounds.  f is the mean of
three rows, ten rounds apart.  The step is tuned with the first seed, from 1/2 up and down while f becomes
less.  f and rounds are medians over all seeds.
"""

import argparse
from statistics import median

import mpicomp
from mpicomp.text.config import as_method

METHODS = {
    "EF21-SGDM TopK 5 %, η = 0.3": "ef21sgdm(C=topk(k=0.05), eta=0.3, batch={b})",
    "EF21-SGDM TopK 1 %": "ef21sgdm(C=topk(k=0.01), batch={b})",
    "EF21-SGD TopK 3 %": "ef21(C=topk(k=0.03), batch={b})",
    "EFSGD TopK 5 %": "efsgd(C=topk(k=0.05), batch={b})",
    "DIANA natural": "diana(Q=natural, batch={b})",
    "DIANA RandK 10 %": "diana(Q=randk(k=0.1), batch={b})",
    "DCGD RandK 20 %": "dcgd(Q=randk(k=0.2), batch={b})",
    "DoubleSqueeze TopK 5 %": "doublesqueeze(C=topk(k=0.05), down=topk(k=0.05), batch={b})",
    "Artemis natural": "artemis(Q=natural, down=natural, batch={b})",
    "DASHA-MVR RandK 10 %": "dashamvr(Q=randk(k=0.1), b=0.1, batch={b})",
}
# The problem, workers, and samples in a batch.
PROBLEMS = {
    "digits": ("logistic(data=digits, lam=0.01)", 8, 8),
    "mushrooms": ("logistic(data=mushrooms, lam=0.001)", 4, 16),
    "a9a": ("logistic(data=a9a, lam=0.001)", 4, 32),
    "phishing": ("logistic(data=phishing, lam=0.001)", 12, 1),
    "w8a": ("logistic(data=w8a, lam=0.001)", 12, 32),
    "network": ("mlp(data=digits, hidden=64)", 4, 32),
    "mnist": ("mlp(data=mnist.t, hidden=64)", 4, 128),
    "fashion": ("mlp(data=fashion_mnist.t, hidden=64)", 8, 32),
    "splice": ("logistic(data=splice, lam=0.001)", 4, 8),
}
EVERY, ROWS = 10, 3


def losses(method, problem, workers, rounds, seed):
    """The running means of f over ROWS rows, every EVERY rounds; none where the run diverges."""
    try:
        run = mpicomp.run(method, problem, workers=workers, rounds=rounds, every=EVERY, seed=seed)
    except mpicomp.DivergedError:
        return []
    f = [row.f for row in run.rows[1:]]
    return [sum(f[k - ROWS : k]) / ROWS for k in range(ROWS, len(f) + 1)]


def tuned(method, problem, workers, rounds):
    """The step with which f is least at the end, with the first seed: from 1/2, by factors of 2 and 1/2."""

    def end(step):
        found = losses(method.with_step(step), problem, workers, rounds, 0)
        return found[-1] if found else float("inf")

    best, least = 0.5, end(0.5)
    while least == float("inf"):
        best, least = best / 2, end(best / 2)
    for factor in (2.0, 0.5):
        while (f := end(best * factor)) < least:
            best, least = best * factor, f
    return best


def rounds_to(target, found):
    """The rounds until a loss is at most ``target``; infinity if none is."""
    at = next((k for k, f in enumerate(found) if f <= target), None)
    return float("inf") if at is None else EVERY * (at + ROWS)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("problems", nargs="+", choices=PROBLEMS, help="names of problems")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--method", default="", help="only the methods whose names have this text")
    words = parser.parse_args()
    if words.rounds < EVERY * ROWS or words.rounds % EVERY:
        parser.error(f"--rounds: a multiple of {EVERY}, {EVERY * ROWS} or more")
    print("| problem | method | step | f at its end | f of auto then | rounds, auto / tuned |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for name in words.problems:
        problem, workers, batch = PROBLEMS[name]
        for label, text in METHODS.items():
            if words.method not in label:
                continue
            method, R, seeds = as_method(text.format(b=batch)), words.rounds, range(words.seeds)
            step = tuned(method, problem, workers, R)
            ends = [losses(method.with_step(step), problem, workers, R, seed) for seed in seeds]
            target = median(found[-1] if found else float("inf") for found in ends)
            autos = [losses(method.with_step("auto"), problem, workers, 2 * R, seed) for seed in seeds]
            taken = median(rounds_to(target, found) for found in autos) / R
            then = median(found[R // EVERY - ROWS] if found else float("inf") for found in autos)
            ratio = f"{taken:.2f}" if taken < float("inf") else "> 2"
            print(f"| {name} | {label} | {step:g} | {target:.4f} | {then:.4f} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
