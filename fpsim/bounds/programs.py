"""The worst-case bound of a program, for data of any size.

A is the sum of the magnitudes of the terms, s the exact sum, v the largest relative error of one rounding; sums of
log1p(v) along a path are called growth (see `fpsim.bounds.growth_bound`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fpsim.arithmetic import Arithmetic, Rounding
from fpsim.bounds.formulas import (
    compensated_bound,
    fused_add_error,
    growth_bound,
    growth_factor,
    kahan_bound,
    real_sum_bound,
    relative_rounding_error,
    sum_bound,
    uncorrected_bound,
    underflow_error,
)
from fpsim.errors import InputError
from fpsim.formats import FLOAT16, FLOAT32, FLOAT64, Format
from fpsim.programs import LEAF, Program

Operation = Literal["sum", "dot", "matmul"]
OPERATIONS: tuple[Operation, ...] = ("sum", "dot", "matmul")

# The bounds themselves are evaluated in float64; this covers its rounding errors.
SLACK = 1.0 + 2.0**-40


@dataclass(frozen=True, slots=True)
class WorstCase:
    """The worst-case bound of one program, for data of any size.

    Attributes
    ----------
    relative, absolute : float
        Before the last rounding steps, abs(computed - s) <= relative*A + absolute.
    last : float
        Relative error of the last steps (closing a compensated sum, rounding to the output), with respect to s.
    last_absolute : float
        Underflow error of the last steps.
    peak : float
        No intermediate result is larger than peak*A + absolute.
    limit : float
        Largest finite number of the narrowest format that intermediate results pass.
    """

    relative: float
    absolute: float
    last: float
    last_absolute: float
    peak: float
    limit: float

    def bound(self, magnitude: Any, /, *, value: Any = None) -> Any:
        """Return the largest possible abs(computed - s).

        Parameters
        ----------
        magnitude : array_like of float
            A, the sum of the magnitudes of the terms, or more.
        value : array_like of float, optional
            abs(s) or more; A by default.

        Returns
        -------
        ndarray of float64 or scalar
            Infinite where an intermediate result might overflow, or where no bound is known.
        """
        a = np.asarray(magnitude, np.float64)
        s = a if value is None else np.minimum(np.abs(np.asarray(value, np.float64)), a)
        with np.errstate(all="ignore"):
            before = self.relative * a + self.absolute
            total = before + self.last * (s + before) + self.last_absolute
            safe = self.peak * a + self.absolute <= self.limit
            out = np.where(safe & np.isfinite(total), total * SLACK, math.inf)
            none = (a == 0.0) & (self.absolute + self.last_absolute == 0.0)
        return np.where(none, 0.0, out)[()]


@dataclass(frozen=True, slots=True)
class _Part:
    """A term of a fold, or the raw result of one: its format (None: a real number) and its growths.

    `entry` counts the roundings that nothing compensates; `inner` and `errors` are those of the running sum and of the
    collected errors of a compensated region, 0 outside one. `absolute` adds up underflow errors, not yet amplified.
    `exact` says that the errors of the additions are found exactly, `carries` that there are collected ones.
    """

    form: Format | None
    entry: float = 0.0
    inner: float = 0.0
    errors: float = 0.0
    absolute: float = 0.0
    exact: bool = True
    carries: bool = False


def worst_case(op: str, program: Program, arithmetic: Arithmetic, /, *, data: Format | None = None) -> WorstCase:
    """Return the worst-case bound of a program.

    Parameters
    ----------
    op : {"sum", "dot", "matmul"}
        A sum, or a sum of products.
    program : Program
        The tree, `Strategy.program`.
    arithmetic : Arithmetic
        That of the whole strategy, `Strategy.arithmetic`.
    data : Format, optional
        Format of the terms of a sum; `Arithmetic.operand_format` by default.

    Returns
    -------
    WorstCase
        Of the operands after they were rounded to the operand format; see `bound` for the rest.

    Notes
    -----
    The rule for mixed formats is node-wise: a leaf's error is at most (product of (1 + v_k) over the roundings on its
    path) - 1 times its magnitude, and the largest path counts for all. Where one format is used throughout, to
    nearest, the smaller of that and `sum_bound` or `real_sum_bound` is taken. Kahan, Neumaier and Dot2 parts of the
    tree enter with their own bounds.
    """
    check_operation(op)
    from fpsim._execution import closing_folds

    closing = closing_folds(program)
    raw: list[_Part] = []
    peaks = [0.0]
    for node, row in enumerate(program.nodes.tolist()):
        own = program.arithmetics[row[3]]
        if own.terms:
            children = program.children(node)
            before = [raw[child] for _, child in children if child != LEAF]
            leaf_count = sum(times for times, child in children if child == LEAF)
            raw.append(_fused_fold(op, before, leaf_count, own, data or arithmetic.operand_format))
            peaks.append(raw[-1].entry)
            continue
        terms: list[tuple[int, _Part]] = []
        for times, child in program.children(node):
            if child == LEAF:
                first, later = _leaves(op, own, data or arithmetic.operand_format)
                terms += [(1, first), (times - 1, later)] if not terms and row[2] == 0 else [(times, later)]
            else:
                inner = program.arithmetics[int(program.nodes[child, 3])]
                terms.append((times, _closed(raw[child], inner) if closing[child] else raw[child]))
        part, peak = _fold([term for term in terms if term[0]], own)
        raw.append(part)
        peaks += [peak, *(term.entry + term.inner for times, term in terms if times)]
    root = program.arithmetics[int(program.nodes[-1, 3])]
    return _finish(op, program, arithmetic, root, raw[-1], max(peaks), data or arithmetic.operand_format)


def _finish(
    op: str, program: Program, arithmetic: Arithmetic, root: Arithmetic, part: _Part, peak: float, data: Format
) -> WorstCase:
    relative = growth_bound(part.entry)
    amplified = growth_factor(part.entry + part.inner + part.errors)
    top = growth_factor(peak)
    last, last_absolute = 0.0, 0.0
    flush = _flushes(root)
    if root.compensation in ("neumaier", "dot2"):
        relative += growth_factor(part.entry) * _region(part, root)
        last = relative_rounding_error(root.accumulator)
        last_absolute = underflow_error(root.accumulator, flush=True) if flush else 0.0
    one_format = one_format_bound(op, program, root, data)
    if one_format < relative:
        relative, top, amplified = one_format, 1.0 + one_format, 1.0 + one_format
    # A lone sum of another format stays in it; closing a compensated sum rounds to the accumulator.
    lone = part.form if root.compensation not in ("neumaier", "dot2") else None
    form = lone or root.accumulator.format
    steps = [] if root.output is None else [root.output]
    for step in [*steps, Rounding(_storage(arithmetic.result_format))]:
        flushed = flush and step is root.output
        if flushed or not step.format.includes(form):
            v = relative_rounding_error(step)
            last = last + v + last * v
            last_absolute = last_absolute * (1.0 + v) + underflow_error(step, flush=flushed)
        form = step.format
    products = op != "sum"
    formats = [a.accumulator.format for a in program.arithmetics]
    formats += [a.product for a in program.arithmetics if products and a.product is not None]
    formats += [a.output.format for a in program.arithmetics if a.output is not None]
    limit = min(f.max for f in [*formats, _storage(arithmetic.result_format)])
    absolute = part.absolute * amplified if part.absolute else 0.0
    return WorstCase(relative, absolute, last, last_absolute, top * (1.0 + last), limit)


def _storage(form: Format) -> Format:
    """Return the NumPy type that results of this format come in."""
    if form == FLOAT16:
        return FLOAT16
    return FLOAT32 if FLOAT32.includes(form) else FLOAT64


def _flushes(a: Arithmetic) -> bool:
    return a.ftz or not a.accumulator.format.subnormals


def _leaves(op: str, a: Arithmetic, data: Format) -> tuple[_Part, _Part]:
    """Return the first leaf of a fold and any later one, as they reach the accumulator."""
    if op == "sum":
        return _Part(data), _Part(data)
    rounding = Rounding(a.product or a.accumulator.format, a.accumulator.mode)
    growth = math.log1p(relative_rounding_error(rounding))
    absolute = underflow_error(rounding, flush=a.ftz)
    product = _Part(rounding.format, entry=growth, absolute=absolute)
    if a.compensation == "dot2":
        # The error of the product is rounded to the accumulator, added to that of the addition, then collected.
        own = math.log1p(relative_rounding_error(a.accumulator))
        absolute = 4.0 * (absolute + underflow_error(a.accumulator, flush=a.ftz))
        exact = rounding.mode.startswith("nearest")
        product = _Part(rounding.format, inner=growth, errors=own, absolute=absolute, exact=exact)
        return product, product
    return (product, _Part(None)) if a.fma else (product, product)


def _fold(terms: list[tuple[int, _Part]], a: Arithmetic) -> tuple[_Part, float]:
    """Return the raw result of a left fold, and the growth of the largest partial sum."""
    form = a.accumulator.format
    if not terms:
        return _Part(form), 0.0
    wide = any(not _on_grid(term.form, form) for _, term in terms)
    eta = underflow_error(a.accumulator, flush=a.ftz) if wide or _flushes(a) else 0.0
    if a.compensation == "kahan":
        return _kahan_fold(terms, a, eta)
    v = relative_rounding_error(a.accumulator)
    step = math.log1p(v)
    region = a.compensation is not None
    total: _Part | None = None
    exact = a.accumulator.mode.startswith("nearest")
    absolute = 0.0
    for given_times, term in terms:
        times = given_times
        fits = term.form is not None and form.includes(term.form)
        exact = exact and term.exact and fits
        absolute += times * term.absolute
        if total is None:
            total = replace(term, entry=term.entry + (0.0 if fits else step), carries=region)
            absolute += eta
            times -= 1
        if not times:
            continue
        absolute += times * eta * (8.0 if region else 1.0)
        entry, inner = max(total.entry, term.entry), max(total.inner, term.inner)
        if region:
            # Each addition's error is rounded once as it is collected; before, with that of a product; after, with
            # those that the term brings along.
            slots = 1 + (a.compensation == "dot2") + term.carries
            errors = max(total.errors, term.errors) + times * slots * step
            total = _Part(form, entry, inner + times * step, errors, carries=True)
        else:
            total = _Part(form, entry + times * step)
    assert total is not None
    result_form = total.form if total.form is not None else form
    peak = total.entry + total.inner + (math.log(2.0) if region else 0.0)
    return replace(total, form=result_form, absolute=absolute, exact=exact), peak


def _fused_fold(op: str, before: list[_Part], leaf_count: int, a: Arithmetic, data: Format) -> _Part:
    """Return the result of a chain of fused adds, which starts from the sum `before` if there is one."""
    assert a.align is not None
    bits, result = a.align.bits, a.align.result
    adds = -(-leaf_count // a.terms)
    terms = min(a.terms, leaf_count)
    step = math.log1p(fused_add_error(terms, bits, result))
    # A subnormal operand or accumulator counts with the smallest exponent of its format, which can be the largest one.
    left, right = (data if own is None else own.format for own in (a.operand("a"), a.operand("b")))
    power = max(left.emin, result.format.emin)
    if op != "sum":
        power = max(left.emin + right.emax, left.emax + right.emin, result.format.emin)
    lost = (terms + 1) * math.ldexp(1.0, power - bits) + underflow_error(result, flush=a.ftz)
    entry = max((part.entry for part in before), default=0.0) + adds * step
    return _Part(result.format, entry, absolute=adds * lost + sum(part.absolute for part in before))


def _kahan_fold(terms: list[tuple[int, _Part]], a: Arithmetic, eta: float) -> tuple[_Part, float]:
    count = sum(times for times, _ in terms)
    relative, underflows = kahan_bound(count, relative_rounding_error(a.accumulator))
    entry = max(term.entry for _, term in terms) + math.log1p(relative)
    absolute = sum(times * term.absolute for times, term in terms) + (underflows * eta if eta else 0.0)
    return _Part(a.accumulator.format, entry, absolute=absolute), entry + math.log(4.0)


def _on_grid(form: Format | None, target: Format) -> bool:
    """Whether sums of numbers of `form` that are subnormal in `target` are numbers of `target`."""
    return form is not None and target.emin - target.precision <= form.emin - form.precision


def _region(part: _Part, a: Arithmetic) -> float:
    """Bound of abs(sum + correction - s)/A of a compensated part, before the two are added."""
    if part.exact:
        return compensated_bound(part.inner, part.errors)
    return uncorrected_bound(part.inner, part.errors, relative_rounding_error(a.accumulator))


def _closed(part: _Part, a: Arithmetic) -> _Part:
    """Return the result of a fold as a term for others: a compensated sum closed, the output rounded."""
    entry, absolute, form = part.entry, part.absolute, part.form
    if a.compensation in ("neumaier", "dot2"):
        v = relative_rounding_error(a.accumulator)
        region = _region(part, a)
        entry += math.log1p(region + v * (1.0 + region))
        absolute = absolute * growth_factor(part.inner + part.errors) if absolute else 0.0
        absolute += underflow_error(a.accumulator, flush=True) if _flushes(a) else 0.0
        form = a.accumulator.format
    if a.output is not None:
        if a.ftz or form is None or not a.output.format.includes(form):
            entry += math.log1p(relative_rounding_error(a.output))
            absolute += underflow_error(a.output, flush=a.ftz)
        form = a.output.format
    return _Part(form, entry, absolute=absolute)


def one_format_bound(op: str, program: Program, root: Arithmetic, data: Format) -> float:
    """Return the bound by the number of terms alone, infinite where its assumptions do not hold."""
    rounding = root.accumulator
    last = int(program.nodes[-1, 3])
    inner_outputs = any(
        program.arithmetics[index].output is not None for index in program.nodes[:-1, 3].tolist()
    ) or bool(root.output is not None and (program.nodes[:-1, 3] == last).any())
    plain = all(
        a.accumulator == rounding and a.compensation is None and not a.ftz and not a.terms for a in program.arithmetics
    )
    if not plain or inner_outputs or not rounding.mode.startswith("nearest") or not rounding.format.subnormals:
        return math.inf
    v = relative_rounding_error(rounding)
    if op == "sum":
        return sum_bound(program.n, v) if rounding.format.includes(data) else real_sum_bound(program.n, v)
    products = [Rounding(a.product, rounding.mode) for a in program.arithmetics if a.product is not None]
    own = max((relative_rounding_error(product) for product in products), default=0.0)
    return own + (1.0 + own) * real_sum_bound(program.n, v)


def classical(
    op: str,
    program: Program,
    arithmetic: Arithmetic,
    magnitude: Any,
    /,
    *,
    value: Any = None,
    data: Format | None = None,
) -> Any:
    """Return the worst-case bound of abs(computed - s) for sums with terms of this total magnitude.

    Parameters
    ----------
    op, program, arithmetic, data
        As for `worst_case`.
    magnitude, value : array_like of float
        A and, if known, abs(s), as for `WorstCase.bound`.

    Returns
    -------
    ndarray of float64 or scalar

    Examples
    --------
    Pairwise summation of 1024 numbers of sum 1 in float32: ten roundings on every path, 10 u.

    >>> import fpsim
    >>> from fpsim import bounds
    >>> chosen = fpsim.strategy("pairwise")
    >>> print(f"{bounds.classical('sum', chosen.program(1024), chosen.arithmetic(), 1.0) * 2**24:.4f}")
    10.0000
    """
    return worst_case(op, program, arithmetic, data=data).bound(magnitude, value=value)


def check_operation(op: str, count: int | None = None) -> None:
    """Raise `InputError` for an unknown operation, or for another number of operands than it takes."""
    if op not in OPERATIONS:
        message = f"unknown operation {op!r}; use one of {', '.join(OPERATIONS)}"
        raise InputError(message)
    wanted = 1 if op == "sum" else 2
    if count is not None and count != wanted:
        message = f"{op} takes {wanted} operand{'s' if wanted > 1 else ''}, not {count}"
        raise InputError(message)
