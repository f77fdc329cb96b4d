"""Mechanisms that are another formula for the same thing: legitimate, and often much less accurate."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from fpsim.explaining.mechanisms import Prediction, mechanism
from fpsim.explaining.observation import Case
from fpsim.explaining.operations import accumulator_of, normalised, terms_of
from fpsim.explaining.reductions import orders
from fpsim.formats import Format, round_to


def native(form: Format) -> Any:
    """Return NumPy's type of a format that it has, float32 for narrower ones."""
    return np.float64 if form.precision > 24 else np.float16 if form.precision == 11 else np.float32


def _out(case: Case, value: Any, shape: tuple[int, ...] | None = None) -> Any:
    with np.errstate(all="ignore"):
        value = np.asarray(round_to(np.asarray(value, np.float64), case.result))
    return value if shape is None else value.reshape(shape)


def _total(terms: Any, text: str) -> Any:
    from fpsim import emulation

    return np.asarray(emulation.sum(terms, text, axis=1))


def _acc(kind: Any) -> str:
    return "+acc(float64)" if kind is np.float64 else ""


# -- means ------------------------------------------------------------------------------------------------------------


@mechanism(
    "sum times 1/n, or of terms divided first", "rounding", "mean", rank=8,
    switch="divide the sum by n once", foresees="means of equal numbers that are not that number",
)  # fmt: skip
def _mean_by_reciprocal(case: Case) -> Iterator[Prediction]:
    terms, shape = terms_of(case)
    kind = native(accumulator_of(case))
    n = terms.shape[1]
    part = kind(1) / kind(n)
    listed = orders(case)
    scaled = terms.astype(kind) * part
    divided = terms.astype(kind) / kind(n)
    for order, rank in listed:
        text = order + _acc(kind)
        yield Prediction(
            f"({text}) times 1/n",
            rank,
            partial(lambda t: _out(case, _total(terms.astype(kind), t) * part, shape), text),
        )
        yield Prediction(
            f"{text} of x times 1/n", rank + 1, partial(lambda t: _out(case, _total(scaled, t), shape), text)
        )
        yield Prediction(f"{text} of x / n", rank + 2, partial(lambda t: _out(case, _total(divided, t), shape), text))


# -- variances --------------------------------------------------------------------------------------------------------


@mechanism(
    "one-pass variance", "rounding", "var std", rank=4,
    switch="two passes: subtract the mean first, or shift the data", foresees="variances that are 0 or negative",
)  # fmt: skip
def _one_pass(case: Case) -> Iterator[Prediction]:
    terms, shape = terms_of(case)
    kind = native(accumulator_of(case))
    n = terms.shape[1]

    def compute(text: str, expanded: bool) -> Any:
        x = terms.astype(kind)
        with np.errstate(all="ignore"):
            total, squares = _total(x, text).astype(kind), _total(x * x, text).astype(kind)
            divisor = kind(max(n - case.get("ddof", 0), 0))
            if expanded:
                var = (squares - total * total / kind(n)) / divisor
            else:
                var = (squares / kind(n) - (total / kind(n)) ** 2) * (kind(n) / divisor)
            return _out(case, np.sqrt(var) if case.op == "std" else var, shape)

    for order, rank in orders(case)[:40]:
        for expanded in (False, True):
            told = "(sum of x**2 - (sum of x)**2/n) / (n - ddof)" if expanded else "mean of x**2 - (mean of x)**2"
            yield Prediction(f"{told}, {order}", rank, partial(compute, order + _acc(kind), expanded))


@mechanism(
    "Welford's updates", "rounding", "var std", rank=6,
    switch="the same formula on both sides (two passes or Welford's)", foresees="0 for equal numbers",
)  # fmt: skip
def _welford(case: Case) -> Iterator[Prediction]:
    terms, shape = terms_of(case)
    n = terms.shape[1]
    if n > 100_000:
        return

    def compute(kind: Any) -> Any:
        with np.errstate(all="ignore"):
            mean, m2 = np.zeros(len(terms), kind), np.zeros(len(terms), kind)
            for i in range(n):
                x = terms[:, i].astype(kind)
                delta = x - mean
                mean = mean + delta / kind(i + 1)
                m2 = m2 + delta * (x - mean)
            var = m2 / kind(max(n - case.get("ddof", 0), 0))
            return _out(case, np.sqrt(var) if case.op == "std" else var, shape)

    for number, kind in enumerate((native(accumulator_of(case)), np.float64)):
        yield Prediction(f"Welford's updates in {np.dtype(kind).name}", number, partial(compute, kind))


@mechanism(
    "two passes with a rounded mean", "rounding", "var std", rank=5,
    switch="subtract the mean in a wider format", foresees="small nonzero deviations of equal numbers",
)  # fmt: skip
def _rounded_mean(case: Case) -> Iterator[Prediction]:
    terms, shape = terms_of(case)
    kind = native(accumulator_of(case))
    n = terms.shape[1]

    def compute(text: str, mean_kind: Any) -> Any:
        x = terms.astype(kind)
        with np.errstate(all="ignore"):
            mean = (_total(x, text).astype(mean_kind) / mean_kind(n)).astype(mean_kind)
            deviation = (x - mean[:, None]).astype(np.float64)
            var = np.asarray((deviation**2).sum(axis=1) / max(n - case.get("ddof", 0), 0))
            return _out(case, np.sqrt(var) if case.op == "std" else var, shape)

    for order, rank in orders(case)[:40]:
        yield Prediction(f"mean by {order}, the rest in float64", rank, partial(compute, order + _acc(kind), kind))


@mechanism(
    "update that removes and adds", "rounding", "rolling_var", rank=2,
    switch="compute each window anew", foresees="small negative variances after large values have left the window",
)  # fmt: skip
def _rolling_updates(case: Case) -> Iterator[Prediction]:
    for first in ("remove", "add"):
        for kind in (native(case.result), np.float64):
            yield Prediction(
                f"Welford's updates, {first} first, in {np.dtype(kind).name}", int(first == "add"),
                partial(_rolling, case, first, kind),
            )  # fmt: skip
    yield Prediction("running sums of x and x**2", 2, partial(_rolling_sums, case, native(case.result)))


def _rolling(case: Case, first: str, kind: Any) -> Any:
    x, window, ddof = case.x.astype(kind), int(case.get("window", 1)), case.get("ddof", 1)
    mean, m2, count = kind(0), kind(0), 0
    out = []

    def add(value: Any) -> None:
        nonlocal mean, m2, count
        count += 1
        delta = value - mean
        mean = mean + delta / kind(count)
        m2 = m2 + delta * (value - mean)

    def remove(value: Any) -> None:
        nonlocal mean, m2, count
        count -= 1
        delta = value - mean
        mean = mean - delta / kind(count)
        m2 = m2 - delta * (value - mean)

    with np.errstate(all="ignore"):
        for i, value in enumerate(x):
            if i >= window and first == "remove":
                remove(x[i - window])
            add(value)
            if i >= window and first == "add":
                remove(x[i - window])
            if i >= window - 1:
                out.append(m2 / kind(max(window - ddof, 0)))
    return _out(case, np.array(out))


def _rolling_sums(case: Case, kind: Any) -> Any:
    x, w = case.x.astype(kind), int(case.get("window", 1))
    total, squares = kind(0), kind(0)
    out = []
    with np.errstate(all="ignore"):
        for i, value in enumerate(x):
            total, squares = total + value, squares + value * value
            if i >= w:
                total, squares = total - x[i - w], squares - x[i - w] * x[i - w]
            if i >= w - 1:
                out.append((squares - total * total / kind(w)) / kind(max(w - case.get("ddof", 1), 0)))
    return _out(case, np.array(out))


# -- distances, ramps -------------------------------------------------------------------------------------------------


@mechanism(
    "expanded distance", "rounding", "distance", rank=3,
    switch="direct differences: compute_mode='donot_use_mm_for_euclid_dist', or float64",
    foresees="0, NaN or wrong digits for points that are near to each other",
)  # fmt: skip
def _expanded_distance(case: Case) -> Iterator[Prediction]:
    n = np.atleast_2d(case.x).shape[1]
    texts = [(f"lanes({k})", i) for i, k in enumerate((4, 8, 16, 32, 64, 2, 128)) if k < n]
    for text, rank in [("serial", 0), *texts, ("numpy_sum", 1), ("pairwise", 3)]:
        for fma in ("", "+fma"):
            for last in (np.float32, np.float64):
                told = f"sqrt(a.a - 2 a.b + b.b), dots by {text}{fma}, joined in {np.dtype(last).name}"
                yield Prediction(
                    told, rank + bool(fma) + 3 * (last is np.float64), partial(_expanded, case, text + fma, last)
                )


def _expanded(case: Case, text: str, last: Any) -> Any:
    from fpsim import emulation

    kind = native(accumulator_of(case))
    a, b = (np.atleast_2d(x).astype(kind) for x in case.inputs[:2])
    text += _acc(kind)
    aa, bb = (np.array([emulation.dot(p, p, text) for p in x]) for x in (a, b))
    ab = np.asarray(emulation.matmul(a, np.ascontiguousarray(b.T), text))
    with np.errstate(all="ignore"):
        squared = (aa.astype(last)[:, None] - last(2) * ab.astype(last)) + bb.astype(last)[None, :]
        clipped = case.get("clip", False)
        root = np.sqrt(np.maximum(squared, 0) if clipped else squared)
        return root.astype(np.float64) if last is np.float64 else _out(case, root)


@mechanism(
    "direct distance", "rounding", "distance", switch="", foresees="full accuracy for near points",
)  # fmt: skip
def _direct_distance(case: Case) -> Iterator[Prediction]:
    def compute(text: str) -> Any:
        kind = native(accumulator_of(case))
        a, b = (np.atleast_2d(x).astype(kind) for x in case.inputs[:2])
        squares = np.stack([_total((p - b) ** 2, text + _acc(kind)) for p in a])
        return _out(case, np.sqrt(squares.astype(kind)))

    n = np.atleast_2d(case.x).shape[1]
    texts = ["serial", "numpy_sum", "pairwise", *(f"lanes({k})" for k in (4, 8, 16, 32) if k < n)]
    for rank, text in enumerate(texts):
        yield Prediction(f"sqrt(sum of (a-b)**2), {text}", rank, partial(compute, text))


@mechanism(
    "another formula for the points", "rounding", "linspace", rank=1,
    switch="start + i*step with the step in float64", foresees="single points that are an ulp off",
)  # fmt: skip
def _points(case: Case) -> Iterator[Prediction]:
    kind = native(accumulator_of(case))

    def compute(which: str) -> Any:
        start, end, n = (kind(x) for x in case.inputs[:3])
        i = np.arange(int(n)).astype(kind)
        last = n - kind(1)
        step = (end - start) / last
        backwards = end - step * (last - i)
        return {
            "start + i*step": start + i * step,
            "start + i*(end-start)/(n-1)": start + i * (end - start) / last,
            "start + (end-start)*(i/(n-1))": start + (end - start) * (i / last),
            "from both ends": np.where(i < n / 2, start + i * step, backwards),
            "end - (n-1-i)*step": backwards,
            "start*(1-t) + end*t": start * (1 - i / last) + end * (i / last),
            "running sum of steps": np.add.accumulate(
                np.concatenate([[start], np.full(int(n) - 1, step)]).astype(kind)
            ),
        }[which]

    names = ("start + i*step", "start + i*(end-start)/(n-1)", "start + (end-start)*(i/(n-1))", "from both ends",
             "end - (n-1-i)*step", "start*(1-t) + end*t", "running sum of steps")  # fmt: skip
    for rank, name in enumerate(names):
        yield Prediction(f"{name} in {np.dtype(kind).name}", rank, partial(compute, name))


# -- normalisations ---------------------------------------------------------------------------------------------------


@mechanism(
    "statistics kept in low precision", "reduced", "layer_norm instance_norm rms_norm", rank=2,
    switch="normalise in float32 and round at the end", foresees="an ulp or two of the narrow format, in one direction",
)  # fmt: skip
def _narrow_statistics(case: Case) -> Iterator[Prediction]:
    x = np.asarray(case.x, np.float64)

    def compute(steps: int) -> Any:
        calls = 0

        def rounded(v: Any) -> Any:
            nonlocal calls
            calls += 1
            if (steps < 0 or calls <= steps) and not np.isfinite(
                np.asarray(round_to(np.asarray(v, np.float64), case.result))
            ).all():
                return np.full(np.shape(v), np.nan)  # out of range, which is a mechanism of its own
            return np.asarray(round_to(np.asarray(v, np.float64), case.result)) if calls <= steps or steps < 0 else v

        if steps == 0:
            return _out(case, _stored_statistics(case, x))
        return _out(case, normalised(case, x, rounded))

    if case.result.precision < 53 and case.op != "rms_norm":
        yield Prediction(f"mean and 1/std rounded to {case.result}", 0, partial(compute, 0))
    if case.result.precision < 24:
        yield Prediction(f"every step in {case.result}", 1, partial(compute, -1))
        yield Prediction(f"mean rounded to {case.result}", 2, partial(compute, 1))


def _stored_statistics(case: Case, x: Any) -> Any:
    axes = tuple(range(2, x.ndim)) if case.op == "instance_norm" and x.ndim > 2 else (-1,)

    def low(v: Any) -> Any:
        return np.asarray(round_to(v, case.result))

    mean = x.mean(axis=axes, keepdims=True)
    inverse = low(1 / np.sqrt(x.var(axis=axes, keepdims=True) + float(case.get("eps", 1e-5))))
    return low(low(x - low(mean)) * inverse)
