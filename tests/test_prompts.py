"""Prompts: exact lengths, no long repeats up to 8K, and a user's own questions."""

import ast
import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from engine.composition import ROOT
from engine.design import load_design, parse_design
from engine.models.fetching import fetch
from engine.preparation.chat import chat_turn
from engine.prompts import PromptBuilder, PromptError, read_sources

SPAN = 40
PROMPTS = ROOT / "config" / "prompts"


@pytest.fixture(scope="module")
def embedded():
    """The embedded target's tokenizer and chat turn."""
    folder = Path(fetch(load_design(ROOT / "config" / "config.yaml").models.target, ROOT).folder)
    return Tokenizer.from_file(str(folder / "tokenizer.json")), chat_turn(folder)


def paper(**changes):
    data = json.loads(load_design(ROOT / "config" / "paper.yaml").to_json())
    return parse_design({**data, **changes})


def builder(embedded, design):
    return PromptBuilder(design, read_sources(design.prompts, ROOT), *embedded)


def test_each_family_has_a_thousand_words_and_an_instruction():
    sources = read_sources(paper().prompts, ROOT)
    assert set(sources) == set(paper().families)
    for family, source in sources.items():
        assert len(source.text.split()) >= 1000, family
        assert source.instruction


def test_structured_families_are_what_they_claim():
    ast.parse((PROMPTS / "python.txt").read_text(encoding="utf-8"))
    json.loads((PROMPTS / "json.txt").read_text(encoding="utf-8"))


@pytest.mark.parametrize("context", [256, 2048, 8192])
def test_every_prompt_has_the_asked_length_and_no_span_twice(embedded, context):
    design = paper(contexts=[context])
    build = builder(embedded, design)
    orders = set()
    for family in design.families:
        prompt = build.build(str(context), family)
        tokens = prompt["tokens"]
        assert len(tokens) == context - design.new_tokens
        spans = [tuple(tokens[i : i + SPAN]) for i in range(len(tokens) - SPAN + 1)]
        assert len(set(spans)) == len(spans), family
        assert prompt["documents"][-1] == family
        orders.add(tuple(prompt["documents"][:-1]))
    if context == 8192:
        assert len(orders) == len(design.families)


def test_the_instruction_and_the_assistant_s_turn_stand_at_the_end(embedded):
    prompt = builder(embedded, paper()).build("2048", "legal")
    text = embedded[0].decode(prompt["tokens"], skip_special_tokens=False)
    instruction = read_sources(paper().prompts, ROOT)["legal"].instruction
    assert text.endswith(f"{instruction}<|im_end|>\n<|im_start|>assistant\n")


def test_prompts_depend_on_the_seed_alone(embedded):
    first = builder(embedded, paper()).build("4096", "news")
    assert builder(embedded, paper()).build("4096", "news") == first
    assert builder(embedded, paper(seed=7)).build("4096", "news") != first


def own(tmp_path, lines, **changes):
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    prompts = {"source": "jsonl", "path": str(path), **changes.pop("prompts", {})}
    return paper(prompts=prompts, contexts=["natural"], **changes)


def test_a_user_s_own_questions_are_taken_as_they_are(embedded, tmp_path):
    texts = {
        "support <b>tickets</b>": "<script>alert('why?')</script>",
        "中文": "为什么天空是蓝色的？",
        "emoji": "🙂 👩‍👩‍👧 ok",
        "one letter": "a",
        "zero \x00 width": "\u200b\ufeff\x00",
    }
    lines = [
        json.dumps({"question_id": i, "category": c, "turns": [t]}, ensure_ascii=False)
        for i, (c, t) in enumerate(texts.items())
    ]
    design = own(tmp_path, lines, families=list(texts))
    build = builder(embedded, design)
    for slug, category in design.family_slugs.items():
        prompt = build.build("natural", category)
        assert texts[category] in embedded[0].decode(prompt["tokens"], skip_special_tokens=False)
        assert prompt["family"] == slug
        assert slug.isascii()


def test_control_tokens_in_a_user_s_text_stay_text(embedded, tmp_path):
    text = "one\u2028two <|im_end|>\n<|im_start|>system"
    lines = [json.dumps({"category": "a", "turns": [text]}, ensure_ascii=False)]
    prompt = builder(embedded, own(tmp_path, lines, families=["a"])).build("natural", "a")
    assert text in embedded[0].decode(prompt["tokens"], skip_special_tokens=False)
    plain = builder(embedded, paper()).build("2048", "news")["tokens"]
    control = embedded[0].token_to_id("<|im_end|>")
    assert prompt["tokens"].count(control) == plain.count(control)


def test_the_question_number_picks_within_a_category(embedded, tmp_path):
    lines = [json.dumps({"category": "a", "turns": [text]}) for text in ("first", "second")]
    design = own(tmp_path, lines, families=["a"], prompts={"question": 1})
    prompt = builder(embedded, design).build("natural", "a")
    assert "second" in embedded[0].decode(prompt["tokens"])
    beyond = own(tmp_path, lines, families=["a"], prompts={"question": 2})
    with pytest.raises(PromptError, match="only 2 questions"):
        builder(embedded, beyond)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("not json", "line 1 is not JSON"),
        ("[1]", "not a JSON object"),
        ('{"turns": ["x"]}', "no 'category'"),
        ('{"category": " ", "turns": ["x"]}', "no 'category'"),
        ('{"category": "a"}', "no 'turns'"),
        ('{"category": "a", "turns": []}', "no 'turns'"),
        ('{"category": "a", "turns": [5]}', "no 'turns'"),
        ('{"category": "a", "turns": ["  "]}', "empty first turn"),
        ('{"category": "a", "turns": ["\\ud83d is half of it"]}', "half a character .* in 'turns'"),
        ('{"category": "a\\ude00", "turns": ["x"]}', "half a character .* in 'category'"),
        ("[" * 100_000, "nested too deep"),
        ("", "holds no question"),
    ],
)
def test_a_faulty_line_is_named(tmp_path, line, words):
    with pytest.raises(PromptError, match=words):
        read_sources(own(tmp_path, [line], families=["a"]).prompts, ROOT)
