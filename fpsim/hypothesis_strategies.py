"""Strategies for Hypothesis: numbers of a format, sums of a known condition number, and summation trees."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from fpsim.errors import InputError, MissingExtraError
from fpsim.formats import as_format

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy
    from numpy.typing import NDArray

    from fpsim.strategies import Strategy


def _strategies() -> Any:
    try:
        import hypothesis.strategies
    except ImportError as error:
        message = "Hypothesis is not installed: install the extra 'hypothesis', or hypothesis itself"
        raise MissingExtraError(message) from error
    return hypothesis.strategies


def floats_in(
    form: Any, /, *, low: int | None = None, high: int | None = None, special: bool = False
) -> SearchStrategy[float]:
    """Return a strategy for numbers of a format, zeros and subnormal ones among them.

    Parameters
    ----------
    form : Format, dtype or str
        The format; float64 at most.
    low, high : int, optional
        Exponents that bound the numbers: ``2**low <= abs(x) < 2**(high + 1)``, or zero. By default all of the format.
    special : bool
        With infinities and NaN.

    Raises
    ------
    InputError
        There are no such exponents in the format.
    MissingExtraError
        Hypothesis is not installed.

    Examples
    --------
    >>> from fpsim.hypothesis_strategies import floats_in
    >>> from hypothesis import given
    >>> @given(floats_in("bfloat16"))
    ... def test(x):
    ...     assert fpsim.round_to(x, "bfloat16") == x
    >>> import fpsim
    >>> test()
    """
    draws, own = _strategies(), as_format(form)
    least = own.emin - own.precision + 1 if own.subnormals and low is None else own.emin
    first, last = least if low is None else low, own.emax if high is None else high
    if not least <= first <= last <= own.emax:
        message = f"{own} has exponents from {least} to {own.emax}, not from {first} to {last}"
        raise InputError(message)

    def number(parts: tuple[bool, int, int]) -> float:
        negative, exponent, bits = parts
        # Below emin there are fewer bits.
        digits = own.precision - 1 - max(0, own.emin - exponent)
        fraction = bits >> (own.precision - 1 - digits) if digits > 0 else 0
        size = math.ldexp(1.0 + math.ldexp(float(fraction), -max(digits, 0)), exponent)
        return math.copysign(min(size, own.max), -1.0 if negative else 1.0)

    bits = draws.integers(0, 2 ** (own.precision - 1) - 1)
    normal = draws.tuples(draws.booleans(), draws.integers(first, last), bits).map(number)
    choices = [normal, draws.sampled_from([0.0, -0.0])]
    if special:
        choices.append(draws.sampled_from([math.inf, -math.inf, math.nan]))
    return draws.one_of(*choices)  # type: ignore[no-any-return]


def ill_conditioned_sums(
    *, least: int = 4, most: int = 60, digits: int = 12, dtype: Any = "float64"
) -> SearchStrategy[tuple[NDArray[Any], float]]:
    """Return a strategy for terms whose sum cancels, with the exact condition number of the sum.

    Parameters
    ----------
    least, most : int
        Number of terms, at least 3.
    digits : int
        Decimal digits of the largest condition number that is aimed at.
    dtype : {"float32", "float64"}
        Type of the terms.

    Returns
    -------
    strategy of (ndarray, float)
        The terms, and ``sum(abs(x)) / abs(sum(x))``, worked out exactly and rounded once; infinite for a sum of zero.

    Raises
    ------
    InputError
        The arguments do not fit.
    MissingExtraError
        Hypothesis is not installed.
    """
    import numpy as np

    if not 3 <= least <= most or digits < 0:
        message = f"ill-conditioned sums have at least 3 terms and 0 digits, not {least} to {most} and {digits}"
        raise InputError(message)
    if dtype not in ("float32", "float64"):
        message = f"terms are float32 or float64, not {dtype}"
        raise InputError(message)
    draws = _strategies()

    def terms(parts: tuple[int, int, float]) -> tuple[NDArray[Any], float]:
        seed, count, aimed = parts
        rng = np.random.default_rng(seed)
        half = rng.standard_normal(max(1, (count - 1) // 2)) * np.exp2(rng.uniform(0, 8, max(1, (count - 1) // 2)))
        x = np.concatenate([half, -half, [np.abs(half).sum() * 2.0 * 10.0**-aimed]])
        x = np.concatenate([x, np.zeros(max(0, count - x.size))])
        x = rng.permutation(x).astype(dtype)
        exact = [Fraction(float(one)) for one in x]
        total, size = abs(sum(exact, Fraction(0))), sum(map(abs, exact), Fraction(0))
        return x, float(size / total) if total else math.inf

    sizes, aims = draws.integers(least, most), draws.floats(0, digits)
    return draws.tuples(draws.integers(0, 2**32 - 1), sizes, aims).map(terms)  # type: ignore[no-any-return]


def trees(*, least: int = 1, most: int = 40, settings: str = "") -> SearchStrategy[Strategy]:
    """Return a strategy for strategies whose order is a random binary tree.

    Parameters
    ----------
    least, most : int
        Number of terms.
    settings : str
        What is written after the order, as in ``"+fma"``.

    Raises
    ------
    InputError
        There is no such number of terms.
    MissingExtraError
        Hypothesis is not installed.

    Examples
    --------
    >>> from fpsim.hypothesis_strategies import trees
    >>> from hypothesis import given
    >>> @given(trees(least=5, most=5))
    ... def test(order):
    ...     assert order.program(5).n == 5
    >>> test()
    """
    if not 1 <= least <= most:
        message = f"a tree has at least 1 term, not {least} to {most}"
        raise InputError(message)
    draws = _strategies()
    return draws.tuples(draws.integers(least, most), draws.integers(0, 2**32 - 1)).map(  # type: ignore[no-any-return]
        lambda pair: _tree(pair[0], pair[1], settings)
    )


def _tree(n: int, seed: int, settings: str) -> Strategy:
    """Return a tree that comes from joining random neighbours of a random permutation."""
    import numpy as np

    from fpsim.strategies import strategy

    rng = np.random.default_rng(seed)
    groups = [str(leaf) for leaf in rng.permutation(n)]
    while len(groups) > 1:
        at = int(rng.integers(len(groups) - 1))
        groups[at : at + 2] = [f"({groups[at]} {groups[at + 1]})"]
    return strategy(f'tree("{groups[0]}"){settings}')
