"""Prompts: families of text become token ids of exactly the asked length.

A prompt is one chat turn: documents, then an instruction. Where a family's own text is too short
for a context, texts of other families stand before it as earlier documents, in an order of its
own. What does not fit is cut at the front, so that the text next to the instruction stays whole.
"""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tokenizers import Tokenizer

from engine.design import NATURAL, Design, Prompts
from engine.strict import HALF_CHARACTER, slug_of

_JOINT = "\n\n"


class PromptError(ValueError):
    """A prompt cannot be built; the text is one sentence that says what to do."""


@dataclass(frozen=True)
class Source:
    """One family's text and the instruction that follows it ("" if the text is the turn)."""

    text: str
    instruction: str


def read_sources(prompts: Prompts, root: Path) -> dict[str, Source]:
    """All families that the prompt source offers, by the name that a design uses for them.

    Raises PromptError for a missing or malformed file.
    """
    path = root / prompts.path
    if prompts.source == "packaged":
        return _read_packaged(path)
    return _read_jsonl(path, prompts.question)


def _read_packaged(folder: Path) -> dict[str, Source]:
    try:
        instructions = yaml.safe_load((folder / "instructions.yaml").read_text(encoding="utf-8"))
        return {
            family: Source((folder / f"{family}.txt").read_text(encoding="utf-8").strip(), words)
            for family, words in instructions.items()
        }
    except OSError as error:
        raise PromptError(
            f"prompt file {error.filename} cannot be read: {error.strerror}"
        ) from None


def _read_jsonl(path: Path, question: int) -> dict[str, Source]:
    """Spec-Bench's question file: question_id, category, turns; family = category.

    Of each category, the question number `question` in file order (0 is the first) is taken.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise PromptError(f"prompts file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PromptError(f"prompts file {path} is not UTF-8 text") from None
    questions: dict[str, list[str]] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            category, text = _parse_question(line, f"{path.name} line {number}")
            questions.setdefault(category, []).append(text)
    if not questions:
        raise PromptError(f"prompts file {path} holds no question")
    short = [name for name, texts in questions.items() if len(texts) <= question]
    if short:
        raise PromptError(
            f"prompts.question is {question}, but category {short[0]!r} of {path.name} has only "
            f"{len(questions[short[0]])} questions (the first is number 0)"
        )
    return {name: Source(texts[question], "") for name, texts in questions.items()}


def _parse_question(line: str, where: str) -> tuple[str, str]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise PromptError(f"{where} is not JSON: {error.msg}") from None
    except RecursionError:
        raise PromptError(f"{where} is nested too deep to be a question") from None
    if not isinstance(record, dict):
        raise PromptError(f"{where} is not a JSON object with 'category' and 'turns'")
    category, turns = record.get("category"), record.get("turns")
    if not isinstance(category, str) or not category.strip():
        raise PromptError(f"{where} has no 'category': it must be a text that is not empty")
    if not isinstance(turns, list) or not turns or not isinstance(turns[0], str):
        raise PromptError(f"{where} has no 'turns': it must be a list that starts with a text")
    if not turns[0].strip():
        raise PromptError(f"{where} has an empty first turn; give it some text or remove the line")
    for name, text in (("category", category), ("turns", turns[0])):
        if HALF_CHARACTER.search(text):
            raise PromptError(
                f"{where} has half a character (an escape from \\ud800 to \\udfff) in "
                f"{name!r}; write the whole character"
            )
    return category, turns[0]


def synthetic_prompt(design: Design, context: str, family: str) -> dict[str, Any]:
    """One cell's prompt from the plan of a synthetic pair; keys as in PromptBuilder.build."""
    from engine.models.recipe import build_prompt

    plan = design.models.target.plan.model_dump(mode="json")
    length = int(context) - design.new_tokens
    tokens = build_prompt(plan, context, design.families.index(family), length)
    return _prompt(context, family, [], tokens)


def _prompt(context: str, family: str, documents: list[str], tokens: list[int]) -> dict[str, Any]:
    return {
        "context": str(context),
        "family": slug_of(family),
        "name": family,
        "documents": documents,
        "sha256": hashlib.sha256(json.dumps(tokens).encode()).hexdigest(),
        "tokens": tokens,
    }


class PromptBuilder:
    """Builds prompts with the target's tokenizer and chat turn (`before` and `after` the text)."""

    def __init__(
        self,
        design: Design,
        sources: dict[str, Source],
        tokenizer: Tokenizer,
        turn: dict[str, str],
    ):
        self._design = design
        self._sources = sources
        self._tokenizer = tokenizer
        self._turn = turn
        self._texts: dict[str, list[int]] = {}
        missing = [name for name in design.families if name not in sources]
        if missing:
            raise PromptError(
                f"unknown family {missing[0]!r}; {design.prompts.path} has "
                f"{', '.join(sorted(sources))}"
            )

    def build(self, context: str, family: str) -> dict[str, Any]:
        """Token ids of one cell's prompt, their hash, and which documents they hold.

        `context` counts prompt plus new tokens, so the prompt has context - new_tokens ids; a
        `natural` context takes the text at its own length. Raises PromptError if the texts are
        too short for the context, or the context too short for the instruction.
        """
        source = self._sources[family]
        head, tail = self._frame(source.instruction)
        own = self._encoded(family)
        if context == NATURAL:
            body, documents = own, [family]
        else:
            room = int(context) - self._design.new_tokens - len(head) - len(tail)
            if room < 1:
                raise PromptError(
                    f"context {context} leaves no room for text of family {family!r}: new tokens, "
                    f"chat template and instruction take {int(context) - room}"
                )
            body, documents = self._fill(family, room, context)
        return _prompt(context, family, documents, head + body + tail)

    def _fill(self, family: str, room: int, context: str) -> tuple[list[int], list[str]]:
        body, documents = self._encoded(family), [family]
        others = [name for name in self._sources if name != family]
        random.Random(f"{self._design.seed}/{family}").shuffle(others)
        joint = self._encode(_JOINT)
        while len(body) < room and others:
            name = others.pop()
            body = self._encoded(name) + joint + body
            documents.insert(0, name)
        if len(body) < room:
            raise PromptError(
                f"too little text: family {family!r} at context {context} needs {room} tokens of "
                f"text, but all of {self._design.prompts.path} together has {len(body)}; add text "
                "or leave out that context"
            )
        return body[len(body) - room :], documents

    def _frame(self, instruction: str) -> tuple[list[int], list[int]]:
        """Token ids before the documents and after them."""
        after = f"{_JOINT}{instruction}" if instruction else ""
        return self._encode(self._turn["before"]), self._encode(after + self._turn["after"])

    def _encoded(self, family: str) -> list[int]:
        if family not in self._texts:
            # A user's text that spells a control token must not become one.
            self._tokenizer.encode_special_tokens = True
            try:
                self._texts[family] = self._encode(self._sources[family].text)
            finally:
                self._tokenizer.encode_special_tokens = False
        return self._texts[family]

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids if text else []
