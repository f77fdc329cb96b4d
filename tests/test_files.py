"""Arrays from files: what is read, and the one precise error of everything else."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fpsim._files import load_array, write_new
from fpsim.errors import FileError


@pytest.mark.parametrize("dtype", ["float16", "float32", ">f4", "float64", "int64", "bool"])
def test_npy_keeps_type_and_bits(tmp_path: Path, dtype: str) -> None:
    x = (np.arange(12).reshape(3, 4) / 3).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    got = load_array(tmp_path / "x.npy")
    assert got.dtype == x.dtype
    assert got.tobytes() == x.tobytes()


def test_fortran_order_and_scalars(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", np.asfortranarray(np.arange(6.0).reshape(2, 3)))
    np.save(tmp_path / "s.npy", np.float32(3.5))
    assert load_array(tmp_path / "f.npy").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert load_array(str(tmp_path / "s.npy")).shape == ()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_with_one_array_needs_no_key(tmp_path: Path, save: Any) -> None:
    save(tmp_path / "x.npz", out=np.array([1, 2], np.float32))
    assert load_array(tmp_path / "x.npz").tolist() == [1, 2]
    assert load_array(f"{tmp_path}/x.npz:out").tolist() == [1, 2]


def test_npz_with_several_arrays_needs_a_key(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", cpu=np.ones(2), gpu=np.zeros(3))
    assert load_array(f"{tmp_path}/x.npz:gpu").tolist() == [0, 0, 0]
    with pytest.raises(FileError, match=r"holds 2 arrays \(cpu, gpu\); name one, as in file.npz:cpu"):
        load_array(tmp_path / "x.npz")
    with pytest.raises(FileError, match="has no array 'tpu'; it holds cpu, gpu"):
        load_array(f"{tmp_path}/x.npz:tpu")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,2.5\n-3e-2,4\n", [[1, 2.5], [-0.03, 4]]),
        ("1;2\n3;4", [[1, 2], [3, 4]]),
        ("1 2\t3\n4  5 6\n", [[1, 2, 3], [4, 5, 6]]),
        ("\ufeff# a header\n0.1\n\n0.2 # said so\n", [0.1, 0.2]),
        ("1, 2, 3", [1, 2, 3]),
        ("7", [7]),
        ("inf\n-inf\n-0.0", [float("inf"), float("-inf"), 0.0]),
    ],
)
def test_text_is_read_as_the_nearest_doubles(tmp_path: Path, text: str, expected: Any) -> None:
    for suffix in (".csv", ".txt", ".CSV"):
        file = tmp_path / f"x{suffix}"
        file.write_text(text, "utf-8")
        got = load_array(file)
        assert got.dtype == np.float64
        assert got.tolist() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2\n3,x\n", r"x.csv, line 2: 'x' is not a number"),
        ("a,b\n1,2\n", "line 1: 'a' is not a number"),
        ("1,2\n3\n", "line 2: 1 numbers, but line 1 has 2"),
        ("1,,2\n", "line 1: a number is missing"),
        ("1_000\n", "line 1: '1_000' is not a number"),
        ("1,5;2,5\n", "line 1: '1,5' is not a number"),
        ("1+2j\n", r"line 1: '1\+2j' is not a number"),
        ("", "holds no numbers"),
        ("# nothing\n\n", "holds no numbers"),
    ],
)
def test_text_that_is_not_numbers(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(FileError, match=message):
        load_array(tmp_path / "x.csv")


def test_binary_in_a_text_file(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"1\n\xff\xfe")
    with pytest.raises(FileError, match=r"not a text file in UTF-8 \(byte 2\)"):
        load_array(tmp_path / "x.txt")


def test_missing_folder_and_unknown_ending(tmp_path: Path) -> None:
    (tmp_path / "d.npy").mkdir()
    for name, message in (
        ("no.npy", "no such file"),
        ("no.npz:key", "no such file"),
        ("no.csv", "no such file"),
        ("d.npy", "this is a folder"),
        ("x.mat", r"must be one of .npy, .npz, .csv, .txt"),
        ("x", r"must be one of .npy, .npz, .csv, .txt"),
    ):
        with pytest.raises(FileError, match=message) as caught:
            load_array(tmp_path / name, name="A")
        assert str(caught.value).startswith(f"A: {tmp_path}/{name}")
        assert "\n" not in str(caught.value)


class _Trap:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("the file was unpickled",))


def test_pickles_are_never_opened(tmp_path: Path) -> None:
    np.save(tmp_path / "o.npy", np.array([_Trap()], object), allow_pickle=True)
    np.savez(tmp_path / "o.npz", x=np.array([_Trap()], object))
    for name in ("o.npy", "o.npz"):
        with pytest.raises(FileError, match="pickled Python objects, which are not read"):
            load_array(tmp_path / name)
    for name, message in (("p.npy", "not a .npy file"), ("p.npz", "not a .npz file")):
        (tmp_path / name).write_bytes(pickle.dumps(_Trap()))
        with pytest.raises(FileError, match=message):
            load_array(tmp_path / name)


@pytest.mark.parametrize("keep", [0, 3, 6, 9, 40, 100, 127, 128, 150, 4127])
def test_every_truncation_of_npy_is_told(tmp_path: Path, keep: int) -> None:
    stream = io.BytesIO()
    np.save(stream, np.arange(1000, dtype=np.float32))
    (tmp_path / "x.npy").write_bytes(stream.getvalue()[:keep])
    with pytest.raises(FileError, match=r"not a .npy file|cut short or damaged") as caught:
        load_array(tmp_path / "x.npy")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("compressed", [False, True])
def test_truncated_and_damaged_npz(tmp_path: Path, compressed: bool) -> None:
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, x=np.random.default_rng(1).random(1000))
    whole = stream.getvalue()
    for keep in (0, 10, 200, len(whole) - 30):
        (tmp_path / "x.npz").write_bytes(whole[:keep])
        with pytest.raises(FileError, match=r"not a .npz file, or cut short"):
            load_array(tmp_path / "x.npz")
    middle = len(whole) // 2
    (tmp_path / "x.npz").write_bytes(whole[:middle] + bytes(64) + whole[middle + 64 :])
    with pytest.raises(FileError, match="cut short or damaged"):
        load_array(tmp_path / "x.npz")


def test_forged_header_of_a_huge_array(tmp_path: Path) -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 1000000), }"
    header = header.ljust(117) + b"\n"
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64))
    with pytest.raises(FileError, match="cut short or damaged"):
        load_array(tmp_path / "x.npy")


def test_archive_members_that_are_not_arrays(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(FileError, match="holds no array"):
        load_array(tmp_path / "x.npz")
    with zipfile.ZipFile(tmp_path / "y.npz", "w"):
        pass
    with pytest.raises(FileError, match="holds 0 arrays"):
        load_array(tmp_path / "y.npz")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.ones(2, np.complex64), "holds complex numbers"),
        (np.array(["1.0"]), "holds <U3, not numbers"),
        (np.array(["2020-01-01"], "M8[D]"), "not numbers"),
        (np.zeros(2, [("a", "f4"), ("b", "f4")]), "not numbers"),
        (np.zeros(2, "V2"), "not numbers of a type NumPy knows"),
        (np.zeros((0, 3)), "holds no numbers"),
    ],
)
def test_arrays_without_real_numbers(tmp_path: Path, values: Any, message: str) -> None:
    np.save(tmp_path / "x.npy", values)
    with pytest.raises(FileError, match=message):
        load_array(tmp_path / "x.npy")


def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.npy"
    np.save(file, np.ones(2))

    def refuse(*_: Any, **__: Any) -> Any:  # what the system says to anyone but a superuser, who may read everything
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(FileError, match="no permission"):
        load_array(file)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    write_new(file, b"one")
    with pytest.raises(FileError, match="exists and is left as it is"):
        write_new(file, b"two")
    assert file.read_bytes() == b"one"
    with pytest.raises(FileError, match="no such file or folder"):
        write_new(tmp_path / "no" / "out.json", b"")
    with pytest.raises(FileError, match="exists and is left as it is"):
        write_new(tmp_path, b"")
