"""Near-tie certificates: the score that decides, where a mode samples as where it does not."""

import pytest
import torch

from engine.analysis.divergence import Divergence
from engine.evidence import certificates
from tests.synthetic_rows import small_design
from tests.test_loop import PROMPT, target_model
from tests.test_sampling import WARPED, generate, mode_of

_WAYS = {"greedy": None, "sampled": WARPED["all of it"], "cold": {"temperature": 0.0}}
_AT = 5


@pytest.fixture
def certified(monkeypatch):
    """The certificate of a divergence at new token _AT between the text's token and another."""
    # The target comes from no file.
    monkeypatch.setattr(certificates, "_load", lambda design, models, dtype: target_model())

    def certify(sampling, other):
        rule = "coupled" if sampling else "exact"
        given = {"sampling": sampling} if sampling else {}
        design = small_design(
            modes={
                "ar": {"drafter": "none", "baseline": "ar", **given},
                "spec": {"drafter": "model", "k": 3, "round": "folded", "baseline": "ar",
                         "acceptance": rule, **given},
            },
        )  # fmt: skip
        with torch.inference_mode():
            tokens = generate(mode_of(sampling), seed=design.seed).tokens
            pair = tokens[_AT], other(design, tokens)
            case = Divergence("2048", "news", "spec", _AT, *pair, tokens[:_AT])
            (found,) = certificates.certify(design, {}, {("2048", "news"): PROMPT}, [case])
        return found

    return certify


def _runner_up(sampling):
    def second(design, tokens):
        from engine.decoding import resources

        mode, prompt = mode_of(sampling), torch.tensor(PROMPT)
        runtime = resources.build_runtime(mode, prompt.device, ())
        voice, _ = resources.build_voices(mode, design.seed, prompt, runtime)
        model, text = target_model(), torch.tensor([*PROMPT, *tokens[:_AT]])
        logits = model.prefill(text, model.new_cache(len(text)), 64)[None]
        first, then = voice.scores(logits, tokens[:_AT])[0].topk(2).indices.tolist()
        assert first == tokens[_AT]
        return then

    return second


@pytest.mark.parametrize("way", _WAYS)
def test_the_two_best_candidates_are_the_top_two_of_what_decides(certified, way):
    found = certified(_WAYS[way], _runner_up(_WAYS[way]))
    assert found["top_two"]
    assert 0 < found["gap_fp32"] < 20
    # In float32 the rows of a block and single steps differ in the last digits only.
    assert 0 <= found["bound"] < 1e-3


@pytest.mark.parametrize("way", _WAYS)
def test_any_other_token_is_not(certified, way):
    second = _runner_up(_WAYS[way])
    found = certified(_WAYS[way], lambda design, tokens: (second(design, tokens) + 1) % 61)
    assert not found["top_two"]
