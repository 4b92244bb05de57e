"""Situations in which one has to choose a method, each with a line to paste and what was measured.

The table of docs/which.md has a row for each of ``SITUATIONS``, and ``advice`` chooses among those that are
``advised``.  Nothing is claimed here: every number stands in the page that the text links to.
"""

from __future__ import annotations

from mpicomp.lab.bench.situation import Row, Seen, Situation

GRADIENTS, ROBUSTNESS = "results/gradient-methods.md", "results/robustness.md"
TRAINING, PERMK = "results/training.md", "results/permk.md"
F4 = "down=lossless(values=f4)"  # broadcasts in float32, as in the tables


_DENSE = {
    "digits": Row(GRADIENTS, "The demo", "L-BFGS", 15),
    "mushrooms": Row(GRADIENTS, "Mushrooms", "L-BFGS", 19),
    "a9a": Row(GRADIENTS, "a9a", "L-BFGS", 17),
    "phishing": Row(ROBUSTNESS, "phishing", "L-BFGS", 9),
    "splice": Row(ROBUSTNESS, "splice", "L-BFGS", 23),
    "ijcnn1": Row(ROBUSTNESS, "ijcnn1", "L-BFGS", 9),
}


def _one_coordinate(name: str, *rounds: int) -> tuple[Seen, ...]:
    """Rounds of EF21 with one coordinate on the six data sets, beside those of L-BFGS."""
    rows = zip(_DENSE, rounds, strict=True)
    return tuple(Seen(of, Row(ROBUSTNESS, of, name, count), _DENSE[of]) for of, count in rows)


def _by_workers(name: str, dense: dict[int, int], rounds: dict[int, int]) -> tuple[Seen, ...]:
    """Rounds on softmax regression by the number of workers, beside those of L-BFGS."""
    page = "downlink.md"
    return tuple(
        Seen(f"n = {n}", Row(page, str(n), name, count), Row(page, str(n), "L-BFGS", dense[n]))
        for n, count in rounds.items()
    )


def _to_accuracy(name: str, *steps: int) -> tuple[Seen, ...]:
    """Steps that train two networks to an accuracy and one to a loss, beside those with whole gradients."""
    cases = {"d = 99550": 360, "d = 999580": 240, "To a loss": 320}
    return tuple(
        Seen(case, Row(TRAINING, case, name, count), Row(TRAINING, case, "dense, ours", dense))
        for (case, dense), count in zip(cases.items(), steps, strict=True)
    )


_SOFTMAX = {4: 21, 16: 21, 64: 30, 256: 22}  # rounds of L-BFGS by the number of workers

SITUATIONS: tuple[Situation, ...] = (
    Situation(
        "Full gradients: nothing to tune, or a link that is fast against a gradient",
        "lbfgs",
        "15, 19 and 17 rounds on digits, mushrooms and a9a; AGD, tuned, 56, 59 and 53 "
        "([gradient methods](results/gradient-methods.md))",
        dense=True,
        tried=(105010, 256),
    ),
    Situation(
        "Quadratic f",
        "agd(mu=0.0)",
        "37 to 59 rounds; L-BFGS 190 to 298 ([PermK](results/permk.md#quadratics))",
    ),
    Situation(
        "Convex f, bytes in both directions",
        f"ef21(C=topk(k=0.01), gamma=theory*1024, {F4})",
        "one coordinate: 46.4, 80.8 and 98.9 KB in total on digits, mushrooms and a9a, L-BFGS 62.4, 206 and "
        "202; on splice 149, L-BFGS 135 ([other k](results/robustness.md)); with gamma=auto 71.1, 109 "
        "and 114 KB on the three ([step sizes](steps.md#where-it-fails))",
        convex=True,
        up=False,
        seen=(
            *_one_coordinate("EF21 TopK, 1 coordinate", 148, 133, 166, 70, 218, 41),
            *_by_workers("EF21-SGDM, TopK", _SOFTMAX, {4: 243, 16: 246, 64: 254, 256: 312}),
        ),
        tried=(650, 256),
    ),
    Situation(
        "Convex f, bytes up alone",
        f"ef21(C=quantized_topk(k=0.01, Q=natural), gamma=theory*1024, {F4})",
        "one coordinate: 516, 444 and 447 B up on digits, mushrooms and a9a, L-BFGS 3.9, 8.59 and 8.43 KB "
        "([other k](results/robustness.md), [gradient methods](results/gradient-methods.md)); with "
        "gamma=auto 1.02, 0.81 and 1.04 KB ([step sizes](steps.md#where-it-fails))",
        convex=True,
        up=True,
        seen=_one_coordinate("EF21 TopK + natural, 1 coordinate", 172, 148, 149, 72, 288, 46),
        tried=(123, 12),
    ),
    Situation(
        "Convex f_i, 16 workers or more, bytes in both directions",
        "ef21p(C=topk(k=0.01), Q=randk(k=0.01))",
        "42.9, 39.2 and 39.8 KB a worker in total with 16, 64 and 256 workers; L-BFGS 109, 156 and 115, AGD "
        "130 ([what goes down](downlink.md#measured))",
        convex=True,
        up=False,
        n=16,
        seen=_by_workers("EF21-P + DIANA, TopK and RandK", _SOFTMAX, {16: 780, 64: 712, 256: 724}),
        tried=(650, 256),
    ),
    Situation(
        "Bytes down alone, many workers with alike functions",
        "marinap(Q=permk)",
        "50 workers: noise 0.01, 1.92 KB down a worker, EF21-P 3.6, L-BFGS 11.7; noise 0.8, 6.01, EF21-P "
        "3.04 ([MARINA-P](methods.md#marinap))",
    ),
    Situation(
        "Strongly convex f_i, rounds that cost more than gradients",
        f"locodl(Q=natural, mu=0.001, {F4})",
        "mushrooms: 13 rounds and 691 gradients of a worker; L-BFGS 19 and 19 ([LoCoDL](methods.md#locodl))",
        convex=True,
        mu=True,
        seen=(
            Seen("mushrooms", Row("methods.md", "LoCoDL", "LoCoDL natural", 13), _DENSE["mushrooms"], 691),
            Seen("digits", Row("methods.md", "LoCoDL", "", 54), _DENSE["digits"], 792),
        ),
        tried=(112, 12),
    ),
    Situation(
        "Condition number of 10⁴",
        "lbfgs",
        "mushrooms and w8a: 371 and 819 KB in total; AGD 1.41 and 2.5 MB, EF21-P with DIANA 2.04 and 1.37 MB "
        "([2Direction](results/twodirection.md))",
    ),
    Situation(
        "As many workers as coordinates, alike data, bytes up alone",
        f"marina(Q=permk, {F4})",
        "100 workers: 4.22 KB up, AGD 21.6; in total 13.1 MB, AGD 4.32 "
        "([PermK](results/permk.md#quadratics))",
        up=True,
        alike=True,
        as_many=True,
        n=100,
        seen=(
            Seen(
                "noise 0",
                Row(PERMK, "n = 100, noise 0", "MARINA PermK", 362),
                Row(PERMK, "n = 100, noise 0", "AGD, μ = 0", 54),
            ),
        ),
        tried=(100, 100),
    ),
    Situation(
        "A network or another f that is not convex, full gradients",
        f"ef21(C=quantized_topk(k=0.01, Q=natural), gamma=0.1, {F4})",
        "an autoencoder: 133 rounds, AGD 73; 3.22 s at 100 Mbit/s, AGD 6.55; at 1 Gbit/s 2.45, AGD 1.67 "
        "([links](links.md#measured))",
        convex=False,
        seen=(
            Seen(
                "autoencoder",
                Row("links.md", "", "EF21 TopK 1 % + natural", 133),
                Row("links.md", "", "AGD", 73),
            ),
        ),
        tried=(100352, 4),
    ),
    Situation(
        "Gradients that are matrices, full gradients",
        "powersgd(r=1, rows=10, gamma=1.0, momentum=0.9)",
        "1.18 MB in total; L-BFGS 1.83, AGD 3.29 ([low rank](results/low-rank.md))",
    ),
    Situation(
        "A theorem's step, with an unbiased compressor",
        f"marina(Q=randk(k=5), {F4})",
        "after 400 KB f is 0.1184 on a9a; DIANA 0.1522, L-BFGS 0.1033 ([MARINA](results/marina.md))",
    ),
    Situation(
        "No step tuned, full gradients",
        f"ef21(C=topk(k=0.05), gamma=auto, {F4})",
        "101, 98 and 123 rounds on digits, mushrooms and a9a, with tuned steps 68, 141 and 284 "
        "([step sizes](steps.md#measured))",
    ),
    Situation(
        "No step tuned, batches",
        "efsgd(C=topk(k=0.05), gamma=auto, batch=32)",
        "after 300 rounds f is 0.3364, 0.0520 and 0.0228 on a9a, mushrooms (batches of 16) and a network, "
        "with tuned steps 0.3367, 0.0522 and 0.0247 ([step sizes](steps.md#on-batches))",
    ),
    Situation(
        "No step tuned, steps of a given length",
        "ef21lmo(C=topk(k=0.05), rounds=20000, gap=0.7)",
        "8750 rounds on digits, to 1e-4; EF21 with the theorem's step 8300, tuned 23 "
        "([steps of a given length](results/gradient-methods.md#steps-of-a-given-length))",
    ),
    Situation(
        "Workers that may send false gradients",
        f"byzvrmarina(Q=randk(k=0.1), gamma=0.5, p=0.1, rule=geometric, liars=3, {F4})",
        "3 of 16 lie: f ends at 0.3381 to 0.3393, by a mean at 0.3380 to 116 "
        "([ByzVRMARINA](methods.md#byzvrmarina))",
    ),
    Situation(
        "Batches, a link that is fast against a gradient",
        f"efsgd(C=identity, gamma=0.1, batch=32, {F4})",
        "one host: 8.38 s to an accuracy, EF14 10.9 ([training](results/training.md#to-an-accuracy))",
        dense=True,
        batches=True,
        tried=(999580, 4),
    ),
    Situation(
        "Batches, a step long enough for a quarter of the bytes",
        "doublesqueeze(C=block_float, down=block_float, gamma=0.1, batch=32)",
        "the score of whole gradients in five programs, 2.7 to 3.9 times fewer bytes "
        "([training](training.md#five-programs))",
        batches=True,
        tried=(1199882, 4),
    ),
    Situation(
        "Batches, a slower link",
        f"ef14(C=topk(k=0.01), gamma=0.1, batch=32, {F4})",
        "440 and 360 steps to an accuracy, dense 360 and 240; 12.3 and 17.5 s at 100 Mbit/s, dense 30.4 "
        "and 132 ([training](results/training.md#to-an-accuracy))",
        batches=True,
        seen=_to_accuracy("EF14, TopK 1 %, ours", 440, 360, 440),
        tried=(999580, 4),
    ),
    Situation(
        "Batches, bytes in both directions",
        "doublesqueeze(C=topk(k=0.01), down=topk(k=0.01), gamma=0.1, batch=32)",
        "600 and 360 steps to an accuracy, dense 360 and 240; 16.5 and 14.6 s at 100 Mbit/s, dense 30.4 "
        "and 132 ([training](results/training.md#to-an-accuracy))",
        batches=True,
        up=False,
        seen=_to_accuracy("DoubleSqueeze, TopK 1 %, ours", 600, 360, 520),
        tried=(999580, 4),
    ),
    Situation(
        "Batches of one, noise as large as the gradient",
        f"ef14(C=topk(k=10), gamma=0.04, batch=1, {F4})",
        "10 workers: f ends at 0.04966; EF21-SGDM with η = 0.03 at 0.05567, EF21-SGD at 1.664 "
        "([momentum](results/momentum.md))",
    ),
)
