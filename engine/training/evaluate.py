"""Agreement and acceptance of a draft along the target's own greedy continuation.

Agreement is teacher-forced: the share of positions where the draft's argmax is the target's.
Acceptance is accepted / proposed when blocks of k tokens are drafted and a round stops at the first
mismatch.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch

from engine.design import Design
from engine.prompts import PromptBuilder, read_sources
from engine.training.sampler import FrozenLlama, head_logits
from engine.training.settings import Evaluation


@dataclass(frozen=True)
class Prompt:
    context: int  # prompt plus new tokens
    family: str
    tokens: list[int]


@dataclass(frozen=True)
class Score:
    context: int
    family: str
    positions: int
    agreement: float
    acceptance: float
    prompt_agreement: float


def design_prompts(
    design: Design, settings: Evaluation, root: Path, tokenizer, turn: dict[str, str]
) -> list[Prompt]:
    """The design's prompts for each asked context, of every family that its prompt folder has.

    tokenizer: a fast Hugging Face tokenizer; turn: text `before` and `after` what the user says.
    """
    sources = read_sources(design.prompts, root)
    plan = design.model_copy(
        update={"new_tokens": settings.new_tokens, "families": sorted(sources)}
    )
    builder = PromptBuilder(plan, sources, tokenizer.backend_tokenizer, turn)
    return [
        Prompt(context, family, builder.build(str(context), family)["tokens"])
        for context in settings.contexts
        for family in plan.families
    ]


def matches(
    draft: FrozenLlama, target: FrozenLlama, tokens: torch.Tensor, chunk: int = 2048
) -> torch.Tensor:
    """[rows, T] bool: at each position of tokens [rows, T], is the draft's argmax the target's?"""
    ours, theirs = draft.hidden(tokens).flatten(0, 1), target.hidden(tokens).flatten(0, 1)
    parts = [
        head_logits(ours[at : at + chunk], draft.head).argmax(-1)
        == head_logits(theirs[at : at + chunk], target.head).argmax(-1)
        for at in range(0, len(ours), chunk)
    ]
    return torch.cat(parts).view(tokens.shape)


def walk(agrees: list[bool], k: int) -> tuple[int, int]:
    """(accepted, proposed) over len(agrees) tokens: no bonus token, blocks cut at the end.

    Along the target's greedy text a proposal is right exactly if all before it in its block were
    and the teacher-forced argmaxes agree there, so the walk needs no model.
    """
    at = accepted = proposed = 0
    while at < len(agrees):
        block = agrees[at : at + k]
        run = next((i for i, agree in enumerate(block) if not agree), len(block))
        accepted += run
        proposed += len(block)
        at += run + (run < len(block))
    return accepted, proposed


def evaluate(
    draft: FrozenLlama, target: FrozenLlama, prompts: Iterable[Prompt], new_tokens: int, k: int
) -> Iterator[Score]:
    """One Score a prompt, over exactly `new_tokens` tokens, past any end-of-sequence."""
    generator = torch.Generator(device=target.embedding.device)
    for prompt in prompts:
        length = len(prompt.tokens)
        tokens = target.sample(
            torch.tensor([prompt.tokens]),
            torch.tensor([length]),
            length + new_tokens,
            torch.zeros(1),
            generator,
        )
        agrees = matches(draft, target, tokens[:, :-1])[0]
        own = agrees[length - 1 :]
        accepted, proposed = walk(own.tolist(), k)
        yield Score(
            context=prompt.context,
            family=prompt.family,
            positions=len(own),
            agreement=float(own.float().mean()),
            acceptance=accepted / proposed,
            prompt_agreement=float(agrees[: length - 1].float().mean()),
        )


def held_out_agreement(
    draft: FrozenLlama, target: FrozenLlama, shards, rows: int = 64
) -> dict[int, float]:
    """Agreement on the target's own text by row length, over at most `rows` rows of each shard."""
    figures = {}
    device = target.embedding.device
    for shard in shards:
        picked = [i for i, start in enumerate(shard.starts) if start < shard.tokens.shape[1]][:rows]
        if not picked:
            continue
        tokens = torch.from_numpy(shard.tokens[picked].astype("int64")).to(device)
        starts = torch.from_numpy(shard.starts[picked]).to(device)
        agrees = matches(draft, target, tokens[:, :-1])
        own = torch.arange(1, tokens.shape[1], device=device) >= starts[:, None]
        figures[tokens.shape[1]] = float((agrees & own).sum() / own.sum())
    return figures


def write_scores(scores: Iterable[Score], path: Path) -> None:
    """CSV, one row a (context, family)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Score)], lineterminator="\n")
        writer.writeheader()
        for score in scores:
            writer.writerow(
                {k: round(v, 4) if isinstance(v, float) else v for k, v in asdict(score).items()}
            )
            file.flush()
