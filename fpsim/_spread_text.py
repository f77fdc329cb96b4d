"""A spread in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fpsim.spreads import Spread


def spread_text(s: Spread) -> str:
    """Return what ``print`` shows of a spread."""
    arriving = f", {s.terms} terms arrive in a random order" if s.terms else ""
    head = f"{s.op}, {s.strategy}: {s.runs} runs{arriving}"
    return "\n".join([head, *(_one(s) if s.results.ndim == 1 else _many(s))])


def _one(s: Spread) -> list[str]:
    values, counts = s.values()
    exact = float(s.exact)
    lines = [
        f"  exact result           {exact:.9g}",
        f"  results                {values[0]:.9g} to {values[-1]:.9g}, {values.size} distinct",
        f"  mean, from exact       {float(s.mean) - exact:+.3g}",
        f"  standard deviation     {float(s.std):.3g}" + _relative(float(s.std), exact),
    ]
    if s.predicted_std is not None and s.predicted_mean is not None:
        mean = float(s.predicted_mean) - exact
        lines.append(f"  in closed form         {float(s.predicted_std):.3g}, mean {mean:+.3g} from exact")
        lines.append(f"  distinct, closed form  {s.expected_distinct(s.runs):.0f}")
    lines.append(f"  two runs agree         {s.agreement:.2%}")
    lines.append(f"  most frequent          {values[np.argmax(counts)]:.9g}, {counts.max() / s.runs:.1%} of runs")
    if s.worst_case is not None:
        lines.append(f"  no order exceeds       {float(s.worst_case):.3g} (proved)")
    return lines


def _many(s: Spread) -> list[str]:
    distinct = s.distinct.reshape(-1)
    std = s.std.reshape(-1)
    differing = int((distinct > 1).sum())
    lines = [
        f"  outputs                {std.size}, of which {differing} change from run to run",
        f"  standard deviation     {std.max():.3g} at most, {float(np.sqrt((std**2).mean())):.3g} root mean square",
        f"  distinct results       {distinct.max()} at most of one output",
        f"  two runs agree         {s.agreement:.2%} (all outputs)",
    ]
    if s.predicted_std is not None:
        closed = s.predicted_std.reshape(-1)
        lines.append(f"  in closed form         {closed.max():.3g} at most, {float(np.sqrt((closed**2).mean())):.3g}")
    if s.worst_case is not None:
        lines.append(f"  no order exceeds       {s.worst_case.max():.3g} (proved)")
    return lines


def _relative(value: float, exact: float) -> str:
    return f" ({value / abs(exact):.2g} of the result)" if exact else ""
