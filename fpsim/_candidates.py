"""The strategies that an explanation tries: what real libraries and simple programs do, simplest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fpsim.formats import FLOAT32, FLOAT64, Format, RoundingMode

#: (K-block, multiple that a rest is cut to) of blocked matrix products, as OpenBLAS cuts its inner dimension:
#: `driver/level3/level3.c` with the parameters of its AVX-512 and AVX2 kernels, and `level3_thread.c` (no multiple).
_K_BLOCKS = ((448, 16), (448, 1), (320, 8), (320, 1), (384, 8), (256, 8), (512, 8))
_POWERS = tuple(2**i for i in range(1, 11))
_CHUNKS = tuple(sorted({*_POWERS[1:], *(m * 2**i for m in (3, 5, 7) for i in range(2, 8)), 100, 1000}))
#: Operand formats below float32, with the rounding modes that hardware and libraries use to get there.
OPERANDS: tuple[tuple[str, RoundingMode], ...] = (
    ("tf32", "nearest-even"), ("tf32", "nearest-away"), ("tf32", "toward-zero"), ("bfloat16", "nearest-even"),
    ("bfloat16", "toward-zero"), ("float16", "nearest-even"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Candidate:
    """A strategy to try.

    Attributes
    ----------
    order, settings : str
        The parts of the strategy text.
    rank : int
        Smaller is simpler, and more often what a library does.
    reduced : bool
        It rounds operands below their own format, or accumulates below float32.
    """

    order: str
    settings: str = ""
    rank: int = 0
    reduced: bool = False

    @property
    def text(self) -> str:
        """The strategy text."""
        return self.order + self.settings


def _odd(k: int) -> int:
    """1 for parameters that are not powers of two: fewer programs use those."""
    return int(k & (k - 1) != 0)


def orders(n: int, /, *, op: str = "matmul") -> list[tuple[str, int]]:
    """Return (order text, rank) for n terms, each text once; rules that would only repeat ``serial`` are left out."""
    found: dict[str, int] = {}
    for text, rank in _all_orders(n, op):
        if rank < found.get(text, 10**6):
            found[text] = rank
    return sorted(found.items(), key=lambda pair: (pair[1], len(pair[0]), pair[0]))


def _all_orders(n: int, op: str) -> Iterator[tuple[str, int]]:
    yield "serial", 0
    if n < 3:
        return
    yield "numpy_sum", 1 if op == "sum" else 8
    if op == "sum":
        yield f"numpy_sum(chunk={n})", 3  # of contiguous terms, whatever the layout of the array
    yield "pairwise", 2
    yield "reverse", 6
    yield "fold", 6
    for base in _POWERS:
        if base < n:
            yield f"pairwise({base})", 8
    yield from _lanes(n)
    yield from _cuts(n)
    yield from _interleaved(n)
    for k in (8, 16, 32):
        if k <= n:  # halves of a vector first, then neighbours, as x86 adds up a register
            yield f"lanes({k}, combine=lanes(4, combine=pairwise))", 6
    for levels, step in ((2, 16), (3, 16), (4, 16), (4, 32), (2, 32), (2, 64), (2, 128)):
        if step < n:
            yield f"cascade({levels}, {step})", 14
    if op == "sum":
        yield from _grids(n)


def _lanes(n: int) -> Iterator[tuple[str, int]]:
    for k in (*range(2, 65), 128, 256, 512, 1024):
        if k >= n:
            break
        plain = not _odd(k)
        combines = ("", ", combine=pairwise", ", combine=fold") if plain else ("", ", combine=pairwise")
        tails = ("", ", tail=after", ", tail=lane0") if plain and n % k and k <= 64 else ("",)
        for combine in combines if k > 2 else ("",):
            for tail in tails:
                yield f"lanes({k}{combine}{tail})", 4 + 2 * bool(combine) + 4 * bool(tail) + 6 * _odd(k)


def named_rules(op: str, /) -> list[tuple[str, int]]:
    """Return (strategy text, rank) of the named rules for an operation, beside ``numpy_sum``."""
    cores = ("skylakex", "haswell")
    if op == "sum":
        rules = [
            "torch_cpu_sum",
            "torch_cuda_sum",
            "cub_sum",
            "numba_cuda_reduce",
            "xla_cpu_sum",
            "eigen_sum",
            "einsum_sum",
        ]
    elif op == "dot":
        rules = [*(f"openblas_sdot(core={core})" for core in cores), "einsum_dot"]
    else:
        rules = []  # of products: `product_rules`
    return [(rule, 7) for rule in rules]


def product_rules(data: Format, /) -> list[tuple[str, int]]:
    """Return (strategy text, rank) of the rules whose order differs among the elements of a matrix product."""
    if data not in (FLOAT32, FLOAT64):
        return []
    given = "" if data == FLOAT32 else ", data=float64"
    return [
        (f"numpy_matmul(core={core}, threads={threads}{given})", 7 + (threads > 1))
        for core in ("skylakex", "haswell")
        for threads in (1, 2, 4, 8, 16, 32)
    ]


def profiles(op: str, data: Format, /) -> list[tuple[str, int]]:
    """Return (strategy text, rank) of the shipped profiles that have an operation on operands of a format."""
    from fpsim.profiles import load, names

    shipped = [(name, load(name)) for name in names()]
    return [
        (f"profile:{name}", 40)  # the order itself is the simpler name
        for name, one in shipped
        if one.dtype == str(data) and op in {case.op for case in one.cases}
    ]


def _cuts(n: int) -> Iterator[tuple[str, int]]:
    sizes = set()
    for parts in range(2, 65):
        size = -(-n // parts)
        if parts < n and size not in sizes:
            sizes.add(size)
            for combine in ("", ", combine=pairwise", ", combine=fold") if not _odd(parts) and parts > 2 else ("",):
                yield f"split_k({parts}{combine})", 4 + 2 * bool(combine) + 4 * _odd(parts)
        if parts < n and n % parts:
            yield f"split({parts})", 6 + 4 * _odd(parts)
            if not _odd(parts) and parts > 2:
                yield f"split({parts}, combine=pairwise)", 8
    for size in _CHUNKS:
        if size < n:
            yield f"chunks({size})", 4 + 4 * _odd(size)
            if not _odd(size):
                yield f"chunks({size}, combine=pairwise)", 6
                yield f"chunks({size}, lanes(8, combine=pairwise))", 10
                yield f"chunks({size}, pairwise)", 10
    for block, multiple in _K_BLOCKS:
        sizes_listed = k_blocks(n, block, multiple)
        if 1 < len(sizes_listed) <= 64 and len(set(sizes_listed[:-1])) > 1:
            yield f"chunks([{', '.join(map(str, sizes_listed))}])", 5


def k_blocks(n: int, block: int, multiple: int, /) -> list[int]:
    """Return how a blocked product cuts n terms: whole blocks, and what is left of less than two in two halves."""
    sizes = []
    while n:
        if n >= 2 * block:
            size = block
        elif n > block:
            size = -(-(n // 2 if multiple > 1 else (n + 1) // 2) // multiple) * multiple
        else:
            size = n
        sizes.append(size)
        n -= size
    return sizes


def _interleaved(n: int) -> Iterator[tuple[str, int]]:
    for parts in range(2, 17):
        for block in (2, 4, 8, 16, 32):
            if (parts - 1) * block < n:
                rank = 8 + 2 * _odd(parts)
                yield f"interleaved({parts}, block={block})", rank
                if not _odd(parts) and parts > 2:
                    yield f"interleaved({parts}, block={block}, combine=pairwise)", rank + 4
                    yield f"interleaved({parts}, block={block}, combine=fold)", rank + 4


_MOST_EACH = 2048  # terms of each thread of a grid: who has more starts more threads


def _grids(n: int) -> Iterator[tuple[str, int]]:
    """Yield grids of threads; many blocks only where each takes a single term a thread, as simple kernels do."""
    for threads in (32, 64, 128, 256, 512, 1024):
        if threads > 2 * n:
            break
        enough = -(-n // threads)
        for blocks in (1, 2, 4, 8, 16, 32, 64, *((enough,) if enough <= 200 else ())):
            if blocks > enough:
                break
            if n > _MOST_EACH * blocks * threads:
                continue
            for combine in ("", ", combine=fold") if blocks > 2 else ("",):
                yield f"grid({blocks}, {threads}{combine})", 12 + 2 * bool(combine)
            if enough >= 4 * blocks and blocks in (1, 8, 64):
                yield f"grid({blocks}, {threads}, 4, combine=fold)", 16


def short_orders(n: int, /, *, op: str = "matmul") -> list[tuple[str, int]]:
    """Return the likeliest orders, for arithmetic that is itself unusual."""
    return [(text, rank) for text, rank in orders(n, op=op) if rank <= 6 and "tail" not in text]


#: (products of a fused add, its fraction bits) by operand format: Hopper and Blackwell, Ampere and Ada, then Volta; see
#: `fpsim.orders.tensor_core.UNITS`. The others are what an H200 does with rows that are not aligned.
_UNITS = {
    "tf32": ((8, 25), (4, 24), (4, 25)),
    "float16": ((16, 25), (8, 24), (8, 25), (4, 23)),
    "bfloat16": ((16, 25), (8, 24), (8, 25)),
}  # fmt: skip


def fused_orders(n: int, operands: str, /) -> Iterator[tuple[str, str, int]]:
    """Yield (order, settings, rank) of chains of fused adds as matrix units make them, and chunks of those."""
    for number, (terms, bits) in enumerate(_UNITS.get(operands, ())):
        settings, rank = f"+align({bits})", 16 + number
        for chain in _chains(n, terms):
            yield chain, settings, rank + ("rest" in chain)
        for size in _unit_chunks(n):
            for chain in _chains(size, terms):
                yield f"chunks({size}, {chain})", settings, rank + 4 + ("rest" in chain) + 2 * _odd(size)


def _chains(n: int, terms: int) -> Iterator[str]:
    yield f"fused({terms})"
    if n % terms and n > terms:
        yield f"fused({terms}, rest=first)"
        yield from (f"fused({terms}, rest=first, tile={tile})" for tile in (32, 64) if n > tile)


def _unit_chunks(n: int) -> list[int]:
    """Return sizes that products on matrix units are cut to: tiles, and parts of n of whole tiles."""
    parts = {-(-n // parts) for parts in range(2, 33)}
    whole = {-(-part // multiple) * multiple for part in parts for multiple in (4, 8, 16, 32, 64, 128)}
    tiles = {m * 2**i for m in (1, 3, 5, 7, 11) for i in range(2, 11)}
    return sorted((size for size in whole | tiles if 4 <= size < n), key=lambda size: (_odd(size), size))


def plain_settings(data: Format, result: Format, op: str, /) -> list[tuple[str, int, bool]]:
    """Return (settings, rank, reduced) of the usual arithmetic for operands `data` and results `result`."""
    product = op != "sum"
    fma = [("", 0), ("+fma", 1)] if product else [("", 0)]
    if result == FLOAT64:
        return [(f"{text}+acc(float64)", rank, False) for text, rank in fma]
    if result == FLOAT32:
        return [(text, rank, data == FLOAT64) for text, rank in fma]
    return [(f"{text}+output({result})", rank, False) for text, rank in fma]


def other_settings(data: Format, result: Format, op: str, /) -> list[tuple[str, int, bool]]:
    """Return (settings, rank, reduced) of less usual arithmetic: other accumulators and compensation."""
    product = op != "sum"
    found: list[tuple[str, int, bool]] = []
    if result == FLOAT32:
        found += [(f"+acc({form})", 30, True) for form in ("float16", "bfloat16")]
    elif result != FLOAT64:
        found += [(f"+acc({result})", 10, result != data or data.precision < FLOAT32.precision)]
        found += [(f"+fma+acc({result})", 12, True)] if product else []
    wide = "+acc(float64)" if result == FLOAT64 else ""
    tail = "" if result in (FLOAT32, FLOAT64) else f"+output({result})"
    found += [(f"{wide}+{name}{tail}", 20, False) for name in ("kahan", "neumaier", *(("dot2",) if product else ()))]
    return found
