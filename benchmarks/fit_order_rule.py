"""Name the orders of products from first-leaf probes of a GPU, and grow the rule that predicts those of other shapes.

Usage: python benchmarks/fit_order_rule.py PROBES.npz -o FOLDER [--name cublas-13.1] [--trees 40]
PROBES.npz has for each product `{mode}/{m}x{k}x{n}` the number of leaves of the smallest subtree that holds leaves 0 and
j, for every j, as masking probes of output column 0 saw it. Writes FOLDER/{name}.npz for float32, with the trees of
`fpsim.profiles.order_rule`, and FOLDER/{name}-tf32.npz and -bf16-f32.npz for the other modes, which are too few to predict from.
Needs scikit-learn (1.9 grew the shipped trees). Prints the orders, what they contradict in the replayed profile, and
the cross-validated accuracy beside that of a nearest neighbour.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fpsim
from fpsim import profiles
from fpsim.profiles.order_rule import LEAF, OrderRule, chunk_count, features
from fpsim.programs import smallest_subtree

FOLDS = 10
_DIVISOR = 8  # the place of the power of two that divides k among the features
#: Kernels for one row or one column: what a product of several rows and columns never was.
_ONE = ["lanes(16, chunks(16))+fma", "interleaved(4, chunks(128, lanes(128, combine=fold)), block=128)"]
_ONE += ["interleaved(4, chunks(256, chunks(2, combine=fold)), block=256)+fma", "chunks(4, fold)+fma"]
_ONE += [f"lanes({p}, combine=fold)+fma" for p in (16, 32)]
_ONE += [f"interleaved(2, block={p})+fma" for p in (64, 128, 256, 512)]
#: Orders whose arithmetic the replayed products show, beside those in chunks and in blocks of 8.
_REPLAYED = {"lanes(32, combine=fold)+fma", "interleaved(4, chunks(128, lanes(128, combine=fold)), block=128)"}


def row_of(text: str, k: int) -> tuple[int, ...]:
    program = fpsim.strategy(text).program(k)
    return (1, *(smallest_subtree(program, 0, j) for j in range(1, k)))


def plain(row: tuple[int, ...]) -> Iterator[str]:
    """Propose simple orders of a float32 product from its row, most likely first."""
    k = len(row)
    run = next((j for j in range(1, k) if row[j] != j + 1), k)
    yield "serial+fma" if run == k else f"chunks({run})+fma"
    for parts in range(2, 33):
        yield f"interleaved({parts}, block=8)+fma"
    yield "chunks(8, combine=lanes(132))+fma"
    yield f"chunks({-(-k // 2)}, chunks(256))+fma"


def single(row: tuple[int, ...]) -> Iterator[str]:
    """Propose orders of a product of one row or one column."""
    k = len(row)
    first, *rest = plain(row)
    yield first
    for block in (-(-k // 32), 4):
        yield f"interleaved(32, block={block}, combine=fold)+fma"
    yield from _ONE
    yield from rest


def fused(row: tuple[int, ...], terms: int) -> Iterator[str]:
    """Propose orders of a product on tensor cores; the format of the operands is a setting of the whole profile."""
    k = len(row)
    for own in (terms, 8):
        for how in ("", ", rest=first", *(f", rest=first, tile={tile}" for tile in (32, 64) if tile > own)):
            inner = f"fused({own}{how})+align(25)"
            yield inner
            for size in sorted({value for value in row if value < k}):
                yield f"chunks({size}, {inner})"


def name_of(mode: str, row: tuple[int, ...], *, one: bool) -> str:
    if mode == "f32":
        proposals = single(row) if one else plain(row)
    elif one:
        return ""  # no tensor cores, and nothing replayed shows the arithmetic
    else:
        proposals = fused(row, {"tf32": 8, "bf16": 16}[mode])
    for text in proposals:
        program = fpsim.strategy(text).program(len(row))
        some = {j for j in (1, 2, 4, 8, 16, len(row) // 2, len(row) - 1) if 0 < j < len(row)}
        if all(smallest_subtree(program, 0, j) == row[j] for j in some) and row_of(text, len(row)) == row:
            return text
    return ""


def read(path: str) -> dict[str, dict[tuple[int, int, int], tuple[int, ...]]]:
    out: dict[str, dict[tuple[int, int, int], tuple[int, ...]]] = {}
    with np.load(path, allow_pickle=False) as data:
        for key in data.files:
            mode, _, shape = key.partition("/")
            m, k, n = map(int, shape.split("x"))
            out.setdefault(mode, {})[m, k, n] = tuple(data[key].tolist())
    return out


def named(mode: str, rows: dict[tuple[int, int, int], tuple[int, ...]]) -> list[str]:
    """Return the order of every product; products of one row or column have kernels of their own."""
    known: dict[tuple[bool, tuple[int, ...]], str] = {}
    out = []
    for (m, _, n), row in rows.items():
        one = 1 in (m, n)
        if (one, row) not in known:
            known[one, row] = name_of(mode, row, one=one)
        out.append(known[one, row])
    return out


def assumed(text: str) -> bool:
    shown = text in _REPLAYED or text.startswith("interleaved(32, block=") or "align(25)" in text
    blocks = text == "serial+fma" or chunk_count(text, 64) is not None or text.endswith(", block=8)+fma")
    return not (shown or blocks)


def label(text: str, k: int) -> str:
    """Return what the trees tell apart: chunks by their size where 32 divides k, else by their number."""
    count = chunk_count(text, k)
    return text if count is None or k % 32 == 0 else f"{count} chunks"


def grow(shapes: Any, texts: list[str], held: Any, trees: int) -> OrderRule:
    """Return the rule from the shapes that are held; half of the trees do not see which power of two divides k."""
    from sklearn.ensemble import RandomForestClassifier

    asked = np.array([features(*shape) for shape in shapes.tolist()], float)
    labels = np.array([label(text, k) for text, k in zip(texts, shapes[:, 1].tolist(), strict=True)])
    grown = []
    for seed, blind in enumerate(((), (_DIVISOR,))):
        given = asked[held].copy()
        given[:, blind] = 0
        forest = RandomForestClassifier(
            trees // 2, criterion="entropy", bootstrap=False, max_features=0.4, random_state=seed, n_jobs=1
        ).fit(given, labels[held])
        grown += [tree.tree_ for tree in forest.estimators_]
    orders = sorted(set(texts))
    thresholds = np.unique(np.concatenate([tree.threshold[tree.feature >= 0] for tree in grown]))
    nodes: list[tuple[int, int, int]] = []
    roots = []
    for tree in grown:
        roots.append(len(nodes))
        reached: dict[int, int] = {}
        for sample, leaf in zip(held.tolist(), tree.apply(asked[held].astype(np.float32)).tolist(), strict=True):
            reached.setdefault(leaf, sample)
        for node in range(tree.node_count):  # in preorder
            if tree.feature[node] < 0:
                nodes.append((LEAF, reached[node], 0))
            else:
                place = int(np.searchsorted(thresholds, tree.threshold[node]))
                nodes.append((int(tree.feature[node]), place, int(tree.children_right[node]) - node))
    return OrderRule(
        shapes, tuple(orders), tuple(map(assumed, orders)), np.array([orders.index(text) for text in texts]),
        np.array(nodes), thresholds, tuple(roots), {},
    )  # fmt: skip


def validate(shapes: Any, texts: list[str], folds: list[Any], trees: int) -> tuple[dict[str, Any], list[Any]]:
    """Return the shares of held-out shapes that the first and the first five candidates had right."""
    first = five = 0
    table = []
    everything = np.arange(len(texts))
    for out in folds:
        rule = grow(shapes, texts, np.setdiff1d(everything, out), trees)
        for at in out.tolist():
            votes = rule.votes(tuple(shapes[at].tolist()))
            candidates = [text for text, _, _ in votes[:5]]
            first += candidates[0] == texts[at]
            five += texts[at] in candidates
            table.append((votes[0][1], candidates[0] == texts[at], int(shapes[at, 1])))
    total = sum(map(len, folds))
    return {"first": round(first / total, 4), "five": round(five / total, 4), "held_out": total}, table


def neighbours(shapes: Any, texts: list[str], folds: list[Any]) -> tuple[float, float]:
    """Return the same for the nearest shapes in log m and log n at an equal k."""
    first = five = 0
    logs = np.log2(shapes)
    everything = np.arange(len(texts))
    for out in folds:
        held = np.setdiff1d(everything, out)
        for at in out.tolist():
            same = held[shapes[held, 1] == shapes[at, 1]]
            near = same[np.argsort(np.abs(logs[same][:, [0, 2]] - logs[at, [0, 2]]).sum(axis=1), kind="stable")]
            candidates = list(dict.fromkeys(texts[i] for i in near.tolist()))[:5]
            first += candidates[0] == texts[at]
            five += texts[at] in candidates
    return first / len(texts), five / len(texts)


def check(rows: dict[tuple[int, int, int], tuple[int, ...]], name: str) -> None:
    """Compare the rows with the replayed orders of the profile."""
    both = [one for one in profiles.load(name).cases if one.op == "matmul" and one.shape in rows]
    wrong = [one.shape for one in both if row_of(one.strategies[0], one.shape[1]) != rows[one.shape]]  # type: ignore[index]
    print(f"{len(both) - len(wrong)} of {len(both)} replayed products have the probed row; others: {wrong}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("probes")
    parser.add_argument("--name", default="cublas-13.1")
    parser.add_argument("--profile", default="h200/cublas-13.1")
    parser.add_argument("--seed", type=int, default=0, help="of the folds")
    parser.add_argument("--trees", type=int, default=40)
    parser.add_argument("-o", "--output", required=True)
    options = parser.parse_args()
    evidence = "first-leaf probes of output column 0, not replayed"
    for mode, rows in read(options.probes).items():
        texts = named(mode, rows)
        shapes = np.array(list(rows), np.int64)
        print(f"{mode}: {len(rows)} products, {len(set(texts))} orders, {texts.count('')} products without a name")
        suffix = {"f32": "", "tf32": "-tf32", "bf16": "-bf16-f32"}[mode]  # the results are float32
        orders = sorted(set(texts))
        rule = OrderRule(
            shapes, tuple(orders), tuple(map(assumed, orders)), np.array([orders.index(text) for text in texts]),
            np.zeros((0, 3), int), np.zeros(0), (), {"evidence": evidence},
        )  # fmt: skip
        if mode == "f32":
            check(rows, options.profile)
            rule = fitted(shapes, texts, evidence, options)
        np.savez_compressed(
            Path(options.output) / f"{options.name}{suffix}.npz", shapes=shapes.astype(np.int16),
            orders=np.array(rule.orders), assumed=np.array(rule.assumed), order=rule.order.astype(np.uint8),
            kinds=rule.trees[:, 0].astype(np.uint8), values=rule.trees[:, 1].astype(np.uint16),
            thresholds=rule.thresholds, roots=np.array(rule.roots, np.uint32), facts=np.array(json.dumps(rule.facts)),
        )  # fmt: skip
    return 0


def fitted(shapes: Any, texts: list[str], evidence: str, options: Any) -> OrderRule:
    import dataclasses

    everything = np.arange(len(texts))
    random = np.array_split(np.random.default_rng(options.seed).permutation(everything), FOLDS)
    by_k = [everything[shapes[:, 1] == k] for k in np.unique(shapes[:, 1])]
    known, table = validate(shapes, texts, random, options.trees)
    new, by = validate(shapes, texts, by_k, options.trees)
    print("nearest neighbour: {:.1%} first, {:.1%} in five".format(*neighbours(shapes, texts, random)))
    print(f"trees, random shapes held out: {known}")
    for low, high in ((0, 0.5), (0.5, 0.8), (0.8, 0.95), (0.95, 1.01)):
        inside = [right for share, right, _ in table if low <= share < high]
        print(f"  votes {low} to {high}: {len(inside)} shapes, {np.mean(inside):.1%} right")
    print(f"trees, all shapes of one k held out: {new}")
    for k in np.unique(shapes[:, 1]).tolist():
        print(f"  k={k}: {np.mean([right for _, right, own in by if own == k]):.1%} right")
    seen = Counter(zip(shapes[:, 1].tolist(), texts, strict=True))
    print(f"{sum(count == 1 for count in seen.values())} products have an order that no other of the same k has")
    facts = {"evidence": evidence, "known_k": known, "new_k": new}
    return dataclasses.replace(grow(shapes, texts, everything, options.trees), facts=facts)


if __name__ == "__main__":
    sys.exit(main())
