"""transformers' generate over a cache of fixed size, whose forward it compiles by itself on a GPU.

Its kernels are compiled, and its CUDA graphs recorded, by two whole generations before the first
run. A draft model cannot take part: it would draft without compilation.
"""

from __future__ import annotations

from engine.decoding.loop import Generation, decode
from engine.decoding.peers import Peer, around
from engine.decoding.protocols import Unwatched

# What a mode can ask of this runtime.
ROUNDS = ("step",)
ACCEPTANCE = ("exact",)
DRAFTERS = ("none",)
WHOLE_ROUNDS = True
PEER = "generate of transformers"
NEEDS_ACCELERATOR = "transformers compiles the steps over a static cache on a GPU only"

_WARM = 2  # the first compiles, and graphs are recorded by the second step of the same kind


class Runtime(Peer):
    """The fastest plain decoding that generate offers by one argument."""

    def prepare(self, generation: Generation, k: int) -> None:
        super().prepare(generation, k)
        for _ in range(_WARM):
            warm = Generation(generation.target, self, generation.budget, ignore_stop=True)
            warm.watch = Unwatched()
            decode(warm, "step", k)
            generation.target.restart()
            self.rewind()

    def _new_cache(self, model, generation: Generation):
        from transformers import StaticCache

        room = generation.target.prompt_length + generation.budget
        return StaticCache(config=model.config, max_cache_len=room)

    def _watch_target(self) -> None:
        # Hooks on the module would be compiled with it: what stands around a forward is told of.
        @around(self.model, "prepare_inputs_for_generation")
        def verifies(prepare, *args, **more):
            inputs = prepare(*args, **more)
            self._now.target.calls += 1
            self._now.watch.enter("verify")
            return inputs

        @around(self.model, "_update_model_kwargs_for_generation")
        def verified(update, *args, **more):
            self._now.watch.enter("control")
            return update(*args, **more)
