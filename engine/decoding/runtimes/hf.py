"""transformers' generate over a growing cache: plain, or assisted by a draft model.

Assisted generation drafts k tokens a round by a generate call of its own and always takes a bonus
token, so its rounds are folded ones with bonus. Its draft reads two tokens again in every round.
The draft's cache is filled with the prompt beforehand, which the library offers no argument for.
"""

from __future__ import annotations

from engine.decoding.loop import Generation
from engine.decoding.peers import Peer, around

# What a mode can ask of this runtime.
ROUNDS = ("step", "folded")
ACCEPTANCE = ("exact",)
DRAFTERS = ("none", "model")
WHOLE_ROUNDS = True
PEER = "generate of transformers"


class Runtime(Peer):
    """Eager forwards, a cache that is copied as it grows: what generate does unless asked."""

    def _new_cache(self, model, generation: Generation):
        from transformers import DynamicCache

        return DynamicCache(config=model.config)

    def _watch_target(self) -> None:
        self.model.register_forward_pre_hook(self._verifies)
        self.model.register_forward_hook(self._verified)

    def _verifies(self, *_) -> None:
        self._now.target.calls += 1
        self._now.watch.enter("verify")

    def _verified(self, *_) -> None:
        self._now.watch.enter("control")

    def _drafts(self, *_) -> None:
        self._now.drafter.calls += 1

    def _watch_draft(self, k: int) -> None:
        settings = self.draft.generation_config
        settings.num_assistant_tokens = k
        settings.num_assistant_tokens_schedule = "constant"
        settings.assistant_confidence_threshold = 0.0
        self.draft.register_forward_pre_hook(self._drafts)

        @around(self.model, "prepare_inputs_for_generation")
        def only_unread(prepare, tokens, next_sequence_length=None, cache=None, **more):
            # Assisted generation takes its first round for the prefill and would read all again.
            if next_sequence_length is None and cache is not None:
                next_sequence_length = tokens.shape[1] - cache.get_seq_length()
            return prepare(tokens, next_sequence_length=next_sequence_length, cache=cache, **more)

        @around(self.model, "_get_candidate_generator")
        def with_prompt_read(get, **asked):
            generator = get(**asked)
            generator.assistant_kwargs["cache"] = self.draft_cache

            @around(generator, "get_candidates")
            def counted(draft, tokens):
                self._now.watch.enter("draft")
                candidates, logits = draft(tokens)
                self._proposed = candidates.shape[1] - tokens.shape[1]
                self._now.watch.enter("control")
                return candidates, logits

            return generator
