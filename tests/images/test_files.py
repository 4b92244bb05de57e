"""Images from files and back, models in files, and the commands."""

from __future__ import annotations

import csv
import io
import json
import os
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from mpicomp.base.errors import ConfigError, DataError, RecordError
from mpicomp.images import ImageModel, Stack, read_images, write_images
from mpicomp.images.archive import MAGIC
from mpicomp.images.files import read_archive
from mpicomp.images.full_images import FullImages
from mpicomp.images.grey import load_grey
from mpicomp.images.local_images import LocalImages
from mpicomp.lab.cli.root import cli
from tests.images.test_archive import ARCHIVE, COLOUR, GREY, same
from tests.support.launching import mpicomp
from tests.support.running import largest_file


def test_what_was_written_is_read(tmp_path):
    write_images([COLOUR], tmp_path / "png")
    found = read_images(str(tmp_path / "png"))
    order = np.argsort(COLOUR.names)
    assert found[0].names == ("a.png", "b.png") and np.array_equal(found[0].pixels, COLOUR.pixels[order])
    for name in ("some.idx", "t-images-idx3-ubyte", "some.npy"):
        assert write_images([GREY], tmp_path / name) == [tmp_path / name]
        assert same(read_images(str(tmp_path / name))[0], GREY)
    head = (tmp_path / "some.idx").read_bytes()[:16]
    assert head == bytes([0, 0, 8, 3]) + struct.pack(">3I", *GREY.pixels.shape)
    write_images([COLOUR], tmp_path / "colour.npy")
    assert np.array_equal(read_images(str(tmp_path / "colour.npy"))[0].pixels, COLOUR.pixels)


def test_a_path_may_be_a_path_or_a_text(tmp_path):
    """A path of an IDX file raised a TypeError, a text as output an AttributeError."""
    for name in ("some.idx", "some.npy", "folder"):
        assert write_images([GREY], str(tmp_path / name))[0].is_relative_to(tmp_path / name)
        assert np.array_equal(read_images(tmp_path / name)[0].pixels, GREY.pixels)


def test_a_folder_has_a_stack_for_each_shape(tmp_path):
    written = write_images([GREY, COLOUR], tmp_path)
    assert sorted(p.name for p in written) == ["000000.png", "000001.png", "000002.png", "a.png", "b.png"]
    grey, colour = read_images(str(tmp_path))
    assert np.array_equal(grey.pixels, GREY.pixels) and colour.names == ("a.png", "b.png")
    assert read_images(str(tmp_path / "b.png"))[0].names == ("b.png",)


def test_nothing_is_overwritten(tmp_path):
    for name in ("some.idx", "folder"):
        write_images([GREY], tmp_path / name)
        with pytest.raises(RecordError, match="already there"):
            write_images([GREY], tmp_path / name)


def test_a_full_disk_leaves_no_part_of_an_image(tmp_path):
    """A PNG file of some bytes was left behind, and was in the way of the next attempt."""
    noise = np.random.default_rng(0).integers(0, 256, (1, 60, 60), dtype=np.uint8)
    for out in (tmp_path / "one.png", tmp_path / "folder"):
        with largest_file(1000), pytest.raises(RecordError, match=r"cannot write .*\.png: File too large"):
            write_images([Stack(noise)], out)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_an_image_is_not_written_through_a_link_that_leads_nowhere(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.png").symlink_to(tmp_path / "elsewhere.png")
    with pytest.raises(RecordError, match=r"a\.png is already there"):
        write_images([COLOUR], tmp_path / "folder")
    assert not (tmp_path / "elsewhere.png").exists()


def test_images_that_do_not_fit_a_file_are_refused(tmp_path):
    for stacks in ([GREY, COLOUR], [COLOUR], []):
        with pytest.raises(ConfigError, match="Name a folder"):
            write_images(stacks, tmp_path / "some.idx")


def test_a_folder_with_a_file_that_cannot_be_read_is_refused(tmp_path):
    write_images([GREY], tmp_path)
    for content in (b"no image", (tmp_path / "000001.png").read_bytes()[:-20]):
        (tmp_path / "text.png").write_bytes(content)
        for read in (read_images, load_grey):
            with pytest.raises(DataError, match=r"text\.png is (no PNG file|cut off)"):
                read(str(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no PNG file"):
        read_images(str(tmp_path / "empty"))


def test_an_npy_file_is_one_whole_array(tmp_path):
    """No byte is left over, none is missing, and none is taken on the header's word."""
    path, buffer, archive = tmp_path / "some.npy", io.BytesIO(), io.BytesIO()
    np.save(buffer, np.asfortranarray(GREY.pixels))
    np.savez(archive, GREY.pixels)
    whole = buffer.getvalue()
    path.write_bytes(whole)
    assert same(read_images(str(path))[0], GREY)
    assert np.array_equal(load_grey(str(path)).pixels, GREY.pixels)
    objects = io.BytesIO()
    np.save(objects, np.array([Path], dtype=object), allow_pickle=True)
    shape = b"(3, 5, 7), }"
    for content, text in [
        (whole * 2, f"holds {len(whole)} bytes after its array; allowed: one array a file"),
        (whole[:-1], "cannot read .*mmap length is greater than file size"),
        (whole[:9], "cannot read .*EOF"),
        (b"", "cannot read .*empty|cannot read .*EOF"),
        (whole.replace(shape, b"(3,5,%6d)}" % 10**6), "cannot read .*mmap length"),
        (whole.replace(shape, b"(8**9,8**9)}"), "cannot read"),
        (whole.replace(shape, b"(4<<40,4,1)}"), "cannot read"),
        (whole.replace(shape, b"(%d,)}" % 10**8), "cannot read"),
        (archive.getvalue(), "cannot read .*magic"),
        (objects.getvalue(), r"cannot read .*Python objects in dtype\.$"),
    ]:
        path.write_bytes(content)
        for read in (read_images, load_grey):
            with pytest.raises(DataError, match=text):
                read(str(path))


def test_names_of_files_are_not_made_folders(tmp_path):
    """A name ends like a file that is written, or like no file."""
    one = Stack(COLOUR.pixels[:1], ("a.png",))
    assert write_images([one], tmp_path / "back.PNG") == [tmp_path / "back.PNG"]
    assert np.array_equal(read_images(str(tmp_path / "back.PNG"))[0].pixels, one.pixels)
    assert write_images([GREY], tmp_path / "back.ubyte") == [tmp_path / "back.ubyte"]
    assert same(read_images(str(tmp_path / "back.ubyte"))[0], GREY)
    with pytest.raises(ConfigError, match=r"shape \(3, 5, 7\) do not fit into several\.png; .*one image"):
        write_images([GREY], tmp_path / "several.png")
    with pytest.raises(RecordError, match="already there"):
        write_images([one], tmp_path / "back.PNG")
    for name in ("back.jpg", "back.idx.gz", "back.npz", "x.mpi", "back.TIFF"):
        with pytest.raises(ConfigError, match=f"{name} is the name of no file that is written; allowed"):
            write_images([one], tmp_path / name)
        assert not (tmp_path / name).exists()
    assert write_images([one], tmp_path / "v1.2") == [tmp_path / "v1.2" / "a.png"]


def test_a_number_that_is_a_name_already_is_left_out(tmp_path):
    named = Stack(COLOUR.pixels, ("000001.png", "b.png"))
    written = [path.name for path in write_images([GREY, named], tmp_path)]
    assert written == ["000000.png", "000002.png", "000003.png", "000001.png", "b.png"]
    grey, colour = read_images(str(tmp_path))
    assert np.array_equal(grey.pixels, GREY.pixels) and np.array_equal(colour.pixels, COLOUR.pixels)


def test_a_folder_of_png_files_trains(tmp_path):
    write_images([COLOUR], tmp_path)
    images = load_grey(str(tmp_path))
    assert images.pixels.shape == (6, 6, 4)
    assert LocalImages(str(tmp_path), hidden=2).fingerprint() == images.sha256
    Image.new("L", (3, 2)).save(tmp_path / "other.png")
    with pytest.raises(DataError, match=r"other.png has 2 x 3 pixels, .* 6 x 4; allowed: one shape"):
        load_grey(str(tmp_path))


def test_a_model_is_what_its_file_holds(tmp_path):
    for problem in (LocalImages(GREY.pixels, hidden=3), FullImages(GREY.pixels, horizon=2, hidden=3)):
        model = ImageModel.of(problem, problem.x0())
        model.save(tmp_path / "model.npz")
        for place in (tmp_path, tmp_path / "model.npz"):
            found = ImageModel.load(place)
            assert (found.kind, found.settings, found.shape) == (model.kind, model.settings, model.shape)
            assert np.array_equal(found.x, model.x)
        assert np.array_equal(found.log_likelihoods(GREY.pixels), problem.log_likelihoods(problem.x0()))
    with pytest.raises(ConfigError, match="a full model cannot compress"):
        found.integers()


def test_a_full_model_takes_images_of_its_training_s_shape_alone(tmp_path):
    """Of 6 x 10 pixels it has as many inputs as of 8 x 8, and their scores meant nothing."""
    problem = FullImages(np.zeros((2, 8, 8), np.uint8), horizon=2, hidden=3)
    ImageModel.of(problem, problem.x0()).save(tmp_path / "model.npz")
    model = ImageModel.load(tmp_path)
    assert model.log_likelihoods(np.ones((3, 8, 8), np.uint8)).shape == (3,)
    for height, width in ((6, 10), (1, 1)):
        said = f"^images of {height} x {width} pixels; allowed: 8 x 8, as those on which the full model was"
        with pytest.raises(ConfigError, match=said):
            model.log_likelihoods(np.ones((3, height, width), np.uint8))
    replace(model, shape=None).save(tmp_path / "model.npz")
    with pytest.raises(DataError, match="a full model of images of shape None"):
        ImageModel.load(tmp_path)


def test_only_an_archive_is_read_to_its_end(tmp_path):
    (path := tmp_path / "a").write_bytes(ARCHIVE)
    assert read_archive(path) == ARCHIVE
    with path.open("wb") as file:
        file.truncate(2**40)  # more than the memory holds
    assert read_archive(path) == bytes(len(MAGIC))
    for put in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir):
        path.rmdir() if path.is_dir() else path.unlink()
        put(path)
        with pytest.raises(DataError, match=f"^{path} is a folder, a pipe or a device; allowed: a file"):
            read_archive(path)


def test_what_holds_no_model_is_refused(tmp_path):
    with pytest.raises(DataError, match="cannot read the model"):
        ImageModel.load(tmp_path)
    path = tmp_path / "model.npz"
    path.symlink_to("/dev/null")
    for place in (tmp_path, path):
        with pytest.raises(DataError, match=r"model\.npz is a folder, a pipe or a device"):
            ImageModel.load(place)
    path.unlink()
    problem = LocalImages(GREY.pixels, hidden=3)
    ImageModel("local", {"horizon": 3, "hidden": 4, "blocks": 1}, problem.x0()).save(path)
    for use in (lambda model: model.integers(), lambda model: model.log_likelihoods(GREY.pixels)):
        with pytest.raises(ConfigError, match=r"parameters|x has shape"):
            use(ImageModel.load(path))
    ImageModel("local", {"horizon": 3, "hidden": 0, "blocks": 1}, problem.x0()).save(path)
    with pytest.raises(DataError, match="no model of images"):
        ImageModel.load(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match="no model of images"):
        ImageModel.load(path)
    np.savez(path, x=np.ones(3))
    with pytest.raises(DataError, match="no model of images"):
        ImageModel.load(path)


def test_a_model_of_others_names_no_data_and_costs_no_more_than_its_size(tmp_path):
    """A model that named data was scored on these, in place of the images that were given."""
    path, x = tmp_path / "model.npz", LocalImages(GREY.pixels, hidden=3).x0()
    settings = {"kind": "local", "horizon": 3, "hidden": 3, "blocks": 1}
    np.savez(path, x=x, model=json.dumps(settings))
    assert np.array_equal(ImageModel.load(path).x, x)
    for other, entries in (
        ({"data": "digits"}, x), ({"seed": 1}, x), ({"blocks": 10**9}, x),
        ({}, x.astype(str)), ({}, x + 1j), ({}, x * np.nan), ({}, np.zeros(10**6)),
    ):  # fmt: skip
        np.savez_compressed(path, x=entries, model=json.dumps(settings | other))
        with pytest.raises(DataError, match="holds no model of images"):
            ImageModel.load(path)


def test_the_commands_train_compress_decompress_and_score(tmp_path):
    def command(*arguments: str) -> str:
        done = mpicomp("images", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    method = "ef21sgdm(C=topk(k=0.05), gamma=9, eta=0.1, batch=32)"
    for kind in ("local", "full"):
        told = command(
            *(
                "train",
                "digits",
                "--kind",
                kind,
                "--hidden",
                "4",
                "--method",
                method,
                "--stages",
                "1:30,0.1:10",
            ),
            *("--out", str(tmp_path / kind)),
        )
        assert "bits a pixel" in told
    model, archive = str(tmp_path / "local"), str(tmp_path / "digits.mpi")
    told = command("compress", "digits", archive, "--model", model)
    assert "1797 images, 115008 bytes of pixels" in told
    command("decompress", archive, str(tmp_path / "digits.idx"))
    assert np.array_equal(load_grey(str(tmp_path / "digits.idx")).pixels, load_grey("digits").pixels)

    black = tmp_path / "black, of 8 x 8.idx"
    write_images([Stack(np.zeros((5, 8, 8), np.uint8))], black)
    told = command(
        *("score", "digits", str(black), "--local", model, "--full", str(tmp_path / "full")),
        *("--training", "digits", "--out", str(tmp_path / "scores.csv")),
    )
    assert [line.split("AUROC")[0].strip() for line in told.splitlines()] == [
        *("full - local", "full", "local", "pooled Gaussian")
    ]
    with open(tmp_path / "scores.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["images"] for row in rows] == ["digits"] * 1797 + [str(black)] * 5
    assert [row["number"] for row in rows[-5:]] == ["0", "1", "2", "3", "4"]
    assert all(None not in row and float(row["full - local"]) < 1e9 for row in rows)
    again = mpicomp("images", "compress", "digits", archive, "--model", model)
    assert again.returncode == 1 and "already there" in again.stderr
    with pytest.MonkeyPatch.context() as patch:  # as if another one had written the file since
        patch.setattr("mpicomp.lab.cli.images._refuse_output", lambda path: None)
        later = CliRunner().invoke(cli, ["images", "compress", "digits", archive, "--model", model])
    assert isinstance(later.exception, RecordError) and "already there" in str(later.exception)
    swapped = mpicomp(
        "images", "score", "digits", "digits", "--local", str(tmp_path / "full"), "--full", model
    )
    assert swapped.returncode == 1 and "--local is a full model" in swapped.stderr
    other = mpicomp("images", "decompress", str(black), str(tmp_path / "none"))
    assert other.returncode == 1 and "an archive starts with" in other.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("compress", "digits", "{out}", "--model", "none"),
        ("score", "digits", "digits", "--local", "none", "--full", "none", "--out", "{out}"),
    ],
    ids=lambda words: words[0],
)
def test_an_output_that_cannot_be_written_is_refused_before_the_work(words, tmp_path):
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(cli, ["images", *(w.format(out=tmp_path / "file" / "a") for w in words)])
    assert isinstance(done.exception, RecordError) and "cannot write" in str(done.exception)
