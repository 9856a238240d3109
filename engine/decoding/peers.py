"""Another library's decoding as a runtime: transformers' generate, over the same weights.

The peer keeps caches of its own, which hold the prompt before any clock starts; the first token
comes with the prefill, as in every mode, so both sides commit what remains of the budget. Inside
the clock is all that a call of generate does until it hands over the last token: its checks and
preparations, its loop, and handing tokens over (a streamer, where a user would read them). How
often it waits for the device, and what it copies there, it does not say: those columns are null.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.decoding.crossings import Crossings
from engine.decoding.loop import Generation
from engine.models.as_transformers import as_transformers


class Peer(Crossings, ABC):
    """Runs whole generations through `generate`; a subclass says over which cache and how."""

    def __init__(self, device: torch.device, stop_ids: Sequence[int] = ()):
        super().__init__(device)
        self._stop_ids = frozenset(stop_ids)
        self._prompt: list[int] = []
        self.model = self.draft = None
        self.cache = self.draft_cache = None
        # The generation that runs, as hooks must find it; None between runs.
        self._now: Generation | None = None
        self._proposed = 0

    def counts(self) -> dict[str, int | None]:
        return {"host_syncs": None, "h2d_copies": None}

    def first_stop(self, values: Sequence[int]) -> int | None:
        """Index of the first end-of-sequence token, or None."""
        return next((i for i, value in enumerate(values) if value in self._stop_ids), None)

    def prepare(self, generation: Generation, k: int) -> None:
        """Import transformers, build its models over our weights, and have them read the prompt."""
        from transformers import logging

        logging.set_verbosity_error()
        self._prompt = generation.target.prompt.tolist()
        self.model = as_transformers(generation.target.model)
        self.cache = self._read(self.model, self._new_cache(self.model, generation))
        self._watch_target()
        if k:
            self.draft = as_transformers(generation.drafter.model)
            self.draft_cache = self._read(self.draft, self._new_cache(self.draft, generation))
            self._watch_draft(k)

    def rewind(self) -> None:
        """Caches back to the end of the prompt."""
        for cache in filter(None, (self.cache, self.draft_cache)):
            cache.crop(len(self._prompt) - int(cache.get_seq_length()))

    def whole_rounds(self, g: Generation, k: int) -> None:
        """Commit the first token, and let generate commit the rest; its last token is the end.

        No token ends the call early: what lies behind a stop is not committed, where one counts.
        """
        self._now = g
        first = int(g.target.saved_next.argmax())
        g.commit([first], [first])
        if not k:
            # Where rounds are tokens, the first one is a round, as in the loop.
            g.watch.lap()
        if not g.done:
            self._generate([*self._prompt, first], g.remaining, k)
        elif k:
            g.watch.lap()
        self._now = None

    def _generate(self, tokens: list[int], budget: int, k: int) -> None:
        """What a user would call, with the prompt read already."""
        self.model.generate(
            torch.tensor([tokens], device=self.device),
            cache=self.cache,
            max_new_tokens=budget,
            do_sample=False,
            streamer=_Streamer(self._arrived),
            **({"assistant_model": self.draft} if k else {}),
        )

    def _arrived(self, values: list[int]) -> None:
        """Tokens of one round have reached the host."""
        g = self._now
        if g.done:
            return
        kept = g.commit(values, values)
        if self.draft:
            # As in the loop: what lies behind a stop does not count as proposed.
            most = kept if g.trace.stopped else self._proposed
            g.trace.record_round(min(self._proposed, most), min(len(values) - 1, most))
        g.watch.lap()

    @abstractmethod
    def _new_cache(self, model, generation: Generation):
        """An empty cache for prompt and budget."""

    @abstractmethod
    def _watch_target(self) -> None:
        """Have the target's forwards counted and told to the watch."""

    def _watch_draft(self, k: int) -> None:
        """Have k tokens drafted a round, over the draft's cache, and counted."""
        raise NotImplementedError("a peer that cannot draft is not asked")

    def _read(self, model, cache):
        prompt = torch.tensor([self._prompt], device=self.device)
        model(prompt, cache=cache, use_cache=True, logits_to_keep=1)
        return cache


class _Streamer:
    """Hands tokens on as generate gives them out; first of all it gives out the prompt."""

    def __init__(self, arrived):
        self._arrived, self._is_prompt = arrived, True

    def put(self, tokens: Tensor) -> None:
        if not self._is_prompt:
            self._arrived(tokens.flatten().tolist())
        self._is_prompt = False

    def end(self) -> None: ...


def around(owner, name: str):
    """Replace a method of one object by the decorated function, which gets the old one first."""
    old = getattr(owner, name)

    def put(new):
        # transformers looks at signatures, which wraps keeps.
        setattr(owner, name, functools.wraps(old)(functools.partial(new, old)))

    return put
