"""A draft with a trimmed head: the same logits for the ids that it scores, none for the others."""

import json

import pytest
import torch

from engine.composition import ROOT
from engine.models.folder import ModelError
from engine.models.ranking import FILE, read_ranking
from engine.training.rank import indispensable, rank_tokens, write_ranking
from tests.tiny_models import VOCABULARY, tiny_decoder

SHIPPED = ROOT / "config/models/smollm2-135m-2layer"


@torch.inference_mode()
def test_a_trimmed_head_scores_its_own_ids_and_no_others():
    model, ids = tiny_decoder(1), [5, 0, 40, 17, VOCABULARY + 3]
    trimmed = model.trimmed(ids)
    tokens = torch.arange(9)
    whole = model.forward(tokens, model.new_cache(9), rows=3)
    logits = trimmed.forward(tokens, trimmed.new_cache(9), rows=3)
    assert logits.shape == whole.shape
    kept = sorted(ids)[:-1]
    torch.testing.assert_close(logits[:, kept], whole[:, kept])
    left_out = sorted(set(range(VOCABULARY)) - set(kept))
    assert torch.isneginf(logits[:, left_out]).all()
    assert (logits.softmax(-1)[:, left_out] == 0).all()
    assert set(logits.argmax(-1).tolist()) <= set(kept)
    assert trimmed.step_bytes(0) < model.step_bytes(0)
    assert trimmed.head.shape[0] == len(kept)


def test_a_ranking_begins_with_what_no_text_may_lack(tmp_path):
    vocabulary = {"a": 0, "b": 1, "ab": 2, "<0x0A>": 3, "abc": 4, "ba": 5}
    tokenizer = {
        "model": {"vocab": vocabulary},
        "added_tokens": [{"id": 6, "content": "<end>"}],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    first = indispensable(tmp_path, [6])
    assert first == [0, 1, 3, 6]
    ranking = rank_tokens([[4, 4, 2], [5, 4, 5, 0]], first, 7)
    assert ranking == [0, 1, 3, 6, 4, 5, 2]
    # Without a text the tokenizer's own order is left.
    assert rank_tokens([], first, 7) == [0, 1, 3, 6, 2, 4, 5]
    write_ranking(ranking[:6], ["made up"], tmp_path)
    assert read_ranking(tmp_path, 5) == [0, 1, 3, 6, 4]
    with pytest.raises(ModelError, match="ranks 6 tokens"):
        read_ranking(tmp_path, 7)


@pytest.mark.parametrize(
    ("text", "says"), [(None, "rank-tokens"), ("1\nx\n", "one token id"), ("1\n1\n", "once")]
)
def test_a_bad_ranking_is_one_sentence(text, says, tmp_path):
    if text is not None:
        (tmp_path / FILE).write_text(text)
    with pytest.raises(ModelError, match=says):
        read_ranking(tmp_path, 1)


def test_the_shipped_ranking_says_where_it_comes_from():
    lines = (SHIPPED / FILE).read_text(encoding="utf-8").splitlines()
    comments = [line for line in lines if line.startswith("#")]
    assert any("config/prompts was not read" in line for line in comments)
    ids = read_ranking(SHIPPED, 16384)
    assert len(lines) == 16384 + len(comments)
    assert max(ids) < 49152
