"""What users hold, as float arrays: types, layouts, devices, and refusals that say the way out."""

from __future__ import annotations

import subprocess
import sys
import types
from typing import Any

import numpy as np
import pytest

import fpsim
from fpsim._arrays import as_floats
from fpsim.formats import BFLOAT16, E4M3FN, E5M2, FLOAT16, FLOAT32, FLOAT64, Format


@pytest.mark.parametrize(("dtype", "form"), [(np.float16, FLOAT16), (np.float32, FLOAT32), (np.float64, FLOAT64)])
def test_native_floats_are_not_copied_and_keep_their_layout(dtype: Any, form: Format) -> None:
    x = np.arange(24, dtype=dtype).reshape(2, 3, 4)
    for view in (x, x.T, x[:, ::-1, ::2], np.broadcast_to(x[0, 0], (5, 4)), x[0, 0, 0:0]):
        got, got_form = as_floats(view)
        assert got_form is form
        assert got.strides == view.strides
        assert got.dtype == dtype
        assert view.size == 0 or np.shares_memory(got, x)
    x.flags.writeable = False
    assert np.shares_memory(as_floats(x)[0], x)


def test_scalars_lists_and_empty() -> None:
    for x, shape, form in (
        (1.5, (), FLOAT64),
        (3, (), FLOAT64),
        (True, (), FLOAT64),
        (np.float32(1.5), (), FLOAT32),
        ([[1, 2.5], [3, 4]], (2, 2), FLOAT64),
        ([], (0,), FLOAT64),
        (np.zeros((0, 3), np.float16), (0, 3), FLOAT16),
        ([np.float32(1), np.float32(2)], (2,), FLOAT32),
        (range(4), (4,), FLOAT64),
    ):
        got, got_form = as_floats(x)
        assert (got.shape, got_form) == (shape, form)
        assert got.tolist() == np.asarray(x).tolist()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_byte_order_and_alignment(dtype: str) -> None:
    x = np.arange(12, dtype=dtype).reshape(3, 4)
    for order in "<>":
        got, _ = as_floats(x.astype(order + dtype).T)
        assert got.dtype.isnative
        assert got.strides == x.T.strides
        assert np.array_equal(got, x.T)
    buffer = np.zeros(1 + x.nbytes, np.uint8)
    buffer[1:] = np.frombuffer(x.tobytes(), np.uint8)
    unaligned = buffer[1:].view(dtype).reshape(3, 4)
    assert not unaligned.flags.aligned
    got, _ = as_floats(unaligned)
    assert got.flags.aligned
    assert np.array_equal(got, x)


def test_integers_are_exact_or_refused() -> None:
    for dtype in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64):
        info = np.iinfo(dtype)
        x = np.array([info.min, 0, 1, info.max if info.bits < 64 else 2**62], dtype)
        got, form = as_floats(x)
        assert form is FLOAT64
        assert [int(v) for v in got] == [int(v) for v in x]
    exact = [2**53, -(2**53), 2**53 + 2, -(2**63), 2**62 + 2**10, 2**63 - 2**10, -1, -(2**32), -(2**32) - 1]
    assert [int(v) for v in as_floats(np.array(exact))[0]] == exact
    assert as_floats(np.array([2**64 - 2**11, 2**63], np.uint64))[0].tolist() == [2.0**64 - 2**11, 2.0**63]
    for inexact in (2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63) + 1, 2**62 + 2**9, 2**64 - 1):
        with pytest.raises(fpsim.InputError, match=rf"data holds {inexact}, which float64 does not hold exactly"):
            as_floats([0, inexact], name="data")
    assert as_floats([2**70, 1])[0].tolist() == [2.0**70, 1.0]
    assert as_floats(2**200)[0] == 2.0**200
    for inexact in (2**70 + 1, 2**1024):
        with pytest.raises(fpsim.InputError, match="does not hold exactly"):
            as_floats([inexact])
    assert as_floats([2**63, -1, 1e300, np.float32(1e20)])[0].tolist() == [
        2.0**63,
        -1.0,
        1e300,
        float(np.float32(1e20)),
    ]
    with pytest.raises(fpsim.InputError, match="does not hold exactly"):
        as_floats([[0.5, 2**53 + 1]])  # NumPy alone would round it
    assert as_floats(np.array([True, False]))[0].tolist() == [1.0, 0.0]


def test_integers_near_the_edge_against_python() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-(2**63), 2**63 - 1, 3000) >> rng.integers(0, 20, 3000) << rng.integers(0, 12, 3000)
    for value in x.tolist():
        if int(float(value)) == value:
            assert as_floats(value)[0] == value
        else:
            with pytest.raises(fpsim.InputError):
                as_floats(value)


def test_long_double() -> None:
    x = np.array([1.5, -np.inf, np.nan, 0.0], np.longdouble)
    got, form = as_floats(x)
    assert form is FLOAT64
    np.testing.assert_array_equal(got, [1.5, -np.inf, np.nan, 0.0])
    if np.dtype(np.longdouble).itemsize > 8:
        for inexact in (np.longdouble(1) + np.finfo(np.longdouble).eps, np.finfo(np.longdouble).max):
            with pytest.raises(fpsim.InputError, match="does not hold exactly"):
                as_floats(np.array([inexact]))


@pytest.mark.parametrize(
    ("name", "form"),
    [("bfloat16", BFLOAT16), ("float8_e4m3fn", E4M3FN), ("float8_e5m2", E5M2), ("float8_e4m3", Format("", 4, -6, 7))],
)
def test_ml_dtypes(name: str, form: Format) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.array([[1.0, -0.5, 0.0], [2.0, -0.0, np.inf]], np.float32).astype(getattr(ml_dtypes, name)).T
    got, got_form = as_floats(x)
    assert got_form == form
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, x.astype(np.float32))
    assert np.signbit(got[1, 1])


def test_ml_dtypes_without_a_format_is_refused() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with pytest.raises(fpsim.InputError, match="float8_e4m3b11fnuz, which has no format here; convert it to float32"):
        as_floats(np.zeros(2, ml_dtypes.float8_e4m3b11fnuz))


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (np.zeros(2, complex), r"data is complex; pass data\.real and data\.imag"),
        (1j, "complex"),
        (["1.5"], "not numbers; convert it"),
        ("1.5", "not numbers"),
        (b"bytes", "not numbers"),
        (np.zeros(1, "M8[s]"), "datetime64"),
        (np.zeros(1, [("a", "f4")]), "not numbers"),
        (np.zeros(1, "V4"), "no format here"),
        ([[1.0], [1.0, 2.0]], "cannot be read as an array of numbers"),
        ([None], "NoneType"),
        (None, "NoneType"),
        ({"a": 1}, "dict"),
        (np.ma.masked_array([1.0, 2.0], [True, False]), r"masked array; pass data\.compressed\(\) or data\.filled"),
    ],
)
def test_what_holds_no_real_numbers_is_refused(x: Any, says: str) -> None:
    with pytest.raises(fpsim.InputError, match=says):
        as_floats(x, name="data")


def test_masked_array_with_nothing_masked_is_data() -> None:
    assert as_floats(np.ma.masked_array([1.0, 2.0]))[0].tolist() == [1.0, 2.0]


class ArrayLike:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray([1.0, 2.0], np.float32)


def test_array_protocol() -> None:
    got, form = as_floats(ArrayLike())
    assert (got.tolist(), form) == ([1.0, 2.0], FLOAT32)


# --- stand-ins with the behaviour of libraries that the tests do not need --------------------------------------------


class FakeTensor:
    """Refuses what torch.Tensor refuses: `numpy()` with a gradient, off the CPU, or of a dtype that NumPy lacks."""

    def __init__(self, bits: Any, dtype: str, *, device: str = "cpu", grad: bool = False, layout: str = "strided"):
        self.bits, self.dtype, self.device, self.grad = bits, f"torch.{dtype}", device, grad
        self.layout = f"torch.{layout}"

    def _with(self, **changes: Any) -> FakeTensor:
        new = FakeTensor.__new__(FakeTensor)
        new.__dict__.update(self.__dict__, **changes)
        return new

    def detach(self) -> FakeTensor:
        return self._with(grad=False)

    def cpu(self) -> FakeTensor:
        return self if self.device == "cpu" else self._with(device="cpu", bits=self.bits.copy())

    def resolve_neg(self) -> FakeTensor:
        return self

    def view(self, dtype: str) -> FakeTensor:
        return self._with(dtype=f"torch.{dtype}", bits=self.bits.view(dtype))

    def numpy(self) -> Any:
        if self.grad or self.device != "cpu":
            message = "call detach() and cpu() first"
            raise RuntimeError(message)
        if self.dtype.removeprefix("torch.") not in {"float16", "float32", "float64", "int16", "uint8", "int64"}:
            message = f"Got unsupported ScalarType {self.dtype}"
            raise TypeError(message)
        return self.bits

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        message = "tensors are read through numpy()"
        raise AssertionError(message)


FakeTensor.__module__ = "torch"


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    module: Any = types.ModuleType("torch")
    module.int16, module.uint8 = "int16", "uint8"
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.usefixtures("torch")
def test_torch_tensors(device: str, grad: bool) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3).T
    got, form = as_floats(FakeTensor(x, "float32", device=device, grad=grad))
    assert form is FLOAT32
    assert np.array_equal(got, x)
    assert np.shares_memory(got, x) == (device == "cpu")
    assert device != "cpu" or got.strides == x.strides
    got, form = as_floats(FakeTensor(np.array([3, 4]), "int64", device=device, grad=grad))
    assert (got.tolist(), form) == ([3.0, 4.0], FLOAT64)


@pytest.mark.usefixtures("torch")
def test_torch_bfloat16_by_its_bits() -> None:
    words = np.arange(2**16, dtype=np.uint16).reshape(256, 256).T
    got, form = as_floats(FakeTensor(words, "bfloat16", device="cuda:0", grad=True))
    assert form is BFLOAT16
    np.testing.assert_array_equal(got.view(np.uint32), words.astype(np.uint32) << 16)
    assert BFLOAT16.contains(got).all()


@pytest.mark.parametrize(("kind", "form"), [("float8_e4m3fn", E4M3FN), ("float8_e5m2", E5M2)])
@pytest.mark.usefixtures("torch")
def test_torch_float8_by_its_bits(kind: str, form: Format) -> None:
    codes = np.arange(256, dtype=np.uint8)
    got, got_form = as_floats(FakeTensor(codes, kind, grad=True))
    assert got_form == form
    finite = got[np.isfinite(got)]
    assert finite.size == (254 if form == E4M3FN else 248)
    assert (finite.max(), finite.min()) == (form.max, form.min)
    assert form.contains(got).all()
    assert np.unique(finite).size == finite.size - 1  # the two zeros
    assert np.signbit(got[128])
    assert got[1] == form.smallest_subnormal
    np.testing.assert_array_equal(got[:128], -got[128:])
    ml_dtypes = pytest.importorskip("ml_dtypes")
    np.testing.assert_array_equal(got, codes.view(getattr(ml_dtypes, kind)).astype(np.float32))


@pytest.mark.usefixtures("torch")
def test_torch_tensors_that_are_refused() -> None:
    with pytest.raises(fpsim.InputError, match=r"x is a tensor of layout torch\.sparse_coo; pass x\.to_dense\(\)"):
        as_floats(FakeTensor(np.zeros(2), "float32", layout="sparse_coo"))
    with pytest.raises(fpsim.InputError, match="unknown format 'float8_e4m3b11fnuz'"):
        as_floats(FakeTensor(np.zeros(2, np.uint8), "float8_e4m3b11fnuz"))
    with pytest.raises(fpsim.InputError, match="cannot be read as an array of numbers: Got unsupported ScalarType"):
        as_floats(FakeTensor(np.zeros(2), "qint8"))


def test_device_arrays_come_through_their_own_copy() -> None:
    values = np.arange(3, dtype=np.float16)

    class CupyArray:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            message = "implicit conversion to a NumPy array is not allowed"
            raise TypeError(message)

        def get(self, order: str) -> Any:
            assert order == "A"
            return values

    CupyArray.__module__ = "cupy._core.core"
    assert as_floats(CupyArray())[1] is FLOAT16

    class DeviceArray:
        def copy_to_host(self) -> Any:
            return values

    DeviceArray.__module__ = "numba.cuda.cudadrv.devicearray"
    assert as_floats(DeviceArray())[0].tolist() == [0.0, 1.0, 2.0]


def test_no_array_library_is_imported() -> None:
    code = (
        "import sys, fpsim._arrays as a; a.as_floats([1.0]);"
        "print(sorted({'torch', 'jax', 'cupy', 'numba', 'ml_dtypes'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
