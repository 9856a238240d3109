"""The cache's length is the truth: what it refuses, and what survives any series of trims."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.models.cache import Cache, CacheError

LAYERS, HEADS, CAPACITY, SIZE = 2, 3, 12, 4


def new_cache() -> Cache:
    return Cache(LAYERS, HEADS, CAPACITY, SIZE, torch.float32, "cpu")


def append_rows(cache: Cache, values: list[float]) -> None:
    for layer in range(LAYERS):
        rows = torch.tensor(values)[:, None, None].expand(-1, HEADS, SIZE) + layer
        keys, back = cache.append(layer, rows, -rows)
        assert keys.shape == back.shape == (HEADS, cache.length + len(values), SIZE)
    cache.advance(len(values))


def test_empty_cache_describes_itself():
    cache = new_cache()
    assert (cache.length, cache.capacity) == (0, CAPACITY)
    assert cache.nbytes == 2 * LAYERS * HEADS * CAPACITY * SIZE * 4


def test_length_moves_once_per_forward_not_per_layer():
    cache = new_cache()
    rows = torch.zeros(5, HEADS, SIZE)
    cache.append(0, rows, rows)
    assert cache.length == 0
    cache.advance(5)
    assert cache.length == 5


def test_overflow_is_one_sentence_and_changes_nothing():
    cache = new_cache()
    append_rows(cache, [1.0] * 10)
    rows = torch.zeros(3, HEADS, SIZE)
    with pytest.raises(CacheError, match="holds 10 of at most 12 tokens, so 3 more do not fit"):
        cache.append(0, rows, rows)
    with pytest.raises(CacheError, match="do not fit"):
        cache.advance(3)
    cache.expect(10)


def test_a_step_without_tokens_is_refused():
    with pytest.raises(CacheError, match="at least one token"):
        new_cache().reserve(0)


@pytest.mark.parametrize("length", [-1, 6])
def test_trimming_only_removes(length):
    cache = new_cache()
    append_rows(cache, [1.0] * 5)
    with pytest.raises(CacheError, match=f"to {length} tokens: it holds 5"):
        cache.trim(length)
    cache.expect(5)


def test_expect_names_both_lengths():
    with pytest.raises(CacheError, match="holds 0 tokens where 7 were expected"):
        new_cache().expect(7)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, CAPACITY)), max_size=30))
def test_any_series_of_appends_and_trims_keeps_the_survivors(steps):
    cache, survivors, fresh = new_cache(), [], 0.0
    for rows, keep in steps:
        values = [fresh + i for i in range(rows)]
        fresh += rows
        if len(survivors) + rows > CAPACITY:
            with pytest.raises(CacheError):
                append_rows(cache, values)
        else:
            append_rows(cache, values)
            survivors += values
        survivors = survivors[: min(keep, len(survivors))]
        cache.trim(len(survivors))
        cache.expect(len(survivors))
        for layer in range(LAYERS):
            keys, back = cache.view(layer, cache.length)
            expected = torch.tensor(survivors) + layer
            assert torch.equal(keys, expected[None, :, None].expand(HEADS, -1, SIZE))
            assert torch.equal(back, -keys)
