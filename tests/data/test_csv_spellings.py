"""Spellings of CSV and TSV files, many from reports about other readers: exact arrays, or one clear line."""

import bz2
import gzip
import lzma
from time import process_time

import pytest

from mpicomp.base.errors import DataError
from mpicomp.data.files import DataFile
from mpicomp.data.loading import load_dataset, load_images

ROWS = [[1, 2], [3, 4]]

# The text of a file, X of the columns but "label", and the labels.
READ = [
    (b"a,b,label\n1,2,0\n3,4,1\n", ROWS, [0, 1]),
    (b"a,b,label\n1,2,0\n3,4,1", ROWS, [0, 1]),  # no last line end
    (b"a,b,label\r\n1,2,0\r\n3,4,1\r\n", ROWS, [0, 1]),
    (b"a,b,label\r1,2,0\r3,4,1\r", ROWS, [0, 1]),  # lines that end as on an old Macintosh
    (b"\xef\xbb\xbfa,b,label\n1,2,0\n3,4,1\n", ROWS, [0, 1]),
    (b'\xef\xbb\xbf"label","a","b"\n0,1,2\n1,3,4\n', ROWS, [0, 1]),
    (b"a,label,b\n1,0,2\n3,1,4\n", ROWS, [0, 1]),
    (b"label,a,b\n0,1,2\n1,3,4\n", ROWS, [0, 1]),
    (b" a , b , label \n 1 , 2 , 0 \n 3 , 4 , 1 \n", ROWS, [0, 1]),
    (b'"a","b","label"\n"1","2","0"\n"3","4","1"\n', ROWS, [0, 1]),
    (b'"a, b","c ""d""",label\n1,2,0\n3,4,1\n', ROWS, [0, 1]),
    (b'"a\nb",c,label\n1,2,0\n3,4,1\n', ROWS, [0, 1]),
    (b'a,b,label\n1,2, "x"\n3,4,x\n', ROWS, ["x", "x"]),  # a space before a quote
    (b'a,b, "label"\n1,2,0\n3,4,1\n', ROWS, [0, 1]),
    (b"a,b,label\n\n1,2,0\n\n\n3,4,1\n\n", ROWS, [0, 1]),
    (b"a,b,label\n1e0,.2e1,0\n+3,4.,1\n", ROWS, [0, 1]),
    (b"a,b,label\n1,2,0.0\n3,4,1e0\n", ROWS, [0, 1]),
    (b"a,b,label\n1,2,-1\n3,4,+1\n", ROWS, [-1, 1]),
    (
        b"a,b,label\n0.1000000000000000055,5e-324,0\n1.7976931348623157e308,4,1\n",
        [[0.1, 5e-324], [1.7976931348623157e308, 4]],
        [0, 1],
    ),
    (b"a,b,label\n1,2,cat\n3,4,dog\n", ROWS, ["cat", "dog"]),
    (b'a,b,label\n1,2,"cat, large"\n3,4,dog\n', ROWS, ["cat, large", "dog"]),
    (b'a,b,label\n1,2,"a ""b"""\n3,4,\'c\'\n', ROWS, ['a "b"', "'c'"]),
    ("a,b,label\n1,2,Größe\n3,4,猫\n".encode(), ROWS, ["Größe", "猫"]),
    (b"a,b,label\n1,2,1_0\n3,4,10\n", ROWS, ["1_0", "10"]),  # Python's float reads both as 10
    (b"a,b,label\n1,2,x\x00\n3,4,x\n", ROWS, ["x\x00", "x"]),  # which numpy's texts would take for one
    (b"a,b,label\n1,2,9007199254740992\n3,4,9007199254740992.0\n", ROWS, [2**53, 2**53]),
    (b"a,b,label\n1,2,76561198000000001\n3,4,1e300\n", ROWS, [float(76561198000000001), 1e300]),
    (b"a,b,label\n1,2,True\n3,4,False\n", ROWS, [1, 0]),
    (b"a,b,label\n1,2,TRUE\n3,4,false\n", ROWS, [1, 0]),
    (b"a,b,label\n1,2,True\n3,4,other\n", ROWS, ["True", "other"]),
    (b"a,b,label\n1,2,True\n3,4,0\n", ROWS, [1, 0]),  # True and 1 were two classes
    (b"a,b,label\nTrue,2,0\nFalse,4,1\n", [[1, 2], [0, 4]], [0, 1]),  # pandas.get_dummies
    (b"a,b,label\nTRUE, false ,0\nfalse,true,1\n", [[1, 0], [0, 1]], [0, 1]),
    (b"a,b,label\nTrue,2,0\n0,4,1\n", [[1, 2], [0, 4]], [0, 1]),
    (b"0,1,label\n1,2,0\n3,4,1\n", ROWS, [0, 1]),  # a DataFrame's numbers as names
    (b"a_1,b_2,label\n1,2,0\n3,4,1\n", ROWS, [0, 1]),
    (b"# a,b,label\n1,2,0\n3,4,1\n", ROWS, [0, 1]),  # numpy.savetxt's header
    (b"id,b,label\n1,2,0\n1,4,1\n", [[1, 2], [1, 4]], [0, 1]),  # not another id in each row
    (b"index,b,label\n1.5,2,0\n2.5,4,1\n", [[1.5, 2], [2.5, 4]], [0, 1]),
    (b"id,b,label\n1,2,0\n", [[1, 2]], [0]),
    (b"X,b,label\n1,2,0\n2,4,1\n4,4,1\n", [[1, 2], [2, 4], [4, 4]], [0, 1, 1]),  # does not count the rows
    (b"X,b,label\n2,2,0\n3,4,1\n4,4,1\n", [[2, 2], [3, 4], [4, 4]], [0, 1, 1]),  # from 2
    (b"x,b,label\n1,2,0\n2,4,1\n3,4,1\n", [[1, 2], [2, 4], [3, 4]], [0, 1, 1]),  # no name of row numbers
    (b"X,label\n1,0\n2,1\n3,1\n", [[1], [2], [3]], [0, 1, 1]),  # the only feature
    (b"None,b,label\n0,2,0\n1,4,1\n", [[0, 2], [1, 4]], [0, 1]),  # two rows count by chance
    ("a,b,label\n\N{FULLWIDTH DIGIT ONE},2,0\n3,4,1\n".encode(), ROWS, [0, 1]),
    (gzip.compress(b"a,b,label\n1,2,0\n3,4,1\n"), ROWS, [0, 1]),
    (bz2.compress(b"a,b,label\n1,2,0\n3,4,1\n"), ROWS, [0, 1]),
    (lzma.compress(b"\xef\xbb\xbfa,b,label\n1,2,0\n3,4,1\n"), ROWS, [0, 1]),
    (bz2.compress(b"a,b,label\n1,2") + bz2.compress(b",0\n3,4,1\n"), ROWS, [0, 1]),  # as pbzip2 writes
    (lzma.compress(b"a,b,label\n1,2") + bytes(8) + lzma.compress(b",0\n3,4,1\n"), ROWS, [0, 1]),
    (bz2.compress(b"a,b,label\n1,2,0\n3,4,1\n") + bytes(512), ROWS, [0, 1]),  # padding, as on tapes
    (lzma.compress(b"a,b,label\n1,2,0\n3,4,1\n") + bytes(2**17), ROWS, [0, 1]),
    (b"a,b,label\n" + b"1,2,0\n3,4,1\n" * 3, ROWS * 3, [0, 1] * 3),
]

CSV = b"a,b,label\n1,2,0\n3,4,1\n"

# The text of a file, and a part of the message.
REFUSED = [
    (b",a,b,label\n0,1,2,0\n1,3,4,1\n", "column 1 has no name ('')"),  # DataFrame.to_csv
    (b'"","a","b","label"\n"1",1,2,0\n"2",3,4,1\n', "column 1 has no name ('')"),  # R's write.csv
    (b"Unnamed: 0,a,label\n0,1,0\n1,3,1\n", "column 1 has no name ('Unnamed: 0')"),
    (b"Unnamed: 0.1,Unnamed: 0,a,label\n0,0,1,0\n", "column 1 has no name ('Unnamed: 0.1')"),
    (b",a,label\n532,1,0\n12,3,1\n", "index=False"),  # shuffled before it was written
    (b"index,a,label\n0,1,0\n1,3,1\n", "column 'index' holds another integer in each row"),
    (b"a,ID,label\n1,842302,0\n3,842517,1\n", "column 'ID' holds another integer in each row"),
    (b"rownames,a,label\n1,1,0\n2,3,1\n", "column 'rownames' holds another integer"),
    *(
        (f"{name},a,label\n{k},5,0\n{k + 1},7,1\n{k + 2},7,1\n".encode(), f"column {name!r} counts the rows")
        for name in (
            "X",
            "X1",
            "X.1",
            "V1",
            "...1",
            "No",
            "no.",
            "Nr",
            "S.No",
            "Sr No",
            "#",
            "None",
            "nan",
            "<NA>",
        )
        for k in (0, 1)
    ),
    *(
        (f"a,{name},label\n5,31,0\n7,12,1\n".encode(), f"column {name!r} holds another integer in each row")
        for name in (
            "__index_level_0__",
            "level_0",
            "level_1",
            "row_nr",
            "row_number",
            "RowNumber",
            "rownum",
            "patient_id",
            "PassengerId",
            "customerID",
            "Sample ID",
            "rowid",
            "row_id",
            "x.id",
        )
    ),
    *(
        (f"{name},a,label\n7,5,0\n9,7,1\n".encode(), "column 1 has no name")
        for name in ("Unnamed: 0_level_0", "unnamed_0", "\u200b", "\ufeff\ufeff", "\u00a0")
    ),
    (b"a,b,label,\n1,2,0,\n3,4,1,\n", "column 4 has no name"),  # a comma at the end
    (b"a,b,label\n1,2,0,\n3,4,1,\n", "line 2: 4 fields, and the header names 3"),
    (b"a,b,label\n1,1,2,0\n2,3,4,1\n", "Leave row names out"),  # R's write.table
    (CSV + b"5,6\n", "line 4: 2 fields"),
    (CSV + b"5\n", "line 4: 1 fields"),
    (CSV + b"a,b,label\n5,6,1\n", "line 4: column 'a' is not numeric"),  # files that were joined
    (CSV + b"1_0,6,1\n", "line 4: column 'a' is not numeric, it holds '1_0'"),
    (CSV + b"5,1_000.5,1\n", "line 4: column 'b' is not numeric, it holds '1_000.5'"),
    (CSV + b'5,"1,000",1\n', "it holds '1,000'. Write numbers without thousands separators"),
    (CSV + b'5,"1,5",1\n', "it holds '1,5'. Write numbers without thousands separators and units, and with"),
    (CSV + "5,1\u202f234.5 €,1\n".encode(), "Write numbers without thousands separators and units"),
    (CSV + b"5,01/02/2020 10:00,1\n", "Write dates as numbers"),
    (CSV + b"5,2020-01-01T10:00:00Z,1\n", "Write dates as numbers"),
    (CSV + b"5,10:00:01,1\n", "Write dates as numbers"),
    (CSV + b"5,1.2.3.4,1\n", "Encode it as numbers"),
    (CSV + b"5,1 000,1\n", "it holds '1 000'. Write numbers without thousands separators and units"),
    (CSV + b"5,50%,1\n", "it holds '50%'. Write numbers without thousands separators and units"),
    (CSV + b"5,$6,1\n", "it holds '$6'. Write numbers without thousands separators and units"),
    (CSV + b"5,0x10,1\n", "it holds '0x10'"),
    (CSV + b"5,2020-01-01,1\n", "it holds '2020-01-01'. Write dates as numbers, as days since the first"),
    (CSV + b"5,Oslo,1\n", "pandas.get_dummies"),
    (CSV + b"5,yes,1\n", "it holds 'yes'"),
    (CSV + b"5,6\x00,1\n", "column 'b' is not numeric"),
    (CSV + b"5,,1\n", "column 'b': the value is missing, found ''"),
    (CSV + b"5, ,1\n", "column 'b': the value is missing"),
    (CSV + b"NaN,6,1\n", "column 'a': the value is missing, found 'NaN'"),
    (CSV + b"<NA>,6,1\n", "column 'a': the value is missing"),
    (CSV + b"#N/A,6,1\n", "column 'a': the value is missing"),
    (CSV + b"-1.#IND,6,1\n", "column 'a': the value is missing"),
    (CSV + b"-nan,6,1\n", "column 'a': the value is missing"),
    (CSV + b"5,6,\n", "column 'label': the value is missing"),
    (CSV + b"5,6,<NA>\n", "column 'label': the value is missing, found '<NA>'"),  # no class of its own
    (CSV + b"5,6,NaT\n", "column 'label': the value is missing"),
    (CSV + b"5,6,#N/A\n", "column 'label': the value is missing"),
    (CSV + b"5,6,-nan\n", "column 'label': the value is missing"),
    (
        CSV + b"5,6,76561198000000001\n5,6,76561198000000002\n",
        "column 'label': the labels 76561198000000001 and 76561198000000002 are one number in double",
    ),
    (CSV + b"5,6,9007199254740993\n5,6,9007199254740992.0\n", "9007199254740993 and 9007199254740992 are"),
    (CSV + b"5,6,-9007199254740993\n5,6,-9.007199254740992e15\n", "-9007199254740992 are one number"),
    (
        CSV + b"5,6,007\n5,6,7\n",
        "column 'label': the labels 007 and 7 are one number. If they are two",
    ),
    (CSV + b"5,6,-7.0\n5,6,-07\n", "column 'label': the labels -7.0 and -07 are one number"),
    (CSV + b"5,6,01\n", "column 'label': the labels 1 and 01 are one number"),
    (CSV + b"5,%s,1\n" % (b"1" * 400), "column 'b': " + "1" * 40 + "; allowed: finite"),
    (CSV + b"5,inf,1\n", "column 'b': inf; allowed: finite"),
    (CSV + b"5,1e999,1\n", "column 'b': 1e999; allowed: finite"),
    (CSV + b"1e308,1e308,1\n-inf,1,1\n", "line 5, column 'a': -inf; allowed: finite"),
    (
        b"a,b,c,d,label\n1,x,True,,0\n",
        "column 'b' is not numeric, it holds 'x'. Encode it as numbers, or as columns of True and False, as "
        "pandas.get_dummies does; or drop the column. Other columns without a finite number in this line, 1: "
        "'d'.",
    ),
    (
        b"a,b,c,label\n,x,inf,0\n",
        "fill the value in. Other columns without a finite number in this line, 2: 'b'",
    ),
    (CSV + b"True,6,1\n", "column 'a' holds True or False beside other numbers"),
    (CSV + b"5,6,True\n5,6,2\n", "column 'label' holds True or False beside other numbers"),
    (CSV + b'5,6,"x\n7,8,y\n9,10,z\n', "line 6: this is no CSV"),  # a quote that is never closed
    (CSV + b'5,"6"7,1\n', "line 4: this is no CSV"),
    (b"a;b;label\n1;2;0\n3;4;1\n", "f.csv is separated by semicolons: write it with commas"),
    (b"a\tb\tlabel\n1\t2\t0\n", "Commas separate"),
    (b"sep=;\na;b;label\n1;2;0\n", "is separated by semicolons"),
    (b"a,b,Label\n1,2,0\n", "Did you mean 'Label'"),
    (b'"a\nb",c,"d\n"\n1,2,0\n', "Did you mean 'a b'? Allowed: a b, c, d. Commas separate the names."),
    (b"a,a,label\n1,2,0\n", "two columns named 'a'"),
    (b"a, a,label\n1,2,0\n", "two columns named 'a'"),
    (b"a,b,label,label\n1,2,0,0\n", "two columns named 'label'"),
    (b"1,2,0\n3,4,1\n", "starts with the numbers"),
    (b"# made by hand\na,b,label\n1,2,0\n", "unknown column 'label'"),
    (b"", "starts with no line of names"),
    (b"\na,b,label\n1,2,0\n", "starts with no line of names"),
    (b"\xef\xbb\xbf", "starts with no line of names"),
    (b"label\n1\n", "no column of features"),
    (b"a,label\n", "no line after its header"),
    (b"a,label\n\xff,1\n", "is not UTF-8 text"),
    ("a,b,label\n1,2,0\n".encode("utf-16"), "is UTF-16 text"),
    ("a,b,label\n1,2,0\n".encode("utf-16-le"), "unknown column 'label'"),
    ("a,b,label\n1,2,Größe\n".encode("latin-1"), "is not UTF-8 text"),
    (b"PK\x03\x04\x14\x00", "is a ZIP archive"),
    (b"\x04\x22\x4d\x18\x64\x40", "is compressed by LZ4. Unpack it"),
    (b"\x1f\x9d\x90\x61", "is compressed by compress, as .Z files are"),
    (lzma.compress(CSV, format=lzma.FORMAT_ALONE), "is compressed as .lzma files are"),
    (b"PAR1\x15\x04", "is a Parquet file"),
    (b"ARROW1\0\0", "is an Arrow file"),
    (b"<html><body>404</body></html>", "is a web page"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n", "is a Git LFS pointer"),
    (gzip.compress(CSV)[:-9], "truncated, damaged or unreadable"),
    # Python's own readers would leave the second stream out, and with it a row.
    *(
        (packed(CSV) + start + packed(b"5,6,0\n")[len(start) :], "truncated, damaged or unreadable")
        for packed in (bz2.compress, lzma.compress, gzip.compress)
        for start in (b"x", b"more bytes")
    ),
    *((packed(CSV) + packed(b"5,6,0\n")[:-5], "damaged") for packed in (bz2.compress, lzma.compress)),
]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MPICOMP_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def read(name, content):
    with open(name.rpartition(":")[0], "wb") as file:
        file.write(content)
    return DataFile.of(name).read()


def test_each_spelling_is_read_exactly():
    wrong = []
    for content, X, labels in READ:
        found, y = read("f.csv:label", content)
        if (found.tolist(), y.tolist()) != (X, labels):
            wrong.append((content, found.tolist(), y.tolist()))
    assert not wrong


def test_the_time_of_a_wide_header_grows_with_its_length():
    """Each name compared with every other would take half a minute here."""
    names, row = ",".join(f"c{k}" for k in range(50_000)), ",".join(["1"] * 50_000)
    started = process_time()
    X, _ = read("f.csv:label", f"{names},label\n{row},0\n".encode())
    assert X.shape == (1, 50_000) and process_time() - started < 5


def test_each_spelling_that_is_wrong_is_refused_in_one_line():
    wrong = []
    for content, said in REFUSED:
        with pytest.raises(DataError) as caught:
            read("f.csv:label", content)
        message = str(caught.value)
        if said not in message or "\n" in message or "f.csv" not in message:
            wrong.append((content, message))
    assert not wrong


@pytest.mark.parametrize(("form", "separator"), [("csv", b","), ("tsv", b"\t")])
@pytest.mark.parametrize("case", [str.lower, str.upper])
def test_the_suffix_names_the_separator_whatever_the_compression(form, separator, case):
    content = separator.join([b'"a,\tb"', b"c", b"label\n1", b"2", b'"x,\ty"\n3', b"4", b"dog\n"])
    for suffix, compress in {
        "": bytes,
        ".gz": gzip.compress,
        ".bz2": bz2.compress,
        ".xz": lzma.compress,
    }.items():
        X, y = read(case(f"t.{form}{suffix}") + ":label", compress(content))
        assert (X.tolist(), y.tolist()) == (ROWS, ["x,\ty", "dog"])


@pytest.mark.parametrize("name", ["acid", "grid", "AMINOACID", "ids", "idle", "Identity"])
def test_a_name_that_only_ends_in_id_is_a_feature(name):
    X, _ = read("t.csv:label", f"a,{name},label\n5,31,0\n7,12,1\n".encode())
    assert X.tolist() == [[5, 31], [7, 12]]


def test_a_key_with_a_value_twice_is_a_feature():
    X, _ = read("t.csv:label", b"patient_id,a,label\n3,1,0\n3,2,1\n")
    assert X.tolist() == [[3, 1], [3, 2]]


def test_a_file_that_has_no_columns_by_its_name_is_named():
    for name in ("f.txt", "f", "f.csv.zip"):
        with open(name, "wb") as file:
            file.write(CSV)
        for read_data in (load_dataset, load_images):
            said = rf"'{name}:label' names a column of {name}, and only.*rename it; .*write '{name}'\."
            with pytest.raises(DataError, match=said):
                read_data(f"{name}:label")
