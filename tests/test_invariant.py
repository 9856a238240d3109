"""numerics: invariant. A row of a step has the bits of a step of one row; fast rows have not."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.decoding import acceptance
from engine.decoding.drafters.model import Drafter
from engine.decoding.loop import Generation, decode
from engine.decoding.resources import Resources
from engine.decoding.runtimes import eager, graph
from engine.decoding.target import Target
from engine.kernels.apart import RowsApart
from engine.kernels.step import Ports, TwinStep
from engine.models.synthetic import Plan, hard_norm, synthetic_decoder
from tests.random_models import FAMILIES, random_decoder
from tests.tiny_models import DRAFT_SHAPE, SHAPE

CPU, NEW_TOKENS, VOCABULARY = torch.device("cpu"), 24, 2048


def rows_of(decoder, tokens, prompt, invariant, together):
    """Logits [M, vocabulary] of an eager step over `tokens`, and keys and values behind it."""
    target = Target(decoder, len(prompt) + len(tokens), invariant)
    target.prefill(prompt, 32)
    pieces = [tokens] if together else tokens.split(1)
    logits = torch.cat([target.forward(piece) for piece in pieces])
    kept = target.cache.view(decoder.config.layers - 1, target.cache.length)
    return logits, torch.cat(kept)


def static_rows_of(decoder, tokens, prompt, step, together):
    """The same of a step over static buffers."""
    cache = decoder.new_cache(len(prompt) + len(tokens))
    decoder.prefill(prompt, cache, 32)
    most = len(tokens) if together else 1
    run, logits = step(decoder, cache, most), []
    for piece in tokens.split(most):
        start = torch.tensor([cache.length])
        run(Ports(piece, torch.tensor([len(piece)]), start, torch.zeros(most, dtype=torch.long)))
        logits.append(run.logits.clone())
        cache.advance(len(piece))
    return torch.cat(logits), torch.cat(cache.view(decoder.config.layers - 1, cache.length))


@given(
    family=st.sampled_from(sorted(FAMILIES)),  # smollm2 has the embedded target's shape
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    rows=st.integers(2, 9),
    length=st.integers(1, 80),
    seed=st.integers(0, 99),
)
@settings(max_examples=30, deadline=None)
@torch.inference_mode()
def test_a_row_has_the_bits_of_a_step_of_one(family, dtype, rows, length, seed):
    decoder = random_decoder(family, "cpu", dtype, seed)
    generator = torch.Generator().manual_seed(seed)
    text = torch.randint(decoder.vocabulary, (length + rows,), generator=generator)
    prompt, tokens = text[:length], text[length:]
    for way, kind in ((rows_of, True), (static_rows_of, RowsApart)):
        together, apart = (way(decoder, tokens, prompt, kind, so) for so in (True, False))
        for one, other in zip(together, apart, strict=True):
            assert one.equal(other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_a_row_of_the_embedded_pairs_shape_has_the_bits_of_a_step_of_one(dtype):
    """All widths are the embedded target's; fewer layers, and a part of its vocabulary."""
    decoder = random_decoder(
        "smollm2", "cpu", dtype, intermediate_size=1536, num_hidden_layers=2, vocab_size=8192
    )
    text = torch.randint(decoder.vocabulary, (305,), generator=torch.Generator().manual_seed(1))
    for way, kind in ((rows_of, True), (static_rows_of, RowsApart)):
        together, apart = (way(decoder, text[300:], text[:300], kind, so) for so in (True, False))
        for one, other in zip(together, apart, strict=True):
            assert one.equal(other)


@pytest.fixture(scope="module")
def hard():
    """Three families of a target whose choices hang on the last bits, and a draft."""
    plan = Plan.draw(VOCABULARY, 3, (0.54,), 4, seed=2)
    norm = hard_norm(SHAPE["hidden_size"], VOCABULARY)
    target = synthetic_decoder(SHAPE, plan.target_successors, 1, "cpu", torch.float32, norm)
    draft = synthetic_decoder(DRAFT_SHAPE, plan.draft_successors, 2, "cpu", torch.float32)
    return plan, target, draft


def generate(pair, prompt, runtime, form, invariant):
    runtime = runtime.Runtime(CPU)
    capacity = len(prompt) + NEW_TOKENS + runtime.slack
    target, drafter = Target(pair[0], capacity, invariant), None
    target.prefill(prompt, 64)
    if form != "step":
        drafter = Drafter(Resources(runtime, capacity, lambda: pair[1]))
        drafter.prefill(prompt, 64)
    generation = Generation(
        target, runtime, NEW_TOKENS, ignore_stop=True, drafter=drafter, rule=acceptance.exact,
        bonus=form == "folded",
    )  # fmt: skip
    return decode(generation, form, 4 if drafter else 0)


@pytest.mark.parametrize(("runtime", "form"), [(eager, "repair"), (eager, "folded"),
                                               (graph, "folded")])  # fmt: skip
@torch.inference_mode()
def test_speculation_keeps_every_token_where_ties_are_near(hard, runtime, form):
    plan, *pair = hard
    accepted = proposed = 0
    for family in range(3):
        prompt = plan.prompt(family, 0, 90)
        plain = generate(pair, prompt, runtime, "step", True)
        spec = generate(pair, prompt, runtime, form, True)
        assert spec.tokens == plain.tokens
        accepted, proposed = accepted + sum(spec.round_m), proposed + sum(spec.round_k)
    assert 0 < accepted < proposed  # blocks were cut, and rows rolled back


@torch.inference_mode()
def test_fast_numerics_have_other_bits_there(hard):
    """Or the tests above would prove nothing."""
    plan, target, _ = hard
    text = torch.cat((plan.prompt(0, 0, 90), plan.continuation(0, 0, 40)))
    for way, kind in ((rows_of, False), (static_rows_of, TwinStep)):
        flipped, differing = 0, 0
        for at in range(90, 125, 5):
            prompt, tokens = text[:at], text[at : at + 5]
            one, other = (way(target, tokens, prompt, kind, so)[0] for so in (True, False))
            differing += int((one != other).any())
            flipped += int((one.argmax(-1) != other.argmax(-1)).sum())
        assert differing
        print(f"{way.__name__}: {differing} of 7 blocks differ, {flipped} choices flip")
