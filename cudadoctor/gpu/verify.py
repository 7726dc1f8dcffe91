"""Checks of a kernel's output in float64, without numpy or torch.

Runs in the driver child; standard library only. All tolerances follow from the precision and the length of the sums:

- A sum of K products in fp32, in any order, errs by at most gamma(K) * sum|a||b|, gamma(K) = K u / (1 - K u) (Higham, Accuracy
  and Stability of Numerical Algorithms, 2nd ed., section 3.1). Sampled entries are held to this bound, plus the rounding of the
  stored result.
- Freivalds' check sums errors over a row with random signs. They grow like the root of their number: within LAMBDA standard
  deviations (Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, 2019).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import mul
from typing import NamedTuple

from cudadoctor.gpu.numbers import F32, Precision

LAMBDA = 8.0
"""Standard deviations allowed for in Freivalds' check: chance of a false alarm below 2 exp(-32) a row."""
U32 = F32.unit_roundoff
SMALLEST_NORMAL = 2.0**-126
EXP2_ULPS = 4.0
"""Error of exp2f (2 ulp, CUDA C++ Programming Guide, mathematical functions) and of the products around it, in units of U32."""


class Check(NamedTuple):
    """An error and what is allowed of it; `where` says which element or row."""

    error: float
    tolerance: float
    where: str

    @property
    def passed(self) -> bool:
        """NaN and infinity never pass: neither compares as less or equal to a finite tolerance."""
        return self.error <= self.tolerance < math.inf

    @property
    def ratio(self) -> float:
        """Error in units of the tolerance; infinite where there is no number."""
        if self.passed:
            return self.error / self.tolerance if self.tolerance else 0.0
        return self.error / self.tolerance if self.tolerance and math.isfinite(self.error) else math.inf


def worst(checks: Iterable[Check]) -> Check:
    """The check that failed worst or came closest to failing."""
    return max(checks, key=lambda check: check.ratio)


def gamma(terms: int, unit_roundoff: float = U32) -> float:
    """The relative error bound of a sum of `terms` rounded products."""
    return terms * unit_roundoff / (1.0 - terms * unit_roundoff)


def dot(left: Iterable[float], right: Iterable[float]) -> float:
    """The scalar product in float64."""
    return float(sum(map(mul, left, right)))


def norm(values: Sequence[float]) -> float:
    """The Euclidean norm."""
    return math.sqrt(dot(values, values))


def check_entry(got: float, a_row: Sequence[float], b_row: Sequence[float], stored: Precision, where: str) -> Check:
    """One entry of D = A B^T against its definition, held to the worst-case bound."""
    expected = dot(a_row, b_row)
    magnitude = dot(map(abs, a_row), map(abs, b_row))
    tolerance = (
        gamma(len(a_row)) * magnitude * (1.0 + stored.unit_roundoff) + stored.unit_roundoff * abs(expected) + stored.smallest
    )
    return Check(abs(got - expected), tolerance, where)


def check_freivalds(
    d: Sequence[float],
    a: Sequence[float],
    b: Sequence[float],
    shape: tuple[int, int, int],
    signs: Sequence[float],
    stored: Precision,
) -> list[Check]:
    """D x against A (B^T x) for each row, x being random signs: every entry of D takes part, in (MN + NK + MK) products.

    d is [M, N], a [M, K], b [N, K], shape (M, N, K), signs [N] of +1 and -1.
    """
    rows, columns, inner = shape
    projected = [dot(b[k::inner], signs) for k in range(inner)]
    b_norm = norm(b)
    checks = []
    for row in range(rows):
        d_row = d[row * columns : (row + 1) * columns]
        a_row = a[row * inner : (row + 1) * inner]
        spread = math.sqrt(inner) * U32 * norm(a_row) * b_norm + stored.unit_roundoff * norm(d_row) + stored.smallest
        checks.append(Check(abs(dot(d_row, signs) - dot(a_row, projected)), LAMBDA * spread, f"row {row}"))
    return checks


def check_attention_row(
    got: Sequence[float],
    q: Sequence[float],
    keys: Sequence[float],
    values: Sequence[float],
    scale: float,
    precisions: tuple[Precision, Precision],
    where: str,
) -> Check:
    """One query's output against softmax(scale q K^T) V over the keys that it may see; without any, the output must be zero.

    got and q are [D], keys and values [n, D]. A score that errs by e changes its weight by the factor exp(e): with e_max the
    largest error of a score, numerator and denominator of the weighted mean each err by at most e_max + gamma(2 n + 8) of the
    mean of |V|: one rounding a key, and fewer than one a key for rescaling after each tile. `precisions` are those of the stored
    result and of the weights exp(score - m) as they meet V: each is rounded once, the largest is at least 1.
    """
    stored, weight = precisions
    width = len(q)
    if not len(keys):
        return Check(max(map(abs, got)), 0.0, where)
    scores = [scale * dot(q, keys[start : start + width]) for start in range(0, len(keys), width)]
    q_sizes = list(map(abs, q))
    largest_sum = max(dot(q_sizes, map(abs, keys[start : start + width])) for start in range(0, len(keys), width))
    peak = max(scores)
    score_error = gamma(width + 2) * abs(scale) * largest_sum + EXP2_ULPS * U32 * (1.0 + max(map(abs, scores)))
    weights = [math.exp(score - peak) for score in scores]
    total = sum(weights)
    relative = 2.0 * (score_error + gamma(2 * len(scores) + 8))
    checks = []
    for column in range(width):
        column_values = values[column::width]
        expected = dot(weights, column_values) / total
        size = dot(weights, map(abs, column_values)) / total
        rounded = (0.0 if weight is F32 else weight.unit_roundoff) * size + weight.smallest * sum(map(abs, column_values)) / total
        inner = relative * size + rounded
        tolerance = inner * (1.0 + stored.unit_roundoff) + stored.unit_roundoff * abs(expected) + stored.smallest
        checks.append(Check(abs(got[column] - expected), tolerance, f"{where}, column {column}"))
    return worst(checks)


def check_softmax_row(got: Sequence[float], x: Sequence[float], where: str) -> Check:
    """One row of softmax in fp32 against float64; a row of minus infinity alone must give zero.

    Each weight errs by the rounding of x - max, by the exponential, and by the sum of all; results below the smallest normal
    number may be flushed to zero.
    """
    peak = max(x)
    if peak == -math.inf:
        return Check(max(map(abs, got)), 0.0, where)
    weights = [math.exp(value - peak) for value in x]
    total = sum(weights)
    checks = []
    for column, (value, weight) in enumerate(zip(x, weights, strict=True)):
        distance = peak - value if weight else 0.0
        relative = 2.0 * (EXP2_ULPS * U32 * (1.0 + distance) + gamma(2 * len(x) + 8))
        checks.append(
            Check(abs(got[column] - weight / total), relative * weight / total + SMALLEST_NORMAL, f"{where}, column {column}")
        )
    return worst(checks)


def check_bounded(values: Sequence[float], limit: float, where: str) -> Check:
    """Every value finite and no larger than `limit` in size (a weighted mean never exceeds its terms)."""
    largest = max(max(values), -min(values)) if math.isfinite(sum(values)) else math.nan
    return Check(largest, limit, where)
