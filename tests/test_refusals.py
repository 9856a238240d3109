"""Every key of a mode and of a claim refuses what it cannot be, in one plain sentence."""

import json

import pytest

from engine.design import load_design, parse_design
from engine.strict import DesignError
from tests.workspace import ROOT

DESIGN = json.loads(load_design(ROOT / "config" / "config.yaml").to_json())
DRAFTS = {"drafter": "model", "k": 4, "round": "folded", "baseline": "ar"}
TYPICAL = {"acceptance": "typical", "epsilon": 0.1}
WARM = {"temperature": 1.0}
# What none of the keys can be, whatever it is about.
NONSENSE = [-1, 10**30, 1e308, float("nan"), float("inf"), "", "x" * 10_000, "a\nb", True, [], [4],
            {"a": 1}]  # fmt: skip
# No word of these is a user's.
PROGRAMMERS = ("Input", "instance", "dictionary", "tuple", "valid ", "Traceback", "pydantic")


def refusal(data) -> str:
    with pytest.raises(DesignError) as caught:
        parse_design(data)
    said = str(caught.value)
    assert "\n" not in said
    assert len(said) < 400
    assert not [word for word in PROGRAMMERS if word in said]
    return said


def with_mode(**keys):
    return {**DESIGN, "modes": {**DESIGN["modes"], "spec": {**DRAFTS, **keys}}}


@pytest.mark.parametrize(
    ("key", "beside"),
    [
        ("drafter", {}), ("k", {}), ("acceptance", {}), ("delta", {"acceptance": "relaxed"}),
        ("epsilon", TYPICAL), ("sampling", TYPICAL), ("draft_sampling", {**TYPICAL,
        "sampling": WARM}), ("policy", {}), ("threshold", {"policy": "confidence"}),
        ("draft_window", {}), ("draft_vocabulary", {}), ("target_cache", {}), ("round", {}),
        ("runtime", {}), ("numerics", {}), ("baseline", {}), ("only", {}),
    ],
)  # fmt: skip
def test_a_key_of_a_mode_refuses_nonsense(key, beside):
    for value in NONSENSE:
        assert key in refusal(with_mode(**{**beside, key: value})), value


@pytest.mark.parametrize(
    "key", ["temperature", "top_k", "top_p", "min_p", "repetition_penalty", "contexts", "families"]
)
def test_a_key_of_a_block_refuses_nonsense(key):
    block = "only" if key in ("contexts", "families") else "sampling"
    for value in NONSENSE:
        said = refusal(with_mode(**TYPICAL, **{block: {**(WARM if block == "sampling" else {}),
                                                       key: value}}))  # fmt: skip
        assert f"{block}.{key}" in said or (f"{block}'" in said and key in said), value


@pytest.mark.parametrize("key", ["claim", "mode", "against"])
def test_a_key_of_a_claim_refuses_nonsense(key):
    claim = {"claim": "adaptive", "mode": "spec", "against": "spec_folded"}
    for value in NONSENSE:
        said = refusal({**DESIGN, "claims": [{**claim, key: value}]})
        assert key in said, value


@pytest.mark.parametrize("value", [*NONSENSE[:-1], {}, {"a": 1}, {"A": DRAFTS}, {1: DRAFTS}])
def test_modes_are_named_compositions(value):
    assert "modes" in refusal({**DESIGN, "modes": value})


@pytest.mark.parametrize(
    ("data", "said"),
    [
        # A number that is spelt as a truth: pydantic alone would take it for 1.
        (with_mode(k=True), "config key 'modes.spec': k cannot be true, which YAML also writes as"),
        ({**DESIGN, "replicates": [2, False]}, "replicates cannot be false, which YAML also"),
        # Names that are also kinds of a model source do not vanish from the key.
        ({**DESIGN, "synthetic": "so"}, "config key 'synthetic' must be true or false"),
        (
            {**DESIGN, "modes": {**DESIGN["modes"], "student": {**DRAFTS, "k": "x"}}},
            "config key 'modes.student.k' must be a whole number (given: 'x')",
        ),
        # A value of two kinds has one fault, not two.
        ({**DESIGN, "contexts": ["x"]},
         "config key 'contexts.0' must be a whole number or 'natural' (given: 'x')"),
        ({**DESIGN, "models": {"target": "x"}}, "'models.target' must be keys and values"),
        ({**DESIGN, "models": {"target": {}}}, "'models.target' must say its 'source'"),
        ({**DESIGN, "families": ["a\ud800"]}, "families has half a character in 'a\\ud800'"),
        ({**DESIGN, "families": ["Ein Haus"]}, "families: 'Ein Haus' names no file of packaged"),
        ({**DESIGN, "families": ["news", " "]}, "'families': a family's name must not be empty"),
        ({**DESIGN, "gates": []}, "config key 'gates' must be keys and values"),
        # Logits divided by it would be infinite, and their distribution not a number.
        (with_mode(**TYPICAL, sampling={"temperature": 1e-40}),
         "temperature' must be 0, which takes the most likely token, or 0.001 and more"),
        (with_mode(**TYPICAL, sampling={**WARM, "repetition_penalty": 1e-320}),
         "repetition_penalty' must be 0.001 or more"),
        (with_mode(policy="x" * 10_000), "xxx...; there is adaptive, confidence"),
    ],
)  # fmt: skip
def test_a_refusal_says_where_and_what_there_is(data, said):
    assert said in refusal(data)


def test_an_empty_block_of_gates_takes_the_defaults():
    assert parse_design({**DESIGN, "gates": None}) == parse_design({**DESIGN, "gates": {}})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("design: a\ntitle: b\ndesign: c\n", "line 3 is not valid YAML: the key 'design' is"),
        ("modes:\n  a: {k: 1}\n  b: {k: 1, k: 2}\n", "line 3 is not valid YAML: the key 'k' is"),
        ("modes: {ar: &ar {k: 1}, b: {<<: *ar, <<: *ar, k: 2}}\n", "'design' is missing"),
        ("a: [1\nb: 2\n", "line 2 is not valid YAML: expected ',' or ']'"),
        ("a: 2026-02-31\n", "is not valid YAML: day is out of range"),
        ("a: !!python/object:os.system {}\n", "could not determine a constructor"),
        ("\x00", "is not valid YAML: unacceptable character"),
        ("[" * 3000, "is nested too deep"),
        ("- a\n", "does not hold a design"),
        ("", "does not hold a design"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_design_is_one_sentence(tmp_path, text, said):
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DesignError) as caught:
        load_design(path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_designs_that_are_shipped_are_designs():
    for path in sorted((ROOT / "config").glob("*.yaml")):
        if not path.name.startswith("training"):
            assert load_design(path).modes


def test_a_synthetic_draft_has_no_head_to_trim():
    data = json.loads(load_design(ROOT / "config" / "paper.yaml").to_json())
    baseline = next(name for name, mode in data["modes"].items() if mode["drafter"] == "none")
    like = {key: data["modes"][baseline][key] for key in ("runtime", "numerics")}
    trimmed = {**DRAFTS, **like, "baseline": baseline, "draft_vocabulary": 8192}
    assert parse_design({**data, "modes": {**data["modes"], "new": trimmed}})
    made_up = json.loads(load_design(ROOT / "config" / "h200.yaml").to_json())
    said = refusal({**made_up, "modes": {**made_up["modes"], "new": trimmed}})
    assert "'new': a synthetic draft has no list of frequent tokens" in said
