"""The commands `images train, compress, decompress, score`: train a model, compress images, score them."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import click

from mpicomp.base.errors import ConfigError, RecordError
from mpicomp.base.files import present, refuse_unwritable, write_atomically, write_text
from mpicomp.base.units import human_bytes
from mpicomp.images import KINDS
from mpicomp.lab.cli.options import (
    RESUME,
    Place,
    checkpoint_option,
    ranks_option,
    resume_options,
    with_options,
)
from mpicomp.lab.cli.progress import rounds as bar
from mpicomp.lab.cli.root import INTERRUPTED, cli, elsewhere, relaunch, watched
from mpicomp.transports.launcher import launched_rank


class Stages(click.ParamType):
    """A text such as 1:5000,0.3:3000, converted to tuples (step size, rounds)."""

    name = "step:rounds,.."

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[tuple[float, int], ...]:
        try:
            pairs = [stage.split(":") for stage in value.split(",")]
            return tuple((float(step), int(rounds)) for step, rounds in pairs)
        except ValueError:
            self.fail(
                f"{value!r}; allowed: step sizes and rounds, such as 1:5000,0.3:3000,0.1:2000.", param, ctx
            )


def _refuse_output(path: Path) -> None:
    """Raise ``RecordError``, before long work, if the file is there already or cannot be written."""
    if present(path):
        raise RecordError(f"{path} is already there. Choose another name.")
    refuse_unwritable(path.parent)


@cli.group()
def images() -> None:
    """Train a model of grey images; compress or score images.

    The model is trained over MPI ranks, and compresses images without loss.
    """


@images.command()
@click.argument("data")
@click.option("--out", type=Place(), required=True, help="Folder for the model and the records of the runs.")
@click.option(
    "--kind",
    type=click.Choice(list(KINDS)),
    default="local",
    help="A local model predicts a pixel from near pixels alone; a full model also from pixels farther "
    "away and the pixel's position.",
)
@click.option(
    "--hidden", type=click.IntRange(1), help="Number of hidden units.  [default: 32; 128 in a full model]"
)
@click.option("--method", help="The method, such as 'ef21sgdm(C=topk(k=0.05), gamma=1, eta=0.1, batch=512)'.")
@click.option(
    "--stages",
    type=Stages(),
    help="Step sizes, each with its rounds, such as 1:5000,0.3:3000: they replace the method's.",
)
@click.option("--workers", type=click.IntRange(1), default=4, help="Number of workers.")
@click.option("--seed", type=click.IntRange(0), default=0, help="Seed of x0 and of all random draws.")
@with_options([*resume_options, checkpoint_option])
@ranks_option
def train(
    data: str,
    out: Path,
    kind: str,
    hidden: int | None,
    method: str | None,
    stages: tuple[tuple[float, int], ...] | None,
    workers: int,
    seed: int,
    resume: str | None,
    checkpoint_every: int | None,
    ranks: int | None,
) -> int:
    """Train a model of the images DATA and write it to OUT/model.npz.

    DATA is the name of a data set, an IDX file, or a folder of PNG files of one shape, as in ./FOLDER or
    local_images(data=..).  The default method is EF21-SGDM: it sends 1 % of the entries (5 % for a full
    model), and its step size is lowered twice.
    """
    from mpicomp.images.training import RECIPES
    from mpicomp.images.training import train as trained
    from mpicomp.text.config import parse_method

    problem = KINDS[kind](data, seed=seed)
    problem = problem if hidden is None else replace(problem, hidden=hidden)
    chosen = None if method is None else parse_method(method)
    if elsewhere(ranks):
        return relaunch(ranks)
    with bar(sum(rounds for _, rounds in stages or RECIPES[kind][1]), watched()) as progress:
        done = trained(
            problem,
            chosen,
            stages,
            workers=workers,
            seed=seed,
            out=out,
            resume=RESUME[resume],
            checkpoint_every=checkpoint_every,
            progress=progress,
        )
    if launched_rank() == 0 and done.interrupted:
        click.echo(f"mpicomp: interrupted. --resume continues, with what {out} holds.", err=True)
    elif launched_rank() == 0:
        click.echo(
            f"{out / 'model.npz'}: {done.model.x.size} parameters, {done.value / log(2):.3f} bits a pixel on "
            f"training pixels; {human_bytes(done.up_bytes)} up and {human_bytes(done.down_bytes)} down"
        )
    return INTERRUPTED if done.interrupted else 0


@images.command()
@click.argument("source", metavar="IMAGES")
@click.argument("archive", type=click.Path(path_type=Path))
@click.option(
    "--model", type=Place(), required=True, help="A model of `images train --kind local`: its file or folder."
)
def compress(source: str, archive: Path, model: Path) -> None:
    """Compress IMAGES into the file ARCHIVE, without loss.

    IMAGES are the name of a data set, an IDX file, an array in a .npy file, a PNG file, or a folder of PNG
    files.
    """
    from mpicomp.images import ImageModel, read_images
    from mpicomp.images import compress as compressed

    _refuse_output(archive)
    stacks = read_images(source)
    content, sizes = compressed(stacks, ImageModel.load(model).integers())
    write_atomically(archive, content, new=True)
    count, pixels = sum(len(s.pixels) for s in stacks), sum(s.pixels.size for s in stacks)
    click.echo(
        f"{archive}: {count} images, {pixels} bytes of pixels in {len(content)}, "
        f"{8 * len(content) / pixels:.3f} bits each; {sizes.images} bytes of images, {sizes.model} of "
        f"the model, {sizes.rest} of all else"
    )


@images.command()
@click.argument("archive", type=click.Path(path_type=Path))
@click.argument("out", type=Place())
@click.option(
    "--max-pixels",
    type=click.IntRange(1),
    help="Refuse an archive that costs more to decode than this many pixels of usual images.  [default: 64 "
    "for each byte of the archive, or 1024 for each byte up to 2^28 in all]",
)
def decompress(archive: Path, out: Path, max_pixels: int | None) -> None:
    """Write the images of ARCHIVE to OUT.

    OUT is a file *.idx, *-ubyte, *.npy or *.png, or a folder of PNG files.
    """
    from mpicomp.images import decompress as decompressed
    from mpicomp.images import write_images
    from mpicomp.images.files import read_archive

    written = write_images(decompressed(read_archive(archive), max_pixels), out)
    click.echo(f"{out}: {len(written)} {'file' if len(written) == 1 else 'files'}")


@images.command()
@click.argument("inside", metavar="IMAGES")
@click.argument("outside", metavar="OTHERS")
@click.option(
    "--local", type=Place(), required=True, help="A model of `images train --kind local`: its file or folder."
)
@click.option("--full", type=Place(), required=True, help="A full model of the same images, or its folder.")
@click.option(
    "--training", help="The training images: also score by a Gaussian on 7 x 7 blocks, as a baseline."
)
@click.option("--out", type=Place(), help="A CSV file for the scores of all images.")
def score(inside: str, outside: str, local: Path, full: Path, training: str | None, out: Path | None) -> None:
    """Score IMAGES and OTHERS, and print the AUROC.

    It measures how well two models tell IMAGES, which are like the training images, from OTHERS.  An image's
    score is log p of the full model minus log p of the local one.  The AUROC is the probability that one of
    IMAGES has a higher score than one of OTHERS: 0.5 is chance.
    """
    from mpicomp.images import ImageModel, scores

    if out is not None:
        _refuse_output(out)
    models = ImageModel.load(local), ImageModel.load(full)
    for model, kind in zip(models, ("local", "full"), strict=True):
        if model.kind != kind:
            raise ConfigError(f"--{kind} is a {model.kind} model; allowed: of `images train --kind {kind}`.")
    found = scores(*models, inside, outside, training)
    for one in found:
        click.echo(f"{one.name:>16}  AUROC {one.auroc:.4f}")
    if out is not None:
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")  # a path may have a comma
        writer.writerow(["images", "number", *(one.name for one in found)])
        for name, values in ((inside, [s.inside for s in found]), (outside, [s.outside for s in found])):
            rows = zip(*(v.tolist() for v in values), strict=True)
            writer.writerows([name, i, *map(repr, row)] for i, row in enumerate(rows))
        write_text(out, table.getvalue(), new=True)
