"""A user's own files: the same content as arrays gives the same problem; each refusal with its remedy."""

from __future__ import annotations

import gzip
import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy

import mpicomp
from mpicomp.base.errors import ConfigError, DataError
from mpicomp.data import ClassRows, load_dataset, load_images
from mpicomp.data.cache import set_folder
from mpicomp.data.files import DataFile
from mpicomp.data.npy import read_npy
from mpicomp.lab.experiment.suite_file import parse_suite
from mpicomp.methods import GD
from mpicomp.problems import MLP, Autoencoder, LeastSquares, Logistic, NonconvexGLM, Softmax
from mpicomp.text.config import parse_problem, to_text
from tests.support.launching import mpirun

rng = np.random.default_rng(3)
X = np.where(rng.random((30, 4)) < 0.4, 0.0, rng.normal(size=(30, 4)))
X[0] = 1  # no column is without a value
TWO = rng.permutation(np.repeat([0, 1], 15))
THREE = rng.permutation(np.repeat([2, 5, 10], 10))
REAL = rng.normal(size=30)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MPICOMP_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def write(form, y):
    """The file of X and y in the form ``form``, as the text that names it."""
    match form:
        case "libsvm":
            with open("file", "w") as file:  # ``dump_svmlight_file`` rounds to 16 digits
                for t, row in zip(y.tolist(), X.tolist(), strict=True):
                    file.write(" ".join([repr(t), *(f"{k}:{v!r}" for k, v in enumerate(row, 1) if v)]) + "\n")
            return "./file"
        case "npz":
            np.savez("file.npz", X=X, y=y)
            return "file.npz"
        case "sparse":
            S = scipy.sparse.csr_array(X)
            arrays = {"data": S.data, "indices": S.indices, "indptr": S.indptr}
            np.savez("file.npz", **arrays, shape=S.shape, format="csr", y=y)
            return "file.npz"
    lines = ["a,the label,b,c,d"]
    lines += [f"{a!r},{t},{b!r},{c!r},{d!r}" for (a, b, c, d), t in zip(X.tolist(), y.tolist(), strict=True)]
    with open("file.csv", "w") as file:
        file.write("\n".join(lines))
    return "file.csv:the label"


FORMS = ["libsvm", "npz", "sparse", "csv"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cls", [Logistic, NonconvexGLM, Softmax])
def test_a_file_is_the_problem_of_the_same_arrays(form, cls):
    y = THREE if cls is Softmax else TWO
    file, arrays = cls(data=write(form, y), lam=0.1), cls(data=(X, y), lam=0.1)
    assert file.fingerprint() == arrays.fingerprint() and file.constants(3) == arrays.constants(3)
    x = rng.normal(size=file.dimension())
    for i in range(3):
        assert np.array_equal(file.objective(i, 3).grad(x), arrays.objective(i, 3).grad(x))
    assert parse_problem(to_text(file)) == file


@pytest.mark.parametrize("form", FORMS)
def test_classes_are_the_sorted_labels_and_are_memory_mapped(form):
    rows = load_images(write(form, THREE))
    assert rows.labels.tolist() == [{2: 0, 5: 1, 10: 2}[c] for c in THREE.tolist()] and rows.classes == 3
    assert isinstance(rows.X, np.memmap) and not rows.X.flags.writeable
    assert np.array_equal(rows.X, X)
    assert MLP(rows_name := write(form, THREE), hidden=2).dimension() == 2 * 5 + 3 * 3, rows_name


@pytest.mark.parametrize("form", FORMS)
def test_least_squares_takes_real_targets(form):
    file, arrays = LeastSquares(write(form, REAL), lam=0.1), LeastSquares((X, REAL), lam=0.1)
    assert np.array_equal(file.dataset().y, REAL) and file.fingerprint() == arrays.fingerprint()
    assert file.constants(3) == arrays.constants(3)
    x = rng.normal(size=4)
    assert file.objective(1, 3).value(x) == arrays.objective(1, 3).value(x)


@pytest.mark.parametrize("form", ["npz", "csv"])
def test_one_file_is_real_for_least_squares_and_two_classes_for_logistic(form):
    name = write(form, TWO)
    assert set(LeastSquares(name, lam=0.1).dataset().y) == {0, 1}
    assert set(Logistic(name, lam=0.1).dataset().y) == {-1, 1}


def test_least_squares_on_libsvm_keeps_minus_and_plus_one():
    assert set(LeastSquares(write("libsvm", TWO), lam=0.1).dataset().y) == {-1, 1}


def test_a_libsvm_file_with_stored_zeros_is_equal_to_one_without():
    for text in ("1 1:5 2:0 3:0\n0 2:1\n", "1 1:5\n0 2:1 3:-0.0\n"):
        Path("zeros").write_text(text)
        assert (
            Logistic("./zeros", lam=0.1).dataset() == Logistic(([[5, 0, 0], [0, 1, 0]], [1, 0]), lam=0.1).data
        )


def test_a_libsvm_file_that_least_squares_has_read_is_none_of_two_classes():
    """Both keep what they parse in the cache."""
    for y, taken in ((REAL, REAL), (THREE, THREE), (np.full(30, 7), np.full(30, 7))):
        name = write("libsvm", y)
        assert np.array_equal(LeastSquares(name, lam=0.1).dataset().y, taken)
        with pytest.raises(DataError, match=r"exactly two\. Keep two .* or least_squares for real targets"):
            Logistic(name, lam=0.1).dataset()


@pytest.mark.parametrize("cls", [Softmax, MLP])
def test_real_targets_are_no_classes(cls):
    """Each row was a class of its own."""
    said = f"y holds 30 different numbers in 30 rows, such as {REAL.min():g}: .* Take least_squares"
    for data in ((X, REAL), (X, REAL.tolist()), *(write(form, REAL) for form in FORMS)):
        with pytest.raises(DataError, match=said):
            cls(data).dimension()
    halves = np.arange(30) // 2 / 2  # as of stars
    for classes, y in ((15, halves), (30, np.arange(30.0)), (30, np.arange(30)), (30, list(map(str, REAL)))):
        assert cls((X, y)).images().classes == classes


@pytest.mark.parametrize("form", FORMS)
def test_the_autoencoder_takes_rows_without_their_labels(form):
    file, matrix = Autoencoder(write(form, REAL), r=2), Autoencoder(X, r=2)
    assert file.fingerprint() == matrix.fingerprint() == Autoencoder((X, TWO), r=2).fingerprint()
    x, f = file.x0(), file.objective(0, 3)
    D, E = x[:8].reshape(4, 2), x[8:].reshape(2, 4)
    assert f.value(x) == pytest.approx(np.mean(np.sum((f.A @ E.T @ D.T - f.A) ** 2, axis=1)))
    assert f.grad(x).tobytes() == matrix.objective(0, 3).grad(x).tobytes()


def test_the_autoencoder_needs_no_labels_at_all():
    np.savez("x.npz", X=X)
    np.savetxt("x.csv", X, delimiter=",", header="a,b,c,d", comments="", fmt="%.17g")
    same = {Autoencoder(name, r=2).fingerprint() for name in ("x.npz", "x.csv")}
    assert same == {Autoencoder(X, r=2).fingerprint()}


def test_texts_as_labels_a_byte_order_mark_quotes_and_gzip():
    content = '\ufeff"a, b",kind\n1,owl\n\n2.5,"cat, large"\n-3,owl\n'
    with gzip.open("file.csv.gz", "wt", encoding="utf-8") as file:
        file.write(content)
    rows = load_images("file.csv.gz:kind")
    assert rows.X.tolist() == [[1], [2.5], [-3]] and rows.labels.tolist() == [1, 0, 1]
    assert Logistic("file.csv.gz:kind", lam=0.1).dataset().y.tolist() == [1, -1, 1]


def test_each_column_and_each_state_of_a_file_has_its_own_content():
    def data(column):
        return load_images(f"file.csv:{column}").X.tolist()

    with open("file.csv", "w") as file:
        file.write("a,b\n1,3\n2,4\n")
    assert (data("a"), data("b")) == ([[3], [4]], [[1], [2]])
    assert len(list(set_folder("x").parent.iterdir())) == 2
    with open("file.csv", "w") as file:
        file.write("a,b\n1,3\n2,44\n")
    assert data("a") == [[3], [44]]


def test_texts_and_toml_name_files_and_splits():
    file = write("csv", TWO).replace("the label", "y")
    problem = parse_problem(f"logistic(data=./{file}, lam=0.1, split=dirichlet(0.1))")
    assert (problem.data, problem.split) == (f"./{file}", "dirichlet(0.1)")
    for split in ("dirichlet(0.1)", "'dirichlet(0.1)'"):
        suite = parse_suite(
            f'problem = "softmax(data=my/file.npz, split={split})"\nworkers = 2\nrounds = 3\n'
            '[[method]]\nmethod = "gd(gamma=0.1)"\n'
        )
        assert suite.problem == Softmax("my/file.npz", split="dirichlet(0.1)")
        assert parse_problem(to_text(suite.problem)) == suite.problem


JOB = """
import numpy as np, mpicomp
from mpicomp.methods import MARINA
from mpicomp.compressors import RandK
from mpicomp.problems import Logistic, Softmax
rows = np.load("file.npz")
for data in ((rows["X"], rows["y"]), "file.csv:the label"):
    for split in ("shuffled", "dirichlet(0.3)"):
        for problem in (Logistic(data, lam=0.1, split=split), Softmax(data, split=split)):
            method = MARINA(RandK(k=2), gamma=0.1, p=0.5)
            done = mpicomp.run(method, problem, workers=5, rounds=6)
            if done.iterates_sha256:
                print(done.iterates_sha256)
"""


def test_two_ranks_and_one_process_have_the_same_iterates(tmp_path):
    write("npz", TWO), write("csv", TWO)
    (tmp_path / "job.py").write_text(JOB)
    shown = []
    for ranks in (1, 2):
        done = mpirun(ranks, "job.py")
        assert done.returncode == 0, done.stderr
        shown.append(list(dict.fromkeys(done.stdout.split())))
    assert shown[0] == shown[1] and len(shown[0]) == 4  # arrays and file have the same iterates too


@pytest.mark.parametrize("problem", [Logistic((X, TWO), lam=0.1, split=[0] * 5 + [1] * 25)])
def test_a_run_on_uneven_shards_descends(problem):
    done = mpicomp.run(GD(), problem, workers=2, rounds=20)
    assert done.rows[-1].f < np.log(2)


# Refusals

CSV = "a,b,label\n1,2,0\n3,4,1\n"


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        (CSV, "f.csv", r"f\.csv is given without the name of its column.*f\.csv:label"),
        (CSV, "f.csv:", r"f\.csv is given without the name of its column"),
        (CSV, "f.csv:labl", r"unknown column 'labl'.*Did you mean 'label'.*a, b, label"),
        (CSV.replace(",", ";"), "f.csv:label", "f.csv is separated by semicolons: write it with commas"),
        ("1,2,0\n3,4,1\n", "f.csv:0", "starts with the numbers 1, 2, 0.*Add a header line"),
        ("", "f.csv:label", "starts with no line of names"),
        ("label\n1\n", "f.csv:label", "no column of features"),
        ("a,label\n", "f.csv:label", "no line after its header"),
        ("a,a,label\n1,2,0\n", "f.csv:label", "two columns named 'a'"),
        (CSV + "5,6\n", "f.csv:label", "line 4: 2 fields, and the header names 3"),
        (CSV + "5,Oslo,1\n", "f.csv:label", r"line 4: column 'b' is not numeric.*'Oslo'.*get_dummies"),
        (CSV + "5,,1\n", "f.csv:label", r"line 4, column 'b': the value is missing.*fill"),
        (CSV + "NaN,6,1\n", "f.csv:label", r"line 4, column 'a': the value is missing, found 'NaN'"),
        (CSV + "5,6,\n", "f.csv:label", r"line 4, column 'label': the value is missing"),
        (CSV + "5,1e999,1\n", "f.csv:label", r"line 4, column 'b': 1e999; allowed: finite"),
        (CSV + "5,6,2\n", "f.csv:label", r"3 label classes \(0\.0, 1\.0, 2\.0\)"),
        (b"a,label\n\xff,1\n", "f.csv:label", "not UTF-8"),
        ("1 0:1 2:3\n-1 1:1\n", "./f", r"line 1: index 0.*Add 1 to every index.*zero_based=False"),
        (b"PK nothing", "f.npz", r"f\.npz is no \.npz file"),
        (CSV, "f.csv:a:b", "unknown column 'a:b'"),
    ],
)
def test_an_unusable_text_is_refused(tmp_path, content, name, said):
    file = tmp_path / name.split(":")[0]
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=said):
        Logistic(name, lam=0.1).dimension()


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"X": X}, r"f\.npz holds the arrays X; expected X and y\. numpy\.savez"),
        ({"x": X, "y": TWO}, "holds the arrays x, y; expected X and y"),
        ({"X": X, "y": TWO.astype(object)}, r"array y of f\.npz holds Python objects.*astype\(str\)"),
        ({"X": X.astype(object), "y": TWO}, "array X of f.npz holds Python objects"),
        ({"X": X, "y": TWO[1:]}, r"f\.npz: y has the shape \(29,\) and X has 30 rows"),
        ({"X": X * np.nan, "y": TWO}, r"f\.npz: X\[0, 0\] is nan"),
        ({"X": X, "y": THREE}, r"f\.npz: f\.npz has 3 label classes"),
        (
            {"data": [1.0], "indices": [7], "indptr": [0, 1], "shape": [1, 2], "format": "csr", "y": [0]},
            r"f\.npz: X, a sparse matrix, is damaged: .* must be < 2",
        ),
        (
            {"data": [1.0], "row": [0], "col": [1], "shape": [1, 2], "format": "coo"},
            r"f\.npz holds a sparse matrix by .*; allowed: CSR, CSC or BSR\. scipy\.sparse\.save_npz",
        ),
    ],
)
def test_an_unusable_npz_is_refused(arrays, said):
    np.savez("f.npz", **arrays)
    with pytest.raises(DataError, match=said):
        Logistic("f.npz", lam=0.1).dimension()


def archive(member, flags=0, method=0, name="X.npy"):
    """A ZIP archive of ``name`` and y.npy, with other flags and another method of compression written in."""
    written = io.BytesIO()
    np.savez(written, y=TWO)
    with zipfile.ZipFile(written, "a") as file:
        file.writestr(name, member)
    content = bytearray(written.getvalue())
    local, central = content.rindex(b"PK\3\4"), content.rindex(b"PK\1\2")
    for place in (local + 6, central + 8):
        content[place : place + 4] = flags.to_bytes(2, "little") + method.to_bytes(2, "little")
    return bytes(content)


def npy(descr, shape, content=b""):
    """A .npy file with that header and content, whatever they promise each other."""
    head = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}}}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\0" + len(head).to_bytes(2, "little") + head + content


def test_damaged_and_hostile_archives_are_refused_in_one_line():
    right = npy("<f8", (30, 4), X.tobytes())
    np.savez("sparse.npz", y=TWO, data=[1.0], indices=[0], indptr=[0, 1], shape=3, format=7)
    rows = {"data": [1.0], "indices": [0], "indptr": [0, 1], "shape": [10**12, 1], "format": "csc"}
    np.savez("rows.npz", y=TWO, **rows)
    cases = {
        "encrypted": archive(right, flags=1),
        "an unknown method": archive(right, method=97),
        "a method of zipfile's, damaged": archive(right, method=12),
        "more than memory": archive(npy("<f8", (10**15,))),
        "more than 64 bits": archive(npy("<f8", (10**30, 10**30))),
        "a negative axis": archive(npy("<f8", (-4, 30))),
        "no shape": archive(npy("<f8", "x")),
        "no type": archive(npy({"a": 1}, (30, 4))),
        "no bytes": archive(npy("|V0", (10**12,))),
        "nested brackets": archive(npy("<f8", (30, 4)).replace(b"{'descr'", b"(" * 8)),
        "an array that is none": archive(b"X"),
        "sparse": Path("sparse.npz").read_bytes(),
        "sparse with far too many rows": Path("rows.npz").read_bytes(),
        "no columns": archive(npy("<f8", (10**12, 0))),
        "a number": archive(npy("<f8", (), bytes(8))),
        "cut": archive(right)[:-30],
        "two lengths of a name": archive(right).replace(b"\x05\0\x14\0y.npy", b"\xff\0\x14\0y.npy", 1),
    }
    wrong = {}
    for name, content in cases.items():
        Path("f.npz").write_bytes(content)
        for labelled in (True, False):
            with pytest.raises(DataError) as caught:
                ClassRows.of(DataFile.of("f.npz").read(labelled))
            if "\n" in str(caught.value) or len(str(caught.value)) > 300:
                wrong[name, labelled] = str(caught.value)
    assert not wrong
    Path("f.npz").write_bytes(archive(right))
    assert np.array_equal(DataFile.of("f.npz").read()[0], X)


def test_a_single_array_that_is_none_is_refused():
    wrong = {}
    for content, said in {
        npy("|V0", (10**12,)): r"type |V0; allowed: numbers",
        npy("<U1", (1,), b"a\0\0\0"): "type <U1; allowed: numbers",
        npy("<f8", (10**15,)): "cannot read f.npy: ",
        npy("<f8", "x"): "cannot read f.npy: ",
        npy("<f8", (30, 4)).replace(b"{'descr'", b"(" * 8): "cannot read f.npy: ",
        b"\x93NUMPY": "cannot read f.npy: ",
        b"": "cannot read f.npy: ",
    }.items():
        Path("f.npy").write_bytes(content)
        with pytest.raises(DataError) as caught:
            read_npy(Path("f.npy"))
        if said not in str(caught.value) or "\n" in str(caught.value):
            wrong[content] = str(caught.value)
    assert not wrong


@pytest.mark.parametrize("put", [os.mkfifo, lambda path: os.symlink("/dev/zero", path), os.mkdir])
def test_a_pipe_a_device_and_a_folder_are_no_data(put):
    """Reading a pipe waits for ever, and a device such as /dev/zero has no end."""
    for name in ("./a", "a.npz", "a.csv:label", "a.tsv"):
        put(path := name.partition(":")[0])
        for cls in (Logistic, Softmax):
            with pytest.raises(DataError, match=rf"^{Path(path)} is a folder, a pipe or a device"):
                cls(name, lam=0.1).dimension()
    put("a.npy")
    with pytest.raises(DataError, match=r"^a\.npy is a folder, a pipe or a device"):
        read_npy(Path("a.npy"))


@pytest.mark.parametrize("problem", [Logistic("my.csv:label", lam=0.1), Softmax("my.csv:label")])
def test_a_missing_csv_file_is_named_without_its_column(problem):
    with pytest.raises(DataError, match=r"no such file: my\.csv$"):
        problem.dimension()


@pytest.mark.parametrize("cls", [Softmax, MLP, Autoencoder])
def test_a_missing_file_and_an_unknown_name_are_refused(cls):
    with pytest.raises(DataError, match=r"no such file: my/file\.npz"):
        cls("my/file.npz").dimension()
    with pytest.raises(
        ConfigError, match=r"unknown set of images 'digit'.*'digits'.*own is given by its path"
    ):
        cls("digit").dimension()


@pytest.mark.parametrize("cls", [Softmax, MLP])
def test_labels_of_one_class_are_refused(cls):
    """Else the loss of every model is 0, and the run ends as if it had reached any target."""
    with pytest.raises(DataError, match="the given data has one label class; allowed: two or more"):
        cls((X, np.ones(len(X)))).dimension()


def test_least_squares_refuses_texts_as_targets():
    np.savez("f.npz", X=X, y=TWO.astype(str))
    with pytest.raises(DataError, match=r"f\.npz: y is of type <U.*needs numbers"):
        LeastSquares("f.npz", lam=0.1).dimension()


def test_an_npz_of_another_kind_or_compressed_once_more():
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n"
    with open("p.npz", "wb") as file:
        file.write(pointer)
    with pytest.raises(DataError, match=r"p\.npz is a Git LFS pointer.*git lfs pull"):
        Logistic("p.npz", lam=0.1).dimension()
    np.save("single.npy", X)
    os.rename("single.npy", "single.npz")
    with pytest.raises(DataError, match=r"single\.npz is a single array of numpy's"):
        Logistic("single.npz", lam=0.1).dimension()
    name = write("sparse", TWO)
    plain = Logistic(name, lam=0.1).fingerprint()
    with open(name, "rb") as file:
        content = gzip.compress(file.read())
    with open("again.npz", "wb") as file:
        file.write(content)
    assert Logistic("again.npz", lam=0.1).fingerprint() == plain


@pytest.mark.parametrize("form", FORMS)
def test_a_file_name_that_is_not_utf_8(form, tmp_path):
    """In Python, in a text, in a record and in a comparison's folder."""
    name = write(form, TWO)
    path, colon, column = name.partition(":")
    odd = os.fsdecode(b"caf\xe9-") + os.path.basename(path)
    os.rename(path, odd)
    problem = Logistic(f"./{odd}{colon}{column}", lam=0.1)
    assert problem.fingerprint() == Logistic((X, TWO), lam=0.1).fingerprint()
    assert parse_problem(to_text(problem)) == problem == parse_problem(repr(problem))
    assert parse_problem(f"logistic(data='{problem.data}', lam=0.1)") == problem  # as on a command line
    done = mpicomp.run(GD(), problem, workers=2, rounds=2, out=tmp_path / "run")
    assert mpicomp.load(tmp_path / "run").rows == done.rows
    kept = mpicomp.compare([GD()], problem, workers=2, rounds=2, out=tmp_path / "compared")
    assert mpicomp.load(tmp_path / "compared").suite.problem == kept.suite.problem == problem
    with pytest.raises(DataError, match="no such file: "):
        Logistic(f"./{odd}.npz", lam=0.1).dimension()


def test_a_file_that_an_older_reader_cached_is_parsed_again():
    """Older readers took row numbers for a feature, and 007 for 7: their cached sets are not read."""
    with open("f.csv", "w") as file:
        file.write("a,label\n1,0\n2,1\n")
    rows = load_images("f.csv:label")
    (entry,) = set_folder("x").parent.iterdir()
    assert entry.name.startswith("file8-") and rows.X.tolist() == [[1], [2]]


@pytest.mark.parametrize("form", FORMS)
def test_a_path_is_data_as_its_text_is(form):
    name = write(form, TWO)
    assert Logistic(Path(name), lam=0.1).fingerprint() == Logistic((X, TWO), lam=0.1).fingerprint()
    assert parse_problem(to_text(Softmax(Path(name)))).fingerprint() == Softmax((X, TWO)).fingerprint()
    assert Autoencoder(Path(name), r=1).data == os.path.join(
        os.path.dirname(name) or ".", os.path.basename(name)
    )


def test_a_path_is_never_the_name_of_a_known_set():
    with pytest.raises(DataError, match=r"no such file: digits$"):
        Logistic(Path("digits"), lam=0.1).dimension()
    os.rename(write("libsvm", TWO), "digits")
    assert Logistic(Path("digits"), lam=0.1).fingerprint() == Logistic((X, TWO), lam=0.1).fingerprint()


def test_a_name_that_no_file_can_have_is_no_file():
    for name in ("a\0b", "\udc80\ud800"):
        with pytest.raises(ConfigError, match="unknown set of images"):
            load_images(name)
        with pytest.raises(ConfigError, match="unknown data set"):
            load_dataset(name)
