"""A target and a draft made of random numbers, whose acceptance is known before they run.

For machines that cannot fetch weights: any shape, made on the device, the same from the same
seed. The target follows one cycle of tokens per family, because its head is its embedding with
the rows moved to the successors; the draft's successors are the same on the designed share of
tokens and others elsewhere. The blocks compute in full, but only disturb the embedding's part of
the residual stream.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.models.architecture import DecoderConfig
from engine.models.decoder import Decoder
from engine.models.designed import agreement_of
from engine.models.layout import model_shapes

EASY = 1.0
_EMBEDDING_SD = 0.02
# Of silu(g) * u with g and u normal: sqrt(E[silu(g)^2]).
_GATED_SD = 0.596
# Of the attention scores: wide enough that a query looks at a few tokens out of thousands, and
# what attention adds keeps its size at any length.
_SCORE_SD = 3.0


@dataclass(frozen=True)
class Plan:
    """Which tokens follow which: the whole behaviour of a pair, on the CPU.

    cycles[f] are family f's tokens in order, [families, n]; region c of a cycle, an equal part
    for each context, is what the target generates in that context, and agreement[c][f] is the
    share of its tokens after which the draft says the same. Others follow themselves.
    """

    cycles: Tensor
    agreement: tuple[tuple[float, ...], ...]
    target_successors: Tensor
    draft_successors: Tensor

    @classmethod
    def draw(
        cls,
        vocabulary: int,
        families: int,
        acceptances: Sequence[float],
        k: int,
        spread: float = 0.0,
        special: Sequence[int] = (),
        seed: int = 0,
    ) -> Plan:
        """Draw a plan for one designed acceptance a context, k proposals a round.

        Families lie evenly within `spread` on both sides of the acceptance, by turns below and
        above, so that the first few of them have the mean of all. Ids in `special` are in no
        cycle. Raises ValueError where the vocabulary is too small for regions of 2 tokens.
        """
        ordinary = torch.ones(vocabulary, dtype=torch.bool)
        ordinary[list(special)] = False
        tokens = ordinary.nonzero()[:, 0]
        part = len(tokens) // (families * len(acceptances))
        if part < 2:
            raise ValueError(
                f"{len(tokens)} ordinary tokens are too few for {families} families in "
                f"{len(acceptances)} contexts"
            )
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(tokens), generator=generator)
        used = families * len(acceptances) * part
        cycles = tokens[order[:used]].view(families, -1)
        target = torch.arange(vocabulary)
        target[cycles] = cycles.roll(-1, 1)
        agreement = tuple(agreement_of(a, k, spread, families) for a in acceptances)
        draft = target.clone()
        for family, cycle in enumerate(cycles):
            for share, region in zip(agreement, cycle.split(part), strict=True):
                differing = part - round(share[family] * part)
                # One token alone cannot have another successor and leave a permutation.
                differing = 2 if differing == 1 else differing
                at = region[torch.randperm(part, generator=generator)[:differing]]
                draft[at] = target[at.roll(1)]
        return cls(cycles, agreement, target, draft)

    def prompt(self, family: int, context: int, length: int) -> Tensor:
        """`length` tokens of a family's cycle that end where the context's region begins."""
        cycle = self.cycles[family]
        start = context * (len(cycle) // len(self.agreement))
        return cycle[torch.arange(start + 1 - length, start + 1) % len(cycle)]

    def continuation(self, family: int, context: int, length: int) -> Tensor:
        """What an undisturbed target says after the prompt, [length]."""
        cycle = self.cycles[family]
        start = context * (len(cycle) // len(self.agreement)) + 1
        return cycle[torch.arange(start, start + length) % len(cycle)]


def hard_norm(hidden: int, vocabulary: int) -> float:
    """The `block_norm` at which the choice hangs on small differences, for a decoder of this size.

    The successor's logit then lies as high as the greatest of all the others is expected, which
    are normal: sqrt(2 log vocabulary) standard deviations. At the shapes of Qwen2.5-1.5B, 8.0.
    """
    return math.sqrt(max(hidden / (2 * math.log(vocabulary)) - 1, 0))


def synthetic_decoder(
    shape: Mapping[str, object],
    successors: Tensor,
    seed: int,
    device: torch.device | str,
    dtype: torch.dtype,
    block_norm: float = EASY,
) -> Decoder:
    """A random decoder that says successors[token] after each token.

    `shape` is a Hugging Face config without vocabulary, such as those in SHAPES; `successors` a
    permutation, int64 [vocabulary]. `block_norm` is the norm of what all blocks add over the norm
    of the embedding: at EASY the choice is certain, at `hard_norm` near-ties are frequent and the
    successors only likely.
    """
    config = DecoderConfig.from_hf(
        {**shape, "vocab_size": len(successors), "tie_word_embeddings": False}
    )
    tensors = _RandomTensors(config, successors, seed, torch.device(device), dtype, block_norm)
    return Decoder(config, tensors, device, dtype)


class _RandomTensors(Mapping):
    """Tensors by their Hugging Face names, each drawn when asked for, from a seed of its own."""

    def __init__(
        self,
        config: DecoderConfig,
        successors: Tensor,
        seed: int,
        device: torch.device,
        dtype: torch.dtype,
        block_norm: float,
    ) -> None:
        self._shapes = model_shapes(config)
        self._successors = successors
        self._seed = seed
        self._device, self._dtype = device, dtype
        # Each of the 2 * layers outputs is independent of the others: their squares add up.
        added = _EMBEDDING_SD * block_norm / math.sqrt(2 * config.layers)
        inner = math.sqrt(config.hidden)
        self._deviations = {
            "embed_tokens": _EMBEDDING_SD,
            "q_proj": _SCORE_SD / inner,
            "o_proj": added / math.sqrt(config.heads * config.head_dim),
            "down_proj": added / (_GATED_SD * math.sqrt(config.intermediate)),
        }
        self._otherwise = 1 / inner

    def __getitem__(self, name: str) -> Tensor:
        if name == "lm_head.weight":
            before = torch.empty_like(self._successors)
            before[self._successors] = torch.arange(len(before))
            return self["model.embed_tokens.weight"][before.to(self._device)]
        shape = self._shapes[name]
        layer = name.split(".")[-2]
        if layer.endswith("norm"):
            return torch.ones(shape, dtype=self._dtype, device=self._device)
        generator = torch.Generator(self._device)
        generator.manual_seed(zlib.crc32(f"{self._seed} {name}".encode()))
        tensor = torch.empty(shape, dtype=self._dtype, device=self._device)
        deviation = self._deviations.get(layer, self._otherwise)
        return tensor.normal_(0, deviation, generator=generator)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)
