"""Which images are like those of the training?  The score log p_full - log p_local, trained by 4 workers.

    mpicomp data fetch fashion_mnist fashion_mnist.t mnist.t
    mpirun -n 4 python examples/score_images.py --inside fashion_mnist --outside mnist.t

The sets are names of sets or IDX files.  The test images are those of NAME.t, or of ``--test``.  Each line is
the area under the ROC curve: 1 if the score tells every image inside from every one outside, 1/2 if none.
"""

import argparse

import numpy as np
from mpi4py import MPI

import mpicomp
from mpicomp import EF21SGDM, TopK
from mpicomp.problems import FullImages, LocalImages, auroc

# Of each model: the class, the compressor, eta, and the stages: a step size, and for how many rounds.  Each
# stage starts where the one before ended.
MODELS = {
    "local": (LocalImages, TopK(k=0.01), 0.03, [(1, 5000), (0.3, 3000), (0.1, 2000)]),
    "full": (FullImages, TopK(k=0.05), 0.1, [(2, 6000), (0.6, 3000), (0.2, 1000)]),
}


def trained(problem, C, eta, stages, seed, scale):
    """The model after all stages, and the bytes that the workers sent."""
    x, sent = None, 0
    for gamma, rounds in stages:
        method = EF21SGDM(C=C, gamma=gamma, eta=eta, batch=512)
        rounds = max(1, int(scale * rounds))
        options = {"rounds": rounds, "every": rounds, "observe": "never", "x0": x, "seed": seed}
        run = mpicomp.run(method, problem, workers=4, **options)
        x, sent = run.x, sent + run.rows[-1].up_bytes
    return x, sent


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--inside", default="fashion_mnist")
parser.add_argument("--outside", default="mnist.t")
parser.add_argument("--test", help="images of the inside set that training does not see")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument(
    "--hidden", type=int, nargs=2, default=[48, 128], help="units of the local, the full model"
)
parser.add_argument("--scale", type=float, default=1, help="a factor on all numbers of rounds")
given = parser.parse_args()

values = {}
for (name, (model, *recipe)), hidden in zip(MODELS.items(), given.hidden, strict=True):
    problem = model(given.inside, hidden=hidden, seed=given.seed)
    x, sent = trained(problem, *recipe, given.seed, given.scale)
    if MPI.COMM_WORLD.rank == 0:
        sets = [model(data, hidden=hidden) for data in (given.test or f"{given.inside}.t", given.outside)]
        values[name] = [images.log_likelihoods(x) for images in sets]
        pixels = [images.images().shape[1] for images in sets]
        bits = [-v.mean() / p / np.log(2) for v, p in zip(values[name], pixels, strict=True)]
        print(f"{name}: d = {x.size}, {sent / 1e6:.1f} MB up; bits a pixel {bits[0]:.3f} and {bits[1]:.3f}")
if MPI.COMM_WORLD.rank == 0:
    ratios = [full - local for local, full in zip(values["local"], values["full"], strict=True)]
    for name, (inside, outside) in {**values, "full - local": ratios}.items():
        print(f"AUROC of {name}: {auroc(inside, outside):.4f}")
