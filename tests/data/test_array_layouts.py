"""Layouts of a user's arrays: exact values in both kinds of data set, or one clear line; masks nowhere."""

from array import array
from collections import deque
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import scipy

from mpicomp.base.errors import DataError
from mpicomp.data import ClassRows
from mpicomp.data.own import own_dataset
from mpicomp.images.full_images import FullImages
from mpicomp.images.local_images import LocalImages
from mpicomp.problems import LeastSquares, NonconvexGLM, Softmax

A = np.array([[1.0, 0, 2], [0, 3, 0], [4, 0, 5], [0, 6, 0.5]])
Y = np.array([0, 1, 1, 0])
WIDE = np.zeros((8, 6))
WIDE[::2, ::2] = A
FIXED = A.copy()
FIXED.flags.writeable = False
FRAME = pd.DataFrame(A, columns=list("abc"))
BELOW = pd.concat([FRAME], axis=1, keys=["k"])
WHOLE = np.floor(A)
RECORDS = np.rec.fromarrays(A.T, names="a,b,c")
MASKED = np.ma.array(A, mask=A == 0.5)
HIDDEN = scipy.sparse.csr_array(A)
HIDDEN.data = np.ma.array(HIDDEN.data, mask=HIDDEN.data == 0.5)
OBJECTS = scipy.sparse.csr_array(A)
OBJECTS.data = OBJECTS.data.astype(object)


class Shown(np.ndarray):
    """An array with a mask, of a class that is none of numpy's masked arrays, as astropy's MaskedNDArray."""

    mask = A == 0.5


class Plain(np.ndarray):
    """An array whose class has masks, and which has none."""

    mask = None


class Columns:
    """A table whose columns are none of names, as pyarrow's."""

    columns = (pd.DataFrame({"a": [1], "b": [2]}),) * 2

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


class Speaks:
    """An object that numpy asks for its array, which has a mask."""

    def __array__(self, dtype=None, copy=None):
        return MASKED


def damaged(form, array, place, value):
    """A sparse matrix in the format ``form``, of which an entry of an array of indices is wrong."""
    S = getattr(scipy.sparse, f"{form}_array")(A)
    getattr(S, array)[place] = value
    return S


def numbered(name):
    """A DataFrame whose first column numbers the rows, under that name."""
    names = pd.Index([name, *"abc"], dtype=object)
    return pd.DataFrame(np.hstack([np.arange(4.0)[:, None], A]), columns=names)


OUT_OF_BOUNDS = [
    ("csr", "indices", 0, 50), ("csr", "indices", 0, -1), ("csr", "indptr", 1, 100),
    ("csr", "indptr", -1, 0), ("csr", "indptr", -1, 100), ("csc", "indices", 0, 50),
    ("csc", "indptr", 1, 100), ("bsr", "indices", 0, 50),
    ("coo", "row", 0, 50), ("coo", "col", 0, -1), ("lil", "rows", 0, [50, 51]),
]  # fmt: skip

# X, and its values where they are not those of A.
READ = {
    "rows": A,
    "columns": np.asfortranarray(A),
    "strides": WIDE[::2, ::2],
    "negative strides": A[::-1, ::-1].copy()[::-1, ::-1],
    "transposed": A.T.copy().T,
    "big-endian": A.astype(">f8"),
    "float32": A.astype(np.float32),
    "float16": A.astype(np.float16),
    "long double": A.astype(np.longdouble),
    "int8": (A.astype(np.int8), WHOLE),
    "uint64": (A.astype(">u8"), WHOLE),
    "bool": (A > 0, A > 0),
    "beyond 2^53": (np.where(A > 0, 2**60 + 1, 0), np.where(A > 0, 2.0**60, 0)),  # rounded, as numbers are
    "read-only": FIXED,
    "broadcast": (np.broadcast_to(A[0], (4, 3)), A[[0, 0, 0, 0]]),
    "matrix": A.view(np.matrix),
    "a mask that is None": A.view(Plain),
    "objects": A.astype(object),
    "objects of numpy": np.array([[np.float32(1), 0, np.int8(2)], *A[1:]], dtype=object),
    "lists": A.tolist(),
    "tuples": tuple(map(tuple, A.tolist())),
    "a list of arrays": list(A),
    "memoryview": memoryview(A),
    **{f: getattr(scipy.sparse, f"{f}_array")(A) for f in ("csr", "csc", "coo", "bsr", "lil", "dok", "dia")},
    "a sparse matrix": scipy.sparse.csr_matrix(A),
    "duplicates": (scipy.sparse.coo_array(([1.0, 2, 3], ([0, 0, 1], [0, 0, 1])), shape=(4, 3)),
                   [[3, 0, 0], [0, 3, 0], [0, 0, 0], [0, 0, 0]]),  # they are summed
    "unsorted indices": (scipy.sparse.csr_array(([2.0, 1], [2, 0], [0, 2, 2, 2, 2]), shape=(4, 3)),
                         [[1, 0, 2], [0, 0, 0], [0, 0, 0], [0, 0, 0]]),
    "DataFrame": FRAME,
    "DataFrame, shuffled index": FRAME.set_index(pd.Index([3, 1, 2, 0])),
    "DataFrame of several types": (pd.get_dummies(FRAME.assign(k=list("xyxy"))),
                                   np.hstack([A, [[1, 0], [0, 1], [1, 0], [0, 1]]])),
    "DataFrame of dummies": (pd.get_dummies(pd.Series(["u", "v", None, "u"]), dummy_na=True),
                             [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]),
    "DataFrame, nullable": FRAME.astype("Float64"),
    "DataFrame, sparse": FRAME.astype(pd.SparseDtype(float, 0.0)),
}  # fmt: skip

MASK = "X has a mask, which would be ignored"
REFUSED = {
    "a mask": (MASKED, MASK),
    "a mask of nothing": (np.ma.array(A), MASK),
    "rows with masks": (list(MASKED), MASK),
    "a masked entry": ([[1, np.ma.masked, 2]] * 4, MASK),
    "a mask from __array__": (Speaks(), MASK),
    "a mask as astropy's": (A.view(Shown), MASK),
    "a sparse matrix of masked data": (HIDDEN, MASK),
    "ragged": ([[1, 2, 3], [1, 2], [1, 2, 3], [1, 2, 3]], "X is ragged; allowed: rows of one length"),
    "complex": (A + 0j, "X is of type complex128; allowed: real numbers"),
    "texts": (A.astype(str), "X is of type <U"),
    "bytes": (A.astype("S3"), "X is of type |S3"),
    "None": (np.array([[1, None]] * 4), "X[0, 1] is missing. Drop the row, or fill the value in."),
    "NaN beside a text": (np.array([["nan", 1], [np.nan, 1]] * 2, dtype=object), "X[1, 0] is missing"),
    "no date": (FRAME.assign(t=pd.to_datetime(["2020", None, "2020", "2020"])), "X[1, 3] is missing"),
    "a text that says so": (np.array([["nan", 1], ["<NA>", 1]] * 2, dtype=object), "X is of type object"),
    "decimals": (np.array([[Decimal(1)]] * 4), "X is of type object"),
    "beyond float64": (np.array([[10**400]] * 4), "X holds an integer beyond double precision"),
    "beyond float64, long": (A.astype(np.longdouble) * np.longdouble("1e4000"), "X[0, 0] is inf"),
    "a sum beyond float64": (scipy.sparse.coo_array(([1e308, 1e308], ([2, 2], [1, 1])), shape=(4, 3)),
                             "X[2, 1] is inf"),
    "dates": (A.astype("M8[s]"), "X is of type datetime64[s]"),
    "durations": (A.astype("m8[s]"), "X is of type timedelta64[s]"),
    "structured": (RECORDS.view(np.ndarray), "X is of type"),
    "records": (RECORDS, "X is of type"),
    "0-d": (np.array(1.0), "X has the shape ()"),
    "1-d": (A[:, 0], "X has the shape (4,)"),
    "3-d": (A[None], "X has the shape (1, 4, 3)"),
    "no rows": (A[:0], "X has the shape (0, 3)"),
    "no columns": (A[:, :0], "X has the shape (4, 0)"),
    "a buffer": (array("d", [1, 2, 3]), "X has the shape (3,)"),
    "nothing": (None, "X is of type object"),
    "a generator": ((row for row in A), "X is of type object"),
    "a dict": ({"a": A}, "X is of type object"),
    "NaN": (np.where(A == 0.5, np.nan, A), "X[3, 2] is nan"),
    "an infinity, sparse": (scipy.sparse.csc_array(np.where(A == 0.5, np.inf, A)), "X[3, 2] is inf"),
    **{
        f"{form}, {array}[{place}] = {value}": (damaged(form, array, place, value), "X, a sparse")
        for form, array, place, value in OUT_OF_BOUNDS
    },
    "texts in lists of lists": (damaged("lil", "data", 0, ["a", "b"]), "X, a sparse matrix, is damaged"),
    "objects, sparse": (OBJECTS, "X is of type object"),
    "complex and sparse": (scipy.sparse.csr_array(A + 0j), "X is of type complex128"),
    "missing": (FRAME.astype("Float64").mask(FRAME == 0.5), "X[3, 2] is missing"),
    "texts in a DataFrame": (FRAME.assign(k="x", n=1, t="y"),
                             "X is of type object; allowed: real numbers. Encode other columns as numbers. "
                             "These are: 'k', 't'."),
    "texts under columns without names": (Columns(A.astype(str)), "These are: a b 0 1 2, a b 0 1 2."),
    "a complex column": (FRAME.assign(b=1j), "as numbers. These are: 'b'."),
    "a DataFrame of texts": (FRAME.astype(str), "as numbers. These are: 'a', 'b', 'c'."),
    "a DataFrame of dates": (FRAME.astype("M8[s]"), "as numbers. These are: 'a', 'b', 'c'."),
    "durations beside numbers": (FRAME.assign(t=np.array([np.timedelta64(1, "h")] * 4, dtype=object)),
                                 "X is of type object; allowed: real numbers. Encode other columns as "
                                 "numbers. These are: 't'."),
    "row numbers": (FRAME.reset_index(names="Unnamed: 0"), "X: column 1 has no name ('Unnamed: 0')"),
    "row numbers under two lines of names": (BELOW.reset_index(names=[("Unnamed: 0_level_0", "")]),
                                             "X: column 1 has no name"),
    "an index under two lines of names": (BELOW.reset_index(), "X: column \"('index', '')\" holds another"),
    "row numbers under None": (numbered(None), "X: column 'None' counts the rows and is no feature"),
    "row numbers under NaN": (numbered(float("nan")), "X: column 'nan' counts the rows"),
    "row numbers under NA": (numbered(pd.NA), "X: column '<NA>' counts the rows"),
    "two indices": (FRAME.set_index([[7, 7, 7, 7], [3, 1, 2, 0]]).reset_index(),
                    "X: column 'level_1' holds another"),
    "an index": (FRAME.reset_index(), "X: column 'index' holds another integer in each row"),
}  # fmt: skip


def dense(X):
    return ClassRows.of((X, Y)).X


def sparse(X):
    return own_dataset((X, Y)).X.toarray()


def misread(kind, cases):
    """Those of the cases, X or X and its values, that ``kind`` reads otherwise."""
    wrong = {}
    for name, case in cases.items():
        X, values = case if isinstance(case, tuple) and len(case) == 2 else (case, A)
        found = kind(X)
        if found.dtype != np.float64 or not np.array_equal(found, values):
            wrong[name] = found
    return wrong


@pytest.mark.parametrize("kind", [dense, sparse])
def test_each_layout_is_read_exactly(kind):
    assert not misread(kind, READ)


def test_equal_values_are_one_data_set_however_sparse_storage_holds_them():
    dense = own_dataset(([[1.0, 0, 2], [0, 3, 0]], [0, 1]), name="a")
    apart = scipy.sparse.csr_array(([2.0, 0.5, 0.5, 3], [2, 0, 0, 1], [0, 3, 4]), shape=(2, 3))
    assert own_dataset((apart, [0, 1]), name="b") == dense and not apart.has_canonical_format
    zeros = scipy.sparse.csr_array(([1.0, -0.0, 2, 4, 3, -4], [0, 1, 2, 0, 1, 0], [0, 3, 6]), shape=(2, 3))
    assert own_dataset((zeros, [0, 1]), name="c") == dense and zeros.nnz == 6
    assert ClassRows.of((zeros, [0, 1])) == ClassRows.of((zeros.toarray() + 0.0, [0, 1]))
    with pytest.raises(DataError, match=r"X\[0, 0\] is inf"):
        own_dataset((scipy.sparse.csr_array(([1e308, 1e308, 3], [0, 0, 1], [0, 2, 3]), shape=(2, 3)), [0, 1]))


@pytest.mark.parametrize("kind", [np.bool_, np.int8, np.uint8, np.float32])
def test_duplicates_are_summed_as_doubles_in_every_sparse_format(kind):
    """In the type of the entries 100 + 100 is -56 for int8, and True + True is True; coo sums there."""
    one = float(kind(100))
    entries, rows, columns = np.full(3, 100).astype(kind), [0, 0, 1], [0, 0, 1]
    wrong = []
    for form in ("coo", "csr", "csc", "bsr"):
        if form == "coo":
            X = scipy.sparse.coo_array((entries, (rows, columns)), shape=(2, 2))
        else:
            blocks = entries.reshape(3, 1, 1) if form == "bsr" else entries
            X = getattr(scipy.sparse, f"{form}_array")((blocks, columns, [0, 2, 3]), shape=(2, 2))
        for found in (own_dataset((X, [0, 1])).X.toarray(), ClassRows.of((X, [0, 1])).X):
            if found.tolist() != [[2 * one, 0], [0, one]] or X.dtype != kind:
                wrong.append((form, found))
    assert not wrong


def test_a_memory_map_is_read_exactly(tmp_path):
    np.save(tmp_path / "X.npy", A)
    assert np.array_equal(dense(np.load(tmp_path / "X.npy", mmap_mode="r")), A)


def misrefused(kind, cases):
    """Those of the cases, X and what is said of it, that ``kind`` refuses in other words."""
    wrong = {}
    for name, (X, said) in cases.items():
        with pytest.raises(DataError) as caught:
            kind(X)
        message = str(caught.value)
        if said not in message or "\n" in message:
            wrong[name] = message
    return wrong


@pytest.mark.parametrize("kind", [dense, sparse])
def test_each_layout_that_is_wrong_is_refused_in_one_line(kind):
    assert not misrefused(kind, REFUSED)


# y, and the classes of its entries.
LABELS = {
    "numbers": ([7, -1, 7, 7], [1, 0, 1, 1]),
    "beyond 2^53": (np.array([2**60 + 1, 2**60, 2**60, 2**60]), [1, 0, 0, 0]),
    "beyond 2^53, a list": ([2**60 + 1, 2**60, 2**60, 2**60], [1, 0, 0, 0]),
    "beyond 2^63": (np.array([2**63 + 1, 2**63, 2**63, 2**63], dtype=np.uint64), [1, 0, 0, 0]),
    "beyond 2^53, nullable": (pd.array([2**60 + 1, 2**60, 2**60, 2**60], dtype="Int64"), [1, 0, 0, 0]),
    "apart as doubles": ([2**70 + 2**30, 2**70, 2**70, 2**70], [1, 0, 0, 0]),
    "integers and floats": ([2**53 + 1, 1.5, 1.5, 1.5], [1, 0, 0, 0]),
    "a list of texts": (["b\0", "b", "b", "b"], [1, 0, 0, 0]),
    "bools": (pd.Series([True, False, True, True]), [1, 0, 1, 1]),
    "texts": (["b", "a", "b", "b"], [1, 0, 1, 1]),
    "a Series of texts": (pd.Series(["b", "a", "b", "b"]), [1, 0, 1, 1]),
    "a Series after astype(str)": (pd.Series([3, 20, 3, 3]).astype(str), [1, 0, 1, 1]),  # by their letters
    "categories": (pd.Categorical(["b", "a", "b", "b"]), [1, 0, 1, 1]),
    "pandas' own texts": (pd.array(["b", "a", "b", "b"], dtype="string"), [1, 0, 1, 1]),
    "objects": (np.array(["b\0", "b", "b\0", "b\0"], dtype=object), [1, 0, 1, 1]),
    "nullable integers": (pd.array([7, -1, 7, 7], dtype="Int64"), [1, 0, 1, 1]),
}

NO_LABELS = {
    "a mask": (np.ma.array([1.0, 0, 1, 1], mask=[0, 0, 1, 0]), "y has a mask, which would be ignored"),
    "ragged": ([[1], [0, 1], [1], [1]], "y is ragged"),
    "a column": (Y[:, None], "y has the shape (4, 1) and X has 4 rows; allowed: y of shape (4,). Give np"),
    "a missing text": (pd.Series(["b", None, "b", "b"]), "texts without a missing one"),
    "a missing integer": (pd.array([7, None, 7, 7], dtype="Int64"), "y[1] is nan"),
    "texts and numbers": (np.array(["b", 1, "b", 1], dtype=object), "y is of type object"),
    "a text and NaN": (["b", float("nan"), "a", "a"], "y is of type object; allowed: real numbers, or texts"),
    "a text and numpy's NaN": (("b", np.float32("nan"), "a", "a"), "y is of type object"),
    "a number as a text": ([1, "1", 2, 2], "y is of type object"),
    "a text and True": (deque(["True", True, "b", "b"]), "y is of type object"),
    "one as doubles": ([2**70, 2**70 + 1, 2, 2], f"labels {2**70} and {2**70 + 1} are one number in double"),
    "one as doubles, signed": ([-1, 2**63, 2**63 + 1, 2**63], f"labels {2**63} and {2**63 + 1} are one"),
    "one as doubles, a float": ([2.0**53, 2**53 + 1, 2, 2], f"labels {2**53} and {2**53 + 1} are one"),
    "one as doubles, long": (np.array([2**60, 2**60 + 1, 2, 2], dtype=np.longdouble), f"{2**60 + 1} are one"),
    "NaN": ([1, np.nan, 0, 1], "y[1] is nan; allowed: finite labels"),
    "complex": ([1, 1j, 0, 1], "y is of type complex128"),
    "dates": (Y.astype("M8[s]"), "y is of type datetime64[s]"),
    "too few": (Y[1:], "y has the shape (3,) and X has 4 rows"),
    "None": (None, "y has the shape () and X has 4 rows"),
    "sparse": (scipy.sparse.csr_array(Y[:, None]), "y is sparse; allowed: an array of shape (rows,). Give y"),
}  # fmt: skip


def test_labels_of_each_layout_are_classes_or_are_refused():
    wrong = {}
    for name, (y, classes) in LABELS.items():
        if ClassRows.of((A, y)).labels.tolist() != classes:
            wrong[name] = ClassRows.of((A, y)).labels
        if ((1 + own_dataset((A, y)).y) / 2).tolist() != classes:
            wrong[name, "two"] = own_dataset((A, y)).y
    for name, (y, said) in NO_LABELS.items():
        with pytest.raises(DataError) as caught:
            ClassRows.of((A, y))
        if said not in str(caught.value) or "\n" in str(caught.value):
            wrong[name] = str(caught.value)
    assert not wrong


def test_the_advice_for_labels_is_taken():
    """What the refusal of labels advises is accepted: [str(label) for label in y]."""
    assert ClassRows.of((A, [str(label) for label in ["b", None, "b", 3]])).classes == 3


def test_rows_and_labels_of_different_indices_are_refused():
    """They were paired by their places: after X = X.sample(frac=1) each row got the label of another.

    So did rows after X and y had each lost another row, and rows 4 to 7 with the labels of rows 0 to 3.
    """
    y = pd.Series([0, 1, 1, 0])
    shuffled = FRAME.loc[[3, 1, 2, 0]]
    names = pd.MultiIndex.from_tuples([(0, 0), (0, 1), (1, 0), (1, 1)])
    for wrong in (
        (shuffled, y),
        (FRAME, y.loc[[3, 1, 2, 0]]),
        (shuffled["a"].to_frame(), y.to_frame()[0]),
        *(
            (FRAME.set_axis(index), y)
            for index in ([0, 1, 2, 4], [4, 5, 6, 7], [0, 0, 1, 2], list("0123"), names)
        ),
    ):
        with pytest.raises(
            DataError, match=r"X and y have different indices.* Give y\.loc\[X\.index\], or y\.to_n"
        ):
            Softmax(data=wrong)
    right = Softmax(data=(shuffled, y.loc[shuffled.index]))
    assert right == Softmax(data=(shuffled, y.loc[shuffled.index].to_numpy()))
    assert right == Softmax(data=(shuffled.to_numpy(), [0, 1, 1, 0]))
    equal = FRAME.set_axis([0.0, 1.0, 2.0, 3.0])
    assert Softmax(data=(equal, y)) == Softmax(data=(FRAME, y)) == Softmax(data=(A, y.tolist()))
    nullable = FRAME.set_axis(pd.Index([0, 1, 2, 3], dtype="Int64"))
    assert Softmax(data=(nullable, y)) == Softmax(data=(FRAME, y.set_axis(nullable.index))) == Softmax((A, y))
    with pytest.raises(DataError, match="X and y have different indices"):
        Softmax(data=(nullable.loc[[3, 1, 2, 0]], y))
    with pytest.raises(DataError, match=r"y has the shape \(3,\) and X has 4 rows"):
        Softmax(data=(FRAME, y[1:]))


@pytest.mark.parametrize("problem", [Softmax, NonconvexGLM])
def test_a_split_whose_index_is_in_another_order_is_refused(problem):
    """As of a frame that was shuffled after its sites were numbered: rows went to the workers of others."""
    shuffled, sites = FRAME.loc[[3, 1, 2, 0]], pd.Series([0, 0, 1, 1])
    y = pd.Series([0, 1, 1, 0]).loc[shuffled.index]
    with pytest.raises(DataError, match=r"X and split have different indices.*split\.loc\[X\.index\]"):
        problem(data=(shuffled, y), split=sites)
    with pytest.raises(DataError, match=r"y and split have different indices.*split\.loc\[y\.index\]"):
        problem(data=(shuffled.to_numpy(), y), split=sites)
    right = problem(data=(shuffled, y), split=sites.loc[shuffled.index])
    assert right.split == (1, 0, 1, 0) and right.shard_sizes(2) == [2, 2]
    assert problem(data=(shuffled, y), split=sites.to_numpy()).split == (0, 0, 1, 1)


def test_texts_are_no_targets():
    for y in (["b", "a", "b", "b"], pd.Series(["b", "a", "b", "b"])):
        with pytest.raises(DataError, match=r"y is of type .*; least squares needs numbers"):
            LeastSquares((A, y), lam=0.1)
    y = pd.array([7, -1, 7, 7], dtype="Int64")
    assert LeastSquares((A, y), lam=0.1).dataset().y.tolist() == [7, -1, 7, 7]


@pytest.mark.parametrize("problem", [LocalImages, FullImages])
def test_masks_of_images_are_refused(problem):
    images = np.arange(48, dtype=np.uint8).reshape(3, 4, 4)
    assert problem(images) == problem(images.tolist())
    for masked in (np.ma.array(images, mask=images > 40), list(np.ma.array(images))):
        with pytest.raises(DataError, match="data has a mask, which would be ignored"):
            problem(masked)
