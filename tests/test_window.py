"""A draft window: the same answers as attention that is told what it may see, and no more read."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.models.attention import attend_rows
from engine.models.cache import CacheError
from engine.models.window import SINKS, WindowedCache
from tests.tiny_models import VOCABULARY, tiny_decoder


def tokens(count):
    return torch.arange(count) * 7 % VOCABULARY


def cache(model, window, capacity=60):
    made = model.new_cache(capacity, window)
    assert isinstance(made, WindowedCache)
    return made


@torch.inference_mode()
def expected(model, text, window):
    """Logits of every token of the text, by one forward whose mask hides what a window would."""
    rows = len(text)
    place = torch.arange(rows)
    seen = (place[None] <= place[:, None]) & (
        (place[None] < SINKS) | (place[None] > place[:, None] - window)
    )
    mask = torch.zeros(rows, rows, dtype=model.dtype).masked_fill(~seen, float("-inf"))
    group = model.config.heads // model.config.kv_heads
    hidden = model._blocks(text, model.new_cache(rows), attend_rows, mask.repeat(group, 1))
    return model._logits(hidden)


@settings(deadline=None, max_examples=60)
@given(
    window=st.integers(1, 30),
    steps=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4)), min_size=1, max_size=8),
)
@torch.inference_mode()
def test_any_steps_and_trims_give_what_a_masked_forward_gives(window, steps):
    # In double precision, where the bound is a hundredth: in single, rounding alone comes to it.
    model, text = tiny_decoder(1, dtype=torch.float64), tokens(60)
    held = cache(model, window)
    for rows, rejected in steps:
        at = held.length
        logits = model.forward(text[at : at + rows], held, rows=rows)
        torch.testing.assert_close(logits, expected(model, text[: at + rows], window)[at:])
        held.trim(at + max(1, rows - rejected))


@torch.inference_mode()
def test_a_window_as_long_as_the_text_hides_nothing():
    model, text = tiny_decoder(1), tokens(20)
    whole = model.forward(text, model.new_cache(20), rows=20)
    for window in (16, 20, 100):
        held = cache(model, window)
        assert held.to_read(20) == [(0, 20)]
        torch.testing.assert_close(model.forward(text, held, rows=20), whole)


@torch.inference_mode()
def test_only_the_sinks_and_the_window_are_read():
    model, text = tiny_decoder(1), tokens(50)
    held = cache(model, 8)
    assert held.to_read(40) == [(0, SINKS), (32, 40)]
    for start, end in held.to_read(40):
        held.skip(start)
        last = model.prefill(text[start:end], held, 3)
    held.expect(40)
    # As if these were all the tokens that there are, at the places where they stand.
    torch.manual_seed(0)
    other = text.clone()
    other[SINKS:32] = torch.randint(VOCABULARY, (32 - SINKS,))
    again = cache(model, 8)
    for start, end in again.to_read(40):
        again.skip(start)
        assert_same = model.prefill(other[start:end], again, 100)
    torch.testing.assert_close(last, assert_same)
    # A long absence is not made up for: what has left the window meanwhile is not read.
    assert held.to_read(50) == [(42, 50)]
    held.skip(42)
    model.forward(text[42:50], held)
    held.trim(40)
    assert held.to_read(41) == [(40, 41)]
    torch.testing.assert_close(model.forward(text[40:41], held), model.forward(text[40:41], again))


def test_what_was_left_out_is_not_pretended_to_be_there():
    model = tiny_decoder(1)
    held = cache(model, 8)
    with torch.inference_mode():
        for start, end in held.to_read(40):
            held.skip(start)
            model.prefill(tokens(40)[start:end], held, 8)
    with pytest.raises(CacheError, match="left out 4 to 32"):
        held.trim(20)
    with pytest.raises(CacheError, match="cannot skip back"):
        held.skip(39)
    held.trim(SINKS)
    held.expect(SINKS)
    with pytest.raises(CacheError, match="expected"):
        model.new_cache(10).skip(1)
