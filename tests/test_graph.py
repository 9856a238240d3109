"""The graph runtime against the loop: the same tokens, rounds and counts, whatever is composed."""

import functools
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.decoding import acceptance
from engine.decoding.drafters.model import Drafter as ModelDrafter
from engine.decoding.drafters.reference import Drafter as ReferenceDrafter
from engine.decoding.loop import Generation, decode
from engine.decoding.resources import Resources
from engine.decoding.runtimes import eager, graph
from engine.decoding.target import Target
from engine.design import DesignError, load_design, parse_design
from engine.figures import catalogue
from engine.measure.clock import PhaseClock, RoundClock
from engine.models.cache import CacheError
from tests.random_models import FAMILIES, random_decoder
from tests.test_loop import PROMPT, draft_model, target_model
from tests.tiny_models import VOCABULARY
from tests.workspace import ROOT, tiny_design

CPU = torch.device("cpu")


class Bench:
    """One mode upon the prompt, decoded as a cell does: built once, run again and again."""

    def __init__(self, runtime, form, k=0, budget=24, stop=(), bonus=False, rule=acceptance.exact,
                 noise=0.1, reference=None, models=None, prompt=PROMPT):  # fmt: skip
        self.runtime, self.form, self.k = runtime.Runtime(CPU, stop), form, k
        target, draft = models or (target_model(), draft_model(noise))
        capacity = len(prompt) + budget + self.runtime.slack
        self.target, ids = Target(target, capacity), torch.tensor(prompt)
        self.target.prefill(ids, 4)
        self.drafter = None
        if form != "step":
            kind = ReferenceDrafter if reference else ModelDrafter
            resources = Resources(self.runtime, capacity, lambda: draft, lambda: reference)
            self.drafter = kind(resources)
            self.drafter.prefill(ids, 4)
        self.more = {"rule": rule, "bonus": bonus, "drafter": self.drafter}
        with torch.inference_mode():
            self.runtime.prepare(self.generation(budget, RoundClock()), k)

    def generation(self, budget, watch, **more):
        return Generation(self.target, self.runtime, budget, watch=watch, **self.more, **more)

    @torch.inference_mode()
    def run(self, budget, watch=None, **more):
        self.target.restart()
        if self.drafter:
            self.drafter.restart()
        self.runtime.reset_counts()
        generation = self.generation(budget, watch or RoundClock(), **more)
        generation.watch.start()
        return decode(generation, self.form, self.k), generation


@functools.cache
def plain(budget=24, stop=()):
    return Bench(eager, "step", budget=budget, stop=stop).run(budget)[0]


@settings(deadline=None, max_examples=80)
@given(
    k=st.integers(1, 9),
    budget=st.integers(1, 24),
    bonus=st.booleans(),
    noise=st.sampled_from([0.0, 0.05, 0.1, 0.3, 5.0]),
    stop=st.lists(st.integers(0, VOCABULARY - 1), max_size=3).map(tuple),
    ignore=st.booleans(),
    ahead=st.integers(0, 2),
)
def test_a_trace_is_the_loops_own(k, budget, bonus, noise, stop, ignore, ahead):
    """Whatever is queued while the host looks, as it is on a GPU."""
    benches = [Bench(way, "folded", k, budget, stop, bonus, noise=noise) for way in (eager, graph)]
    benches[1].runtime._ahead = ahead
    ways = [bench.run(budget, ignore_stop=ignore) for bench in benches]
    (expected, host), (trace, own) = ways
    assert trace == expected
    assert own.committed == host.committed
    assert own.target.cache.length <= own.length
    assert own.drafter.cache.length <= own.length


@pytest.mark.parametrize("stop", [(), tuple(range(0, VOCABULARY, 9))])
@pytest.mark.parametrize("budget", [1, 2, 24])
@pytest.mark.parametrize("ahead", [0, 1])
def test_plain_steps_are_the_loops_own(budget, stop, ahead):
    bench, watch = Bench(graph, "step", budget=budget, stop=stop), RoundClock()
    bench.runtime._ahead = ahead
    trace, own = bench.run(budget, watch)
    assert trace == plain(budget, stop)
    assert len(watch.round_s) == len(trace.tokens)
    assert own.target.cache.length == own.length - 1


@pytest.mark.parametrize("family", FAMILIES)
def test_rounds_of_every_family_commit_the_loops_tokens(family):
    """Random models accept little: rollbacks everywhere."""
    models = [random_decoder(family, "cpu", torch.float32, num_hidden_layers=n) for n in (3, 2)]
    prompt = torch.randint(models[0].vocabulary, (40,)).tolist()
    shared = {"models": models, "prompt": prompt}
    expected = Bench(eager, "step", budget=20, **shared).run(20)[0].tokens
    assert Bench(graph, "step", budget=20, **shared).run(20)[0].tokens == expected
    trace, _ = Bench(graph, "folded", 4, 20, bonus=True, **shared).run(20)
    assert trace.tokens == expected
    assert sum(trace.round_m) < sum(trace.round_k)


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_logits_and_caches_are_the_loops_after_rollbacks(family):
    """In float32, where the order of a sum moves the last bits only."""
    models = [random_decoder(family, "cpu", torch.float32, num_hidden_layers=n) for n in (3, 2)]
    prompt = torch.randint(models[0].vocabulary, (40,)).tolist()
    shared = {"models": models, "prompt": prompt, "bonus": True, "budget": 21}
    host, own = (Bench(way, "folded", 4, **shared) for way in (eager, graph))
    traces = [bench.run(21)[0] for bench in (host, own)]
    assert traces[0] == traces[1]
    length = own.target.cache.length
    assert host.target.cache.length >= length == len(prompt) + 20
    for layer in range(3):
        for one, other in zip(
            *(bench.target.cache.view(layer, length) for bench in (host, own)), strict=True
        ):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    # The last verification's logits, against one forward over the same tokens.
    begin = 21 - 1 - (traces[1].round_m[-1] + 1)
    block = torch.tensor(traces[1].tokens[begin : begin + 1])
    host.target.cache.trim(len(prompt) + begin)
    expected = host.target.forward(block)[0]
    logits = own.runtime._rounds.target_step.logits
    torch.testing.assert_close(logits[0], expected, atol=1e-4, rtol=1e-4)


class Again:
    """Stands for a captured part: the same launches, one by one."""

    def __init__(self, part):
        self.replay = part


def test_replayed_parts_do_what_the_round_does():
    bench = Bench(graph, "folded", 4, bonus=True)
    expected, rounds = bench.run(24)[0], bench.runtime._rounds
    parts = ("round", "propose", "verify", "commit")
    rounds.graphs = {name: Again(getattr(rounds, name)) for name in parts}
    for clock in (RoundClock, lambda: PhaseClock(lambda: None)):
        assert bench.run(24, clock())[0] == expected


def test_runs_repeat_and_a_shorter_one_between_them_leaves_no_trace():
    bench = Bench(graph, "folded", 4, bonus=True)
    built = bench.runtime._rounds
    first, short, again = (bench.run(budget)[0] for budget in (24, 7, 24))
    assert first == again
    assert short.tokens == first.tokens[:7]
    assert bench.runtime._rounds is built


@pytest.mark.parametrize("bonus", [True, False])
def test_the_reference_and_the_oracle(bonus):
    tokens = plain().tokens
    free = {"bonus": bonus, "rule": acceptance.all, "reference": tokens}
    trace, _ = Bench(graph, "folded", 4, **free).run(24)
    assert trace.tokens == tokens
    assert trace.draft_calls == 0
    assert trace == Bench(eager, "folded", 4, **free).run(24)[0]
    oracle = {"bonus": bonus, "rule": acceptance.all, "noise": 5.0}
    trace, _ = Bench(graph, "folded", 4, **oracle).run(24)
    assert trace.round_m == trace.round_k
    assert trace == Bench(eager, "folded", 4, **oracle).run(24)[0]


def test_another_rule_is_refused():
    relaxed = functools.partial(acceptance.relaxed, delta=1.0)
    with pytest.raises(ValueError, match="'exact' or 'all'"):
        Bench(graph, "folded", 4, rule=relaxed)


def test_the_host_waits_at_most_once_a_round():
    for form, k in (("step", 0), ("folded", 4)):
        bench = Bench(graph, form, k, bonus=bool(k))
        watch = RoundClock()
        bench.run(24, watch)
        assert 0 < bench.runtime.syncs.total() <= len(watch.round_s)
        assert bench.runtime.h2d_copies == 1


@pytest.mark.parametrize(("form", "k"), [("step", 0), ("folded", 4)])
def test_rounds_and_phases_add_up_to_the_whole(form, k):
    bench = Bench(graph, form, k, bonus=bool(k))
    for clock in (RoundClock, lambda: PhaseClock(lambda: None)):
        watch = clock()
        trace, _ = bench.run(24, watch)
        assert len(watch.round_s) == (len(trace.round_k) if k else 24)
        assert sum(watch.round_s) == pytest.approx(watch.decode_s, rel=0.2)
        assert len(watch.token_arrival_s) == 24
        assert watch.token_arrival_s == sorted(watch.token_arrival_s)
        assert watch.token_arrival_s[-1] <= watch.decode_s
    phases = watch.phase_s
    assert sum(phases.values()) == pytest.approx(sum(watch.round_s))
    assert phases["repair"] == 0
    assert phases["verify"] > 0 < phases["control"]
    assert (phases["draft"] > 0) == bool(k)


def test_durations_fall_to_rounds_and_phases():
    marks = [1.0, *itertools.chain(*[(10.0, 20.0, 3.0)] * 2)]
    parts = ["propose", "verify", "commit"]
    rounds, phases = graph._durations(marks, parts, plain=False)
    assert rounds == [34, 33]
    assert phases == {"draft": 20, "verify": 40, "control": 7, "repair": 0}
    rounds, _ = graph._durations([1.0, 5.0, 6.0], ["round"], plain=True)
    assert rounds == [1, 5, 6]


def test_a_cache_without_room_is_refused_before_the_first_step():
    bench = Bench(graph, "folded", 4, 8, bonus=True)
    with pytest.raises(CacheError, match="has room for"):
        bench.run(200)


def test_a_mode_asks_no_more_than_the_runtime_does(tmp_path):
    plain_mode = {"drafter": "none", "runtime": "graph", "baseline": "ar"}
    model = {**plain_mode, "drafter": "model", "k": 4, "round": "folded", "bonus": True}

    def refusal(**changed):
        with pytest.raises(DesignError) as fault:
            design(**changed)
        return str(fault.value)

    def design(**changed):
        modes = {"ar": plain_mode, "graph": {**model, **changed}}
        return parse_design(tiny_design((tmp_path, tmp_path), modes=modes))

    assert design().not_applicable("graph") == ""
    assert "cannot run round: repair; it runs step, folded" in refusal(round="repair")
    assert "cannot run acceptance: relaxed" in refusal(acceptance="relaxed", delta=1.0)
    # Its parts are one replay: nothing to time apart.
    assert design().component_places() == []


@pytest.mark.parametrize("name", ["h200", "h200-embedded"])
def test_the_designs_for_a_gpu_measure_graphs_everywhere_and_the_rest_in_part(name):
    design = load_design(ROOT / "config" / f"{name}.yaml")
    whole = {mode for mode in design.modes if design.whole_grid(mode)}
    assert whole == {"ar_graph", "graph", *(["graph_k1"] if design.synthetic else [])}
    assert len(design.families) == 16
    assert sorted(design.contexts) == [2048, 4096, 8192]
    for mode in set(design.modes) - whole:
        peer = design.modes[mode].runtime.startswith("hf")
        both = design.synthetic and not peer
        assert design.contexts_of(mode) == ["2048", "8192"][: 2 if both else 1]
        assert len(design.families_of(mode)) == (1 if peer else 4)
    assert {entry.name for entry in catalogue.wanted(design)} >= {"cuda_graph", "phase_o"}
    # What was published stands beside at the same contexts; ranks say nothing of made-up text.
    assert ("diagnosis" in {e.name for e in catalogue.wanted(design)}) == (not design.synthetic)
