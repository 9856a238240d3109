"""The step's twin against the decoder, and the fused step against both where there is a GPU."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kernels.step import FusedStep, Ports, TwinStep
from tests.random_models import FAMILIES, random_decoder

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


def ports(rows: int, device) -> Ports:
    def zeros(n):
        return torch.zeros(n, dtype=torch.long, device=device)

    return Ports(zeros(rows), zeros(1), zeros(1), zeros(rows), zeros(1))


def tokens_of(decoder, count, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(decoder.vocabulary, (count,), generator=generator).to(decoder.device)


def run(step, port, cache, tokens, rows=None):
    """One step; the logits of its rows, and the cache's length moved on."""
    rows = rows or len(tokens)
    port.tokens[: len(tokens)] = tokens
    port.rows.fill_(rows)
    port.start.fill_(cache.length)
    step(port)
    cache.advance(rows)
    assert int(port.last) == int(port.choices[rows - 1])
    return step.logits[:rows].clone(), port.choices[:rows].clone()


# Of float64. In float32 the order of a sum, which changes with the number of threads, alone moves
# logits of 45 by 2e-4.
ROUNDED = {"atol": 1e-10, "rtol": 1e-10}
# Rows of each step, and how many of them stay.
PATTERN = [(1, 1), (5, 2), (3, 3), (8, 0), (1, 1), (4, 1), (7, 7), (1, 0), (2, 2), (9, 4), (6, 5)]


def walk(decoder, make_step, prompt, max_rows=9):
    """Logits and choices of steps with rollbacks, and the eager decoder's logits beside."""
    capacity = prompt + 80
    cache, eager = decoder.new_cache(capacity), decoder.new_cache(capacity)
    step, port = make_step(decoder, cache, max_rows), ports(max_rows, decoder.device)
    text = tokens_of(decoder, prompt, 1)
    for c in (cache, eager):
        decoder.prefill(text, c, 512)
    for seed, (rows, stay) in enumerate(PATTERN):
        tokens = tokens_of(decoder, rows, seed + 10)
        expected = decoder.forward(tokens, eager, rows)
        logits, choices = run(step, port, cache, tokens)
        for c in (cache, eager):
            c.trim(c.length - rows + stay)
        yield logits, choices, expected, (cache, eager)


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_the_twin_gives_the_decoders_logits_after_every_rollback(family):
    decoder = random_decoder(family, "cpu", torch.float64)
    for logits, choices, expected, _ in walk(decoder, TwinStep, 70):
        torch.testing.assert_close(logits, expected, **ROUNDED)
        assert choices.equal(expected.argmax(-1))


@given(
    family=st.sampled_from(sorted(FAMILIES)),
    head_dim=st.sampled_from([16, 32, 80]),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 4),
    rows=st.integers(1, 9),
    length=st.integers(0, 90),
)
@settings(max_examples=25, deadline=None)
@torch.inference_mode()
def test_the_twin_over_random_shapes(family, head_dim, kv_heads, group, rows, length):
    shape = {
        "head_dim": head_dim,
        "num_key_value_heads": kv_heads,
        "num_attention_heads": kv_heads * group,
        "hidden_size": 64,
        "intermediate_size": 96,
    }
    decoder = random_decoder(family, "cpu", torch.float64, seed=length, **shape)
    cache, eager = decoder.new_cache(length + rows), decoder.new_cache(length + rows)
    step, port = TwinStep(decoder, cache, rows), ports(rows, "cpu")
    text = tokens_of(decoder, length + rows, 1)
    for c in (cache, eager):
        if length:
            decoder.prefill(text[:length], c, 64)
    logits, _ = run(step, port, cache, text[length:])
    expected = decoder.forward(text[length:], eager, rows)
    torch.testing.assert_close(logits, expected, **ROUNDED)


@torch.inference_mode()
def test_rows_that_do_not_count_write_nothing():
    decoder = random_decoder("llama", "cpu", torch.float32)
    cache = decoder.new_cache(40)
    step, port = TwinStep(decoder, cache, 4), ports(4, "cpu")
    decoder.prefill(tokens_of(decoder, 20, 1), cache, 64)
    before = cache.view(1, 40)[0].clone()
    run(step, port, cache, tokens_of(decoder, 4, 2), rows=2)
    after = cache.view(1, 40)[0]
    assert after[:, 22:].equal(before[:, 22:])
    assert not after[:, 20:22].equal(before[:, 20:22])
    port.rows.zero_()
    step(port)
    assert cache.view(1, 40)[0].equal(after)


@gpu
@pytest.mark.parametrize("prompt", [3, 64, 1000])
@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_the_fused_step_is_as_near_to_float32_as_the_decoder(family, prompt):
    decoder = random_decoder(family, "cuda", torch.bfloat16)
    exact = random_decoder(family, "cuda", torch.float32)
    errors = []
    for (logits, choices, eager, _), (_, _, truth, _) in zip(
        walk(decoder, FusedStep, prompt), walk(exact, TwinStep, prompt), strict=True
    ):
        assert logits.isfinite().all()
        best = logits.max(-1).values
        assert logits.gather(1, choices[:, None])[:, 0].equal(best)
        scale = truth.norm()
        errors.append(((logits - truth).norm() / scale, (eager - truth).norm() / scale))
    ours, theirs = torch.tensor(errors).mean(0)
    assert ours < 1.25 * theirs + 1e-3, (ours, theirs)
    assert ours < 0.1


# For 1, 2, 5 and 8 rows at once the compiler makes kernels of their own, and chooses in each what
# to join into one operation.
@gpu
@pytest.mark.parametrize("most", [2, 5, 9])
@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_a_row_is_bitwise_the_same_alone_and_among_others(family, most):
    decoder = random_decoder(family, "cuda", torch.bfloat16)
    many, single = decoder.new_cache(1200), decoder.new_cache(1200)
    steps = FusedStep(decoder, many, most), FusedStep(decoder, single, 1)
    at = ports(most, "cuda"), ports(1, "cuda")
    for cache in (many, single):
        decoder.prefill(tokens_of(decoder, 1077, 3), cache, 512)
    for seed, (planned, stay) in enumerate(PATTERN):
        rows = min(planned, most)
        tokens = tokens_of(decoder, rows, seed)
        logits, _ = run(steps[0], at[0], many, tokens)
        for i in range(rows):
            alone, _ = run(steps[1], at[1], single, tokens[i : i + 1])
            assert alone[0].equal(logits[i])
        for layer in range(decoder.config.layers):
            for a, b in zip(
                many.view(layer, many.length), single.view(layer, many.length), strict=True
            ):
                assert a.equal(b)
        for cache in (many, single):
            cache.trim(cache.length - rows + min(stay, rows))
