"""The synthetic pair: what is measured is what was designed."""

import pytest
import torch
from scipy.stats import binomtest

from engine.design import parse_design
from engine.models.designed import agreement_for, agreement_of
from engine.models.recipe import draw_plan
from engine.models.shapes import SHAPES
from engine.models.synthetic import (
    EASY,
    Plan,
    hard_norm,
    synthetic_decoder,
)
from engine.prompts import synthetic_prompt
from tests.tiny_models import DRAFT_SHAPE, SHAPE
from tests.workspace import tiny_design

TINY, TINY_DRAFT = SHAPE, DRAFT_SHAPE
FAMILIES, PUBLISHED, K = 4, (0.54, 0.52, 0.49), 4


@pytest.fixture(scope="module")
def plan():
    return Plan.draw(2048, FAMILIES, PUBLISHED, K, spread=0.08, special=(0, 7), seed=3)


def decoder(shape, successors, seed=1, **options):
    return synthetic_decoder(shape, successors, seed, "cpu", torch.float32, **options)


def test_successors_are_permutations_that_differ_on_the_designed_share(plan):
    for successors in (plan.target_successors, plan.draft_successors):
        assert successors.sort().values.equal(torch.arange(2048))
    part = plan.cycles.shape[1] // len(PUBLISHED)
    for family, cycle in enumerate(plan.cycles):
        for context, region in enumerate(cycle.split(part)):
            same = plan.target_successors[region] == plan.draft_successors[region]
            designed = plan.agreement[context][family]
            assert same.double().mean() == pytest.approx(designed, abs=1.5 / part)
    assert not torch.isin(torch.tensor([0, 7]), plan.cycles).any()
    assert plan.target_successors[[0, 7]].tolist() == [0, 7]


def test_a_family_is_one_cycle_and_a_prompt_ends_where_its_region_begins(plan):
    token, seen = plan.cycles[1, 0], []
    for _ in range(plan.cycles.shape[1]):
        seen.append(int(token))
        token = plan.target_successors[token]
    assert seen == plan.cycles[1].tolist()
    prompt, answer = plan.prompt(1, 2, 900), plan.continuation(1, 2, 5)
    assert len(prompt) == 900
    both = torch.cat((prompt, answer))
    assert plan.target_successors[both[:-1]].equal(both[1:])


@torch.inference_mode()
def test_measured_agreement_and_acceptance_are_the_designed_ones(plan):
    """Teacher-forced over whole regions; acceptance by walking the matches, k at a time."""
    target = decoder(TINY, plan.target_successors)
    draft = decoder(TINY_DRAFT, plan.draft_successors, seed=2)
    part = plan.cycles.shape[1] // len(PUBLISHED)
    for context, acceptance in enumerate(PUBLISHED):
        accepted = proposed = 0
        for family in range(FAMILIES):
            tokens = torch.cat(
                (plan.prompt(family, context, 30), plan.continuation(family, context, part))
            )
            said = [
                m.forward(tokens, m.new_cache(len(tokens)), len(tokens)).argmax(-1)
                for m in (target, draft)
            ]
            assert said[0][29:-1].equal(tokens[30:])
            matches = (said[0] == said[1])[29 : 29 + part].tolist()
            test = binomtest(sum(matches), part, plan.agreement[context][family])
            assert test.pvalue > 1e-3
            at = 0
            while at + K < part:
                m = next((i for i in range(K) if not matches[at + i]), K)
                accepted, proposed, at = accepted + m, proposed + K, at + m + 1
        assert accepted / proposed == pytest.approx(acceptance, abs=0.06)


def test_acceptance_and_agreement_are_two_quantities():
    assert agreement_for(0.54, 4) == pytest.approx(0.77, abs=0.005)
    p = agreement_for(0.3, 2)
    assert (p + p * p) / 2 == pytest.approx(0.3)
    with pytest.raises(ValueError, match="not between 0 and 1"):
        agreement_for(1.0, 4)


@torch.inference_mode()
def test_blocks_add_the_designed_norm_and_the_hard_variant_has_near_ties(plan):
    tokens = plan.prompt(0, 0, 200)
    hard = hard_norm(TINY["hidden_size"], 2048)
    assert hard_norm(1536, 151_936) == pytest.approx(8.0, abs=0.05)
    gaps, followed = {}, {}
    for norm in (EASY, hard):
        model = decoder(TINY, plan.target_successors, block_norm=norm)
        embedded = model.embedding[tokens]
        added = model._blocks(tokens, model.new_cache(200), *_plain(200, model)) - embedded
        ratio = added.norm(dim=-1).mean() / embedded.norm(dim=-1).mean()
        assert norm * 0.6 < ratio < norm * 1.4
        logits = model.forward(tokens, model.new_cache(200), 200)
        top = logits.topk(2).values
        gaps[norm] = ((top[:, 0] - top[:, 1]) / logits.std(-1)).quantile(0.1)
        followed[norm] = (logits.argmax(-1) == plan.target_successors[tokens]).double().mean()
    assert followed[EASY] == 1
    assert 0.1 < followed[hard] < 0.95
    assert gaps[EASY] > 1 > 0.3 > gaps[hard]


def test_the_same_seed_gives_the_same_weights_and_the_published_shapes_are_known(plan):
    one, same, other = (decoder(TINY, plan.target_successors, seed=s) for s in (5, 5, 6))
    assert one.layers[1].down.equal(same.layers[1].down)
    assert not one.layers[1].down.equal(other.layers[1].down)
    assert not one.layers[0].down.equal(one.layers[1].down)
    assert set(SHAPES) == {"qwen2.5-1.5b", "qwen2.5-0.5b"}


def test_a_designs_prompts_end_where_their_contexts_part_begins(tmp_path):
    """Also where a design lists fewer contexts and families than its plan, in another order."""
    keys = {"contexts": [96, 160], "acceptance": [0.6, 0.5], "vocabulary": 1024, "special": 8}
    source = {"source": "synthetic", "shape": TINY, "plan": keys | {"families": 4}}
    design = parse_design(
        tiny_design(
            (tmp_path, tmp_path), contexts=[160, 96], families=["news", "json"], new_tokens=24,
            prompts={"source": "synthetic"}, models={"target": source, "draft": source},
        )
    )  # fmt: skip
    plan = draw_plan(design.models.target.plan.model_dump(mode="json"))
    for family, name in enumerate(design.families):
        for region, context in enumerate((96, 160)):
            tokens = synthetic_prompt(design, str(context), name)["tokens"]
            assert len(tokens) == context - 24
            after = plan.continuation(family, region, 1)
            assert plan.target_successors[tokens[-1]] == after[0]
            designed = design.models.target.plan.designed_agreement(context, family)
            assert plan.agreement[region][family] == designed


def test_families_take_turns_around_the_designed_acceptance():
    agreements = agreement_of(0.5, 4, 0.05, 16)
    acceptances = [sum(p**i for i in range(1, 5)) / 4 for p in agreements]
    assert acceptances[:2] == pytest.approx([0.45, 0.55])
    for first in (2, 4, 8, 16):
        assert sum(acceptances[:first]) / first == pytest.approx(0.5)


def test_too_small_a_vocabulary_is_refused():
    with pytest.raises(ValueError, match="too few"):
        Plan.draw(20, 4, PUBLISHED, 4)


def _plain(rows, model):
    from engine.models.attention import attend_rows, causal_mask

    group = model.config.heads // model.config.kv_heads
    return attend_rows, causal_mask(rows, rows, model.norm).repeat(group, 1)
