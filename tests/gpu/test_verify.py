from __future__ import annotations

import math
import random
from array import array
from collections.abc import Callable

import pytest

from cudadoctor.gpu import verify
from cudadoctor.gpu.numbers import F16, F32, Precision, decode, random_bytes

M, N, K = 23, 37, 41


def matrix(rng: random.Random, count: int, precision: Precision = F32) -> array[float]:
    return decode(random_bytes(rng, count, precision, precision.small_top), precision)


def product(a: array[float], b: array[float]) -> array[float]:
    rows = range(M)
    return array("f", [math.fsum(a[m * K + k] * b[n * K + k] for k in range(K)) for m in rows for n in range(N)])


def freivalds(d: array[float], a: array[float], b: array[float]) -> verify.Check:
    signs = [random.choice((-1.0, 1.0)) for _ in range(N)]
    return verify.worst(verify.check_freivalds(d, a, b, (M, N, K), signs, F32))


def change_entry(d: array[float]) -> None:
    d[5 * N + 7] *= 1.01


def swap_entries(d: array[float]) -> None:
    d[0], d[N + 1] = d[N + 1], d[0]


def make_nan(d: array[float]) -> None:
    d[-1] = math.nan


def make_infinite(d: array[float]) -> None:
    d[0] = math.inf


def round_to_tf32(d: array[float]) -> None:
    for index, value in enumerate(d):
        mantissa, exponent = math.frexp(value)
        d[index] = math.ldexp(round(mantissa * 2**11) / 2**11, exponent)


def test_a_right_product_passes() -> None:
    rng = random.Random(1)
    for _ in range(20):
        a, b = matrix(rng, M * K), matrix(rng, N * K)
        assert freivalds(product(a, b), a, b).passed


@pytest.mark.parametrize("spoil", [change_entry, swap_entries, make_nan, make_infinite, round_to_tf32])
def test_a_wrong_product_fails(spoil: Callable[[array[float]], None]) -> None:
    rng = random.Random(2)
    a, b = matrix(rng, M * K), matrix(rng, N * K)
    d = product(a, b)
    spoil(d)
    assert not freivalds(d, a, b).passed


def test_an_entry_is_held_to_the_rounding_of_its_sum() -> None:
    rng = random.Random(3)
    a, b = matrix(rng, K), matrix(rng, K)
    exact = math.fsum(x * y for x, y in zip(a, b, strict=True))
    tolerance = verify.check_entry(exact, a, b, F32, "").tolerance
    assert verify.check_entry(exact, a, b, F32, "").passed
    assert not verify.check_entry(exact + 1.1 * tolerance, a, b, F32, "").passed
    assert not verify.check_entry(math.nan, a, b, F32, "").passed
    assert tolerance < 1e-4 * exact, "far below what a lost term would change"
    assert verify.check_entry(exact, a, b, F16, "").tolerance > tolerance, "fp16 storage rounds more"


def attention(q: array[float], keys: array[float], values: array[float], scale: float) -> list[float]:
    width = len(q)
    rows = range(len(keys) // width)
    scores = [scale * math.fsum(x * y for x, y in zip(q, keys[j * width : (j + 1) * width], strict=True)) for j in rows]
    weights = [math.exp(score - max(scores)) for score in scores]
    return [math.fsum(w * values[j * width + d] for j, w in enumerate(weights)) / math.fsum(weights) for d in range(width)]


@pytest.mark.parametrize("scale", [0.125, 30.0])
def test_attention_rows(scale: float) -> None:
    rng = random.Random(4)
    q, keys, values = matrix(rng, 16), matrix(rng, 16 * 9), matrix(rng, 16 * 9)
    right = attention(q, keys, values, scale)
    assert verify.check_attention_row(right, q, keys, values, scale, (F32, F32), "").passed
    strongest = max(range(9), key=lambda j: verify.dot(q, keys[j * 16 : j * 16 + 16]))
    others = [slice(j * 16, j * 16 + 16) for j in range(9) if j != strongest]
    one_missing = attention(q, sum((keys[o] for o in others), array("f")), sum((values[o] for o in others), array("f")), scale)
    assert not verify.check_attention_row(one_missing, q, keys, values, scale, (F32, F32), "").passed
    assert not verify.check_attention_row([math.nan, *right[1:]], q, keys, values, scale, (F32, F32), "").passed


def test_a_query_without_keys_must_give_exactly_zero() -> None:
    q, nothing = array("f", [1.0] * 16), array("f")
    assert verify.check_attention_row([0.0] * 16, q, nothing, nothing, 1.0, (F32, F32), "").passed
    assert not verify.check_attention_row([0.0] * 15 + [1e-30], q, nothing, nothing, 1.0, (F32, F32), "").passed
    assert not verify.check_attention_row([math.nan] * 16, q, nothing, nothing, 1.0, (F32, F32), "").passed


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 0.6, -0.6])
def test_bounds(bad: float) -> None:
    assert verify.check_bounded([0.1, -0.5], 0.5, "").passed
    assert not verify.check_bounded([0.1, bad, 0.2], 0.5, "").passed


def test_the_worst_check_is_the_failed_one() -> None:
    good, near, failed = (verify.Check(error, 1.0, "") for error in (0.1, 0.9, 1.5))
    nan = verify.Check(math.nan, 1.0, "")
    assert verify.worst([good, near]) is near
    assert verify.worst([near, failed, good]) is failed
    assert verify.worst([near, nan, failed]) is nan
    assert not verify.Check(1.0, math.nan, "").passed
    assert not verify.Check(1.0, math.inf, "").passed
