"""The training corpus: what the target writes by itself, after prompts, and after long contexts.

Written as one .npz a batch: `tokens` uint16 [rows, length], `starts` int16 [rows], the first
position that the target wrote (length, if it wrote none), `temperatures` float16 [rows], NaN for
text from disk.
"""

import itertools
import json
import random
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import yaml
from tqdm import tqdm

from engine.training.documents import Document, find_documents, stated_licences
from engine.training.sampler import FrozenLlama
from engine.training.settings import Corpus, Source

PIECE_TOKENS = 400  # files from disk are cut into documents of this length
QUESTION_TOKENS = 64  # a question harvested from open dialogue is cut here


class ChatFormat:
    """The chat template as token ids around a user turn.

    tokenizer: anything with `encode(text, add_special_tokens=False) -> list[int]` and
    `apply_chat_template`.
    """

    def __init__(self, tokenizer):
        self.encode = lambda text: tokenizer.encode(text, add_special_tokens=False)
        probe = "\u00a7"
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": probe}], tokenize=False, add_generation_prompt=True
        )
        before, after = text.split(probe)
        self.turn = {"before": before, "after": after}
        self.opening, self.closing = self.encode(before), self.encode(after)
        self.turn_end = self.closing[0]
        self.gap = self.encode("\n\n")
        self.stops = {self.turn_end, *self.encode("\n"), *self.gap}

    def prompt(self, user: list[int]) -> list[int]:
        return [*self.opening, *user, *self.closing]


def topic_prompts(
    topics: dict, chat: ChatFormat, rng: random.Random
) -> Iterator[tuple[str, list[int]]]:
    """Every (family, prompt ids) of tasks x topics x endings, shuffled, encoded on demand."""
    combinations = [
        (family, task.format(topic=topic) + ending)
        for family, entry in topics["families"].items()
        for task, topic, ending in itertools.product(
            entry["tasks"], topics["topics"], topics["endings"]
        )
    ]
    rng.shuffle(combinations)
    return ((family, chat.prompt(chat.encode(text))) for family, text in combinations)


def harvest_question(row: list[int], chat: ChatFormat) -> list[int]:
    """The user turn that the target sampled, up to its end, its first line or QUESTION_TOKENS."""
    user = row[len(chat.opening) : len(chat.opening) + QUESTION_TOKENS]
    return list(itertools.takewhile(lambda token: token not in chat.stops, user))


def context_prompt(
    pieces: dict[str, list[list[int]]],
    topics: dict,
    chat: ChatFormat,
    length: int,
    rng: random.Random,
) -> list[int]:
    """A prompt of exactly `length` tokens: documents one after another, then an instruction.

    pieces: documents as token ids by family; each family is drawn as often as any other. The
    instruction fits the last document. Raises ValueError if the length has no room for it.
    """
    families = sorted(pieces)
    family = rng.choice(families)
    instruction = chat.encode("\n\n" + rng.choice(topics["families"][family]["instructions"]))
    room = length - len(chat.opening) - len(chat.closing) - len(instruction)
    if room < 1:
        raise ValueError(f"{length} tokens have no room for a document and an instruction")
    body = rng.choice(pieces[family])
    while len(body) < room:
        body = rng.choice(pieces[rng.choice(families)]) + chat.gap + body
    return chat.prompt(body[len(body) - room :] + instruction)


class CorpusBuilder:
    """Builds the corpus file by file into a folder; files that are there already are kept."""

    def __init__(self, settings: Corpus, seed: int, target: FrozenLlama, tokenizer, folder: Path):
        self.settings, self.seed, self.target = settings, seed, target
        self.chat = ChatFormat(tokenizer)
        self.tokenizer = tokenizer
        self.topics = yaml.safe_load(Path(settings.topics).read_text())
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.pieces: dict[str, list[list[int]]] = defaultdict(list)
        self.questions: list[list[int]] = []
        self.documents: dict = {}

    def build(self) -> dict:
        """Documents first, then each source in the order of the config. Returns the manifest."""
        self._add_documents()
        for order, source in enumerate(self.settings.sources):
            self._add_source(source, random.Random(f"{self.seed} {order}"))
        manifest = {
            "seed": self.seed,
            "documents": self.documents,
            "sources": describe(self.folder),
        }
        (self.folder / "manifest.json").write_text(json.dumps(manifest, indent=1))
        return manifest

    def _add_documents(self) -> None:
        settings = self.settings.documents
        documents = find_documents(settings, self.seed)
        encoded = self.tokenizer([d.text for d in documents], add_special_tokens=False)["input_ids"]
        bytes_by_package: dict[str, int] = {}
        for document, tokens in zip(documents, encoded, strict=True):
            bytes_by_package[document.package] = bytes_by_package.get(document.package, 0) + len(
                document.text
            )
            for at in range(0, len(tokens), PIECE_TOKENS):
                self.pieces[family_of(document)].append(tokens[at : at + PIECE_TOKENS])
        self.documents = {
            "characters": bytes_by_package,
            "licences": stated_licences(set(bytes_by_package)),
        }
        stream = np.array(list(itertools.chain.from_iterable(encoded)), dtype=np.uint16)
        rows = stream[: len(stream) // settings.length * settings.length].reshape(
            -1, settings.length
        )
        self._save(
            "documents", 0, rows, np.full(len(rows), settings.length), np.full(len(rows), np.nan)
        )

    def _add_source(self, source: Source, rng: random.Random) -> None:
        prompts = self._prompts(source, rng)
        rows = max(1, self.settings.batch_tokens // source.length)
        started = time.monotonic()
        with tqdm(desc=source.name, unit="tok", unit_scale=True, mininterval=5) as bar:
            for index in itertools.count():
                elapsed = time.monotonic() - started
                if index == source.batches or (
                    source.seconds is not None and elapsed > source.seconds
                ):
                    break
                batch = [next(prompts) for _ in range(rows)]
                tokens = self._generate(source, index, batch)
                bar.update(tokens.size)
                for (family, prompt), row in zip(batch, tokens.tolist(), strict=True):
                    self._reuse(source, family, row, len(prompt))

    def _generate(
        self, source: Source, index: int, batch: list[tuple[str, list[int]]]
    ) -> np.ndarray:
        path = self.folder / f"{source.name}-{index:04d}.npz"
        if path.exists():
            with np.load(path) as stored:
                return stored["tokens"]
        device = self.target.embedding.device
        name = zlib.crc32(source.name.encode())
        generator = torch.Generator(device=device).manual_seed(self.seed + 7919 * index + name)
        shares = source.temperatures
        picker = np.random.default_rng([self.seed, index, name])
        weights = np.array(list(shares.values())) / sum(shares.values())
        temperatures = picker.choice(np.array(list(shares)), size=len(batch), p=weights)
        lengths = np.array([min(len(prompt), source.length) for _, prompt in batch])
        forced = np.zeros((len(batch), lengths.max()), dtype=np.int64)
        for row, (_, prompt) in enumerate(batch):
            forced[row, : lengths[row]] = prompt[: source.length]
        tokens = self.target.sample(
            torch.from_numpy(forced),
            torch.from_numpy(lengths),
            source.length,
            torch.from_numpy(temperatures).float(),
            generator,
        )
        tokens = tokens.cpu().numpy().astype(np.uint16)
        self._save(source.name, index, tokens, lengths, temperatures)
        return tokens

    def _prompts(self, source: Source, rng: random.Random):
        if source.kind == "dialogue":
            return itertools.repeat(("documentation", self.chat.opening))
        if source.kind == "topics":
            return itertools.cycle(topic_prompts(self.topics, self.chat, rng))
        if source.kind == "answers":
            if not self.questions:
                raise ValueError(f"source {source.name} needs a source of kind dialogue before it")
            questions = [
                ("documentation", self.chat.prompt(question)) for question in self.questions
            ]
            rng.shuffle(questions)
            return itertools.cycle(questions)
        length = source.length - source.new_tokens
        return (
            ("", context_prompt(self.pieces, self.topics, self.chat, length, rng))
            for _ in itertools.count()
        )

    def _reuse(self, source: Source, family: str, row: list[int], prompt: int) -> None:
        """Sampled questions get answers, and written texts become documents of later contexts."""
        if source.kind == "dialogue":
            question = harvest_question(row, self.chat)
            if len(question) >= 4:
                self.questions.append(question)
        elif source.kind == "topics":
            text = list(
                itertools.takewhile(lambda token: token != self.chat.turn_end, row[prompt:])
            )
            if len(text) >= 32:
                self.pieces[family].append(text)

    def _save(self, name: str, index: int, tokens, starts, temperatures) -> None:
        path = self.folder / f"{name}-{index:04d}.npz"
        partial = path.with_name("partial.npz")
        np.savez(
            partial,
            tokens=tokens,
            starts=np.asarray(starts).astype(np.int16),
            temperatures=np.asarray(temperatures).astype(np.float16),
        )
        partial.rename(path)


def family_of(document: Document) -> str:
    """The family whose instructions fit a file found on disk."""
    return {".py": "python", ".json": "json", ".log": "logs", ".sql": "sql"}.get(
        document.suffix, "documentation"
    )


def describe(folder: Path) -> dict:
    """Counts by source: rows, row length, all tokens, tokens the target wrote by temperature."""
    counts: dict[str, dict] = {}
    for path in sorted(folder.glob("*-*.npz")):
        with np.load(path) as stored:
            tokens, starts, temperatures = (
                stored[key] for key in ("tokens", "starts", "temperatures")
            )
        entry = counts.setdefault(
            path.stem.rsplit("-", 1)[0],
            {"rows": 0, "length": tokens.shape[1], "tokens": 0, "written": {}},
        )
        entry["rows"] += len(tokens)
        entry["tokens"] += tokens.size
        written = tokens.shape[1] - starts.astype(int)
        for temperature in np.unique(temperatures[~np.isnan(temperatures)]):
            label = f"{float(temperature):.1f}"
            count = int(written[temperatures == temperature].sum())
            entry["written"][label] = entry["written"].get(label, 0) + count
    return counts
