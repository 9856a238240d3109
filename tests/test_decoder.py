"""The decoder against transformers: every family, every way to reach the same tokens."""

import pytest
import torch
import torch.nn.functional as F
from checkpoints import VOCABULARY, tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.models import attention
from engine.models.cache import CacheError
from engine.models.decoder import Decoder, DecoderConfig
from engine.models.rope import RopeTable

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
CASES = {
    "llama": ("llama", {}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "llama-bias": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-llama3-rope": ("llama", {"rope_parameters": LLAMA3}),
    "llama-many-heads": ("llama", {"num_attention_heads": 6, "head_dim": 8, "hidden_size": 96}),
    "llama-ungrouped": ("llama", {"num_key_value_heads": 4}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 32}),
    "qwen3-bias-tied": ("qwen3", {"attention_bias": True, "tie_word_embeddings": True}),
    "mistral": ("mistral", {"num_hidden_layers": 3}),
}


def both(family: str, dtype=torch.float32, **overrides):
    """transformers' model and the decoder over the same weights."""
    model = tiny_model(family, **overrides)
    config = DecoderConfig.from_hf(model.config.to_dict())
    return model.to(dtype), Decoder(config, model.state_dict(), dtype=dtype)


def some_tokens(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(VOCABULARY, (count,), generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def llama():
    return both("llama")


@pytest.mark.parametrize("case", CASES)
@torch.inference_mode()
def test_logits_equal_transformers(case):
    family, overrides = CASES[case]
    model, ours = both(family, **overrides)
    tokens = some_tokens(150)
    expected = model(tokens[None]).logits[0]
    assert expected.std() > 0.3  # or the comparison would show little

    cache = ours.new_cache(200)
    whole = ours.forward(tokens, cache, rows=150)
    torch.testing.assert_close(whole, expected, atol=1e-4, rtol=0)

    cache.trim(0)
    last = ours.prefill(tokens[:100], cache, chunk=33)
    torch.testing.assert_close(last, expected[99], atol=1e-4, rtol=0)
    pieces = [ours.forward(part, cache, len(part)) for part in tokens[100:].split([1, 5, 1, 43])]
    torch.testing.assert_close(torch.cat(pieces), expected[100:], atol=1e-4, rtol=0)
    cache.expect(150)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=12))
@settings(max_examples=25, deadline=None)
@torch.inference_mode()
def test_any_rollback_leaves_the_logits_of_the_surviving_tokens(llama, steps):
    model, ours = llama
    cache, survivors = ours.new_cache(128), some_tokens(0)
    for seed, (rows, drop) in enumerate(steps):
        fresh = some_tokens(rows, seed)
        ours.forward(fresh, cache, rows)
        survivors = torch.cat((survivors, fresh))[: max(0, cache.length - drop)]
        cache.trim(len(survivors))
    probe = some_tokens(3, seed=99)
    expected = model(torch.cat((survivors, probe))[None]).logits[0, -3:]
    torch.testing.assert_close(ours.forward(probe, cache, 3), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.15), (torch.float16, 0.02)])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@torch.inference_mode()
def test_half_precision_is_as_near_to_float32_as_transformers_is(family, dtype, tolerance):
    tokens = some_tokens(60)
    exact = both(family)[0](tokens[None]).logits[0]
    model, ours = both(family, dtype)
    logits = ours.forward(tokens, ours.new_cache(60), 60)
    assert logits.dtype == dtype
    error = (logits.float() - exact).abs().mean()
    theirs = (model(tokens[None]).logits[0].float() - exact).abs().mean()
    assert error < tolerance * exact.std()
    assert error < 1.5 * theirs


@pytest.mark.parametrize("way", ["forward", "prefill"])
@torch.inference_mode()
def test_the_upper_left_mask_would_be_noticed(llama, way, monkeypatch):
    model, ours = llama
    tokens = some_tokens(40)
    expected = model(tokens[None]).logits[0, -1]

    def upper_left(rows, length, like):
        mask = torch.full((rows, length), float("-inf"), dtype=like.dtype)
        return mask.triu_(1)

    monkeypatch.setattr("engine.models.cache.causal_mask", upper_left)
    cache = ours.new_cache(40)
    ours.forward(tokens[:30], cache)
    last = ours.forward(tokens[30:], cache) if way == "forward" else None
    if last is None:
        last = ours.prefill(tokens[30:], cache, chunk=10)
    assert (last - expected).abs().max() > 1e-2


def test_mask_is_aligned_to_the_lower_right():
    mask = attention.causal_mask(2, 4, torch.zeros(1))
    assert torch.equal(mask == 0, torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.bool))


@pytest.mark.parametrize("attend", [attention.attend_rows, attention.attend_chunk])
def test_grouped_attention_equals_repeated_keys(attend):
    generator = torch.Generator().manual_seed(0)
    queries, keys, values = (
        torch.randn(*shape, generator=generator) for shape in ((5, 6, 8), (2, 9, 8), (2, 9, 8))
    )
    mask = attention.causal_mask(5, 9, queries)
    expected = F.scaled_dot_product_attention(
        queries.transpose(0, 1),
        keys.repeat_interleave(3, 0),
        values.repeat_interleave(3, 0),
        attn_mask=mask,
    )
    tiled = mask.repeat(3, 1) if attend is attention.attend_rows else mask
    out = attend(queries, keys, values, tiled)
    torch.testing.assert_close(out, expected.transpose(0, 1).reshape(5, 48))


@pytest.mark.parametrize("case", ["llama", "llama-llama3-rope", "qwen3"])
def test_rope_tables_equal_transformers(case):
    family, overrides = CASES[case]
    model = tiny_model(family, **overrides)
    positions = torch.arange(4000)[None]
    cosines, sines = model.model.rotary_emb(torch.zeros(1), positions)
    table = RopeTable(DecoderConfig.from_hf(model.config.to_dict()), torch.float32, "cpu")
    ours_cosines, ours_sines = table.rows(0, 4000)
    half = sines.shape[-1] // 2
    torch.testing.assert_close(ours_cosines[:, 0], cosines[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(ours_sines[:, 0, half:], sines[0, :, half:], atol=1e-5, rtol=0)
    assert torch.equal(ours_sines[:, 0, :half], -ours_sines[:, 0, half:])


def test_table_rows_are_the_same_however_the_table_grew():
    config = DecoderConfig.from_hf(tiny_model("llama").config.to_dict())
    small, large = (RopeTable(config, torch.float32, "cpu") for _ in range(2))
    large.grow(500)
    assert all(map(torch.equal, small.rows(90, 10), large.rows(90, 10)))


def test_forward_runs_the_head_on_the_asked_rows_alone(llama):
    _, ours = llama
    cache = ours.new_cache(10)
    assert ours.forward(some_tokens(6), cache).shape == (1, VOCABULARY)
    assert ours.forward(some_tokens(4), cache, rows=3).shape == (3, VOCABULARY)
    for rows in (0, 3):
        with pytest.raises(ValueError, match=f"{rows} rows of logits were asked for from 2"):
            ours.forward(some_tokens(2), cache, rows)


def test_what_does_not_fit_leaves_the_cache_as_it_was(llama):
    _, ours = llama
    cache = ours.new_cache(10)
    ours.forward(some_tokens(6), cache)
    for call in (lambda t: ours.forward(t, cache), lambda t: ours.prefill(t, cache, 2)):
        with pytest.raises(CacheError, match="do not fit"):
            call(some_tokens(5))
        cache.expect(6)


@pytest.mark.parametrize("tied", [True, False])
def test_padding_rows_are_neither_judged_nor_owned(tied):
    model = tiny_model("qwen2", tie_word_embeddings=tied)
    config = DecoderConfig.from_hf(model.config.to_dict())
    whole = Decoder(config, model.state_dict())
    cut = Decoder(config, model.state_dict(), vocabulary=VOCABULARY - 21)
    tokens = some_tokens(20) % cut.vocabulary
    logits = whole.forward(tokens, whole.new_cache(20), 20)
    expected = logits[:, : cut.vocabulary]
    torch.testing.assert_close(cut.forward(tokens, cut.new_cache(20), 20), expected)
    matrices = 1 if tied else 2
    assert whole.weights_bytes - cut.weights_bytes == matrices * 21 * config.hidden * 4


def test_a_student_owns_its_blocks_only(llama):
    _, target = llama
    model = tiny_model("llama", seed=5, num_hidden_layers=1)
    config = DecoderConfig.from_hf(model.config.to_dict())
    student = Decoder(config, model.model.state_dict(prefix="model."), shared=target)
    assert student.embedding is target.embedding
    assert student.head is target.head
    blocks = sum(p.nbytes for n, p in model.named_parameters() if "layers" in n or "norm" in n)
    assert student.weights_bytes == blocks
    assert student.step_bytes(0) == blocks + target.head.nbytes


def test_step_bytes_count_weights_once_and_the_cache_to_its_length():
    model, ours = both("llama", tie_word_embeddings=True)
    weights = sum(p.nbytes for p in model.parameters())
    assert ours.weights_bytes == ours.step_bytes(0) == weights
    keys_and_values = 2 * 2 * 2 * 16 * 4  # both, layers, heads, size, bytes
    assert ours.step_bytes(100) == weights + 100 * keys_and_values
    untied = both("llama")[1]
    assert untied.step_bytes(0) == untied.weights_bytes - untied.embedding.nbytes
