"""transformers' generate as a mode: the same tokens from the same weights, timed like our own."""

import functools
import re

import pytest
import torch

from engine.decoding import acceptance
from engine.decoding.drafters.model import Drafter
from engine.decoding.loop import Generation, decode
from engine.decoding.resources import Resources, build_runtime
from engine.decoding.target import Target
from engine.design import parse_design
from engine.evidence.reference import decode_references
from engine.measure.cell import time_cell
from engine.measure.clock import PhaseClock, RoundClock
from engine.measure.rows import to_table
from engine.models.fetching import fetch
from engine.strict import DesignError
from tests.checkpoints import tiny_pair
from tests.random_models import random_decoder
from tests.workspace import ROOT, tiny_design

CPU, PROMPT, BUDGET = torch.device("cpu"), 40, 24
MODELS = [
    ("llama", False), ("llama", True), ("qwen2", False), ("qwen2", True), ("llama-bias", True),
    ("qwen3", False), ("mistral", False),
]  # fmt: skip


@functools.cache
def pair(family="llama", tied=False):
    """A target, and a draft that is the target without its last block: it agrees now and then."""
    options = {"tie_word_embeddings": tied, "vocab_size": 211}
    target = random_decoder(family, "cpu", torch.float32, seed=3, **options)
    draft = random_decoder(family, "cpu", torch.float32, seed=3, **options, num_hidden_layers=2)
    return target, draft


class Bench:
    """One prompt read by a runtime's models, to be decoded again and again."""

    def __init__(self, runtime, models, k=0, budget=BUDGET, stop_ids=()):
        target, draft = models
        generator = torch.Generator().manual_seed(0)
        prompt = torch.randint(target.vocabulary, (PROMPT,), generator=generator)
        self.runtime = build_runtime({"runtime": runtime}, CPU, stop_ids)
        self.k, self.budget, self.drafter = k, budget, None
        capacity = PROMPT + budget + self.runtime.slack
        self.target = Target(target, capacity)
        self.target.prefill(prompt, 64)
        if k:
            self.drafter = Drafter(Resources(self.runtime, capacity, lambda: draft))
            self.drafter.prefill(prompt, 64)
        with torch.inference_mode():
            self.runtime.prepare(self.generation(RoundClock()), k)

    def generation(self, watch, ignore_stop=True, budget=None):
        return Generation(
            self.target, self.runtime, budget or self.budget, ignore_stop, self.drafter,
            acceptance.exact, bonus=bool(self.k), watch=watch,
        )  # fmt: skip

    @torch.inference_mode()
    def run(self, watch=None, **options):
        self.target.restart()
        if self.drafter:
            self.drafter.restart()
        self.runtime.rewind()
        watch = watch or RoundClock()
        generation = self.generation(watch, **options)
        watch.start()
        return decode(generation, "folded" if self.k else "step", self.k)


@pytest.mark.parametrize(
    ("runtime", "family", "tied"),
    [*(("hf", *model) for model in MODELS), *(("hf_static", *model) for model in MODELS[:1])],
)
def test_a_peer_commits_the_tokens_of_plain_decoding(runtime, family, tied):
    models = pair(family, tied)
    ours, theirs = Bench("eager", models).run(), Bench(runtime, models)
    assert theirs.run() == ours
    assert theirs.run() == ours, "a run must leave no trace in the next"


@pytest.mark.parametrize(("family", "tied"), MODELS)
def test_assisted_rounds_are_those_of_the_folded_loop(family, tied):
    """Proposals and acceptance of every round, the last ones before the end included."""
    models = pair(family, tied)
    ours, theirs = Bench("eager", models, 4).run(), Bench("hf", models, 4)
    for _ in range(2):
        trace = theirs.run()
        for name in ("tokens", "round_k", "round_m", "target_calls", "judged_by_position"):
            assert getattr(trace, name) == getattr(ours, name), name
        assert trace.draft_calls == sum(trace.round_k)


@pytest.mark.parametrize(("runtime", "k"), [("hf", 0), ("hf", 4), ("hf_static", 0)])
def test_no_run_reads_the_prompt_again(runtime, k):
    bench, read = Bench(runtime, pair(), k), []
    for model in filter(None, (bench.runtime.model, bench.runtime.draft)):
        model.model.embed_tokens.register_forward_hook(lambda _, x, __: read.append(x[0].shape[1]))
    bench.run()
    assert max(read) == k + 1
    assert sum(read) < BUDGET * (k + 1) * 2


def test_no_weight_is_copied():
    target, _ = models = pair("qwen2", tied=True)
    model = Bench("hf", models).runtime.model
    tensors = [
        target.head,
        target.norm,
        *(t for layer in target.layers for t in vars(layer).values()),
    ]
    ours = {t.untyped_storage().data_ptr() for t in tensors if isinstance(t, torch.Tensor)}
    assert {w.untyped_storage().data_ptr() for w in model.parameters()} <= ours
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()


@pytest.mark.parametrize(("runtime", "k"), [("hf", 0), ("hf", 4), ("hf_static", 0)])
def test_rounds_and_phases_sum_to_the_whole(runtime, k):
    watch = PhaseClock(lambda: None)
    trace = Bench(runtime, pair(), k).run(watch)
    assert len(watch.token_arrival_s) == BUDGET
    assert len(watch.round_s) == (len(trace.round_k) if k else BUDGET)
    assert sum(watch.round_s) == pytest.approx(watch.decode_s)
    assert sum(watch.phase_s.values()) == pytest.approx(watch.decode_s, rel=0.02)
    assert watch.phase_s["verify"] > 0
    assert (watch.phase_s["draft"] > 0) == bool(k)


@pytest.mark.parametrize(("runtime", "k"), [("hf", 0), ("hf", 4), ("hf_static", 0)])
def test_a_token_that_ends_a_text_ends_no_timed_run(runtime, k):
    tokens = Bench("eager", pair()).run().tokens
    stop = tokens[9]
    bench = Bench(runtime, pair(), k, stop_ids=[stop])
    assert bench.run().tokens == tokens
    assert bench.run(ignore_stop=False).tokens == tokens[: tokens.index(stop) + 1]
    ours = Bench("eager", pair(), k, stop_ids=[stop]).run(ignore_stop=False)
    assert bench.run(ignore_stop=False).round_m == ours.round_m


@pytest.mark.parametrize("budget", [1, 2, 5, 6])
def test_short_budgets_are_kept(budget):
    models = pair()
    ours = Bench("eager", models, 4).run(budget=budget)
    theirs = Bench("hf", models, 4).run(budget=budget)
    assert (theirs.tokens, theirs.round_k, theirs.round_m) == (
        ours.tokens, ours.round_k, ours.round_m,
    )  # fmt: skip


PLAIN = {"drafter": "none", "runtime": "hf", "baseline": "hf_generate"}
ASSISTED = {**PLAIN, "drafter": "model", "k": 4, "round": "folded", "bonus": True}


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ({**ASSISTED, "bonus": False}, "always takes a bonus token: write bonus: true"),
        ({**ASSISTED, "round": "repair"}, "cannot run round: repair; it runs step, folded"),
        ({**ASSISTED, "acceptance": "all"}, "cannot run acceptance: all"),
        ({**ASSISTED, "drafter": "ngram"}, "cannot run drafter: ngram; it runs none, model"),
        ({**ASSISTED, "policy": "adaptive"}, "leave out policy (default: fixed)"),
        ({**ASSISTED, "draft_window": 64}, "leave out draft_window"),
        ({**ASSISTED, "draft_vocabulary": 64}, "leave out draft_vocabulary"),
        ({**ASSISTED, "target_cache": "recomputed"}, "leave out target_cache (default: kept)"),
        ({**PLAIN, "numerics": "invariant"}, "leave out numerics (default: fast)"),
        ({**PLAIN, "sampling": {"temperature": 0.7}}, "leave out sampling"),
        ({**ASSISTED, "runtime": "hf_static"}, "cannot run drafter: model; it runs none"),
        ({**ASSISTED, "baseline": "ar"}, "must have the same runtime and numerics"),
    ],
)
def test_what_a_peer_cannot_do_is_one_sentence(tmp_path, mode, says):
    plain = {"drafter": "none", "baseline": "ar"}
    modes = {"ar": plain, "hf_generate": PLAIN, "asked": mode}
    with pytest.raises(DesignError, match=re.escape(says)) as caught:
        parse_design(tiny_design((tmp_path, tmp_path), modes=modes))
    assert "\n" not in str(caught.value)


def test_a_cell_of_a_peer_has_rows_like_any_other(tmp_path, monkeypatch):
    """From the design to rows, in a measuring process; what it executes is what its hash covers."""
    monkeypatch.setenv("SPECSCALE_LOCK_FILE", str(tmp_path / "lock"))
    (tmp_path / "lock").touch()
    modes = {"hf_generate": PLAIN, "hf_assisted": ASSISTED}
    design = parse_design(
        tiny_design(
            tiny_pair(tmp_path), contexts=[64], modes=modes, instrumented=[1, 0], warmup_s=0.5
        )
    )
    models = {name: vars(fetch(getattr(design.models, name), ROOT)) for name in ("target", "draft")}
    rows = time_cell(
        design,
        design.cell("64", "news", "hf_assisted", 0),
        {**models, "stop_ids": [2]},
        {"tokens": list(range(3, 59)), "sha256": "0" * 64},
    )
    assert [row["error"] for row in rows if row["status"] != "ok"] == []
    prompt = {"context": "64", "family": "news", "tokens": list(range(3, 59))}
    (reference,) = decode_references(design, {**models, "stop_ids": [2]}, [prompt])
    assert {tuple(row["tokens"]) for row in rows if not row["warmup"]} == {
        tuple(reference["tokens"])
    }
    table = to_table(rows)
    assert table["host_syncs"].null_count == table["h2d_copies"].null_count == len(rows)
    assert set(table["timed_compiles"].to_pylist()) == {0}
    timed = [row for row in rows if not row["warmup"]]
    warm = [row for row in rows if row["warmup"]]
    assert [row["run"] for row in warm] == list(range(len(warm)))
    assert timed[0]["monotonic_start"] - warm[0]["monotonic_start"] > 0.45
    assert {row["new_tokens"] for row in timed} == {8}
    assert len({row["token_sha256"] for row in timed}) == 1
    assert all(row["proposed"] == sum(row["round_k"]) > 0 for row in timed)
    assert any(row["instrumented"] and row["draft_s"] > 0 for row in timed)
