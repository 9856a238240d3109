"""What a drafter may ask for when it is built, and how a mode's parts are found by name."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from engine.decoding import acceptance, recomputing, target
from engine.decoding.policies import fixed
from engine.decoding.sampling.noise import Noise
from engine.decoding.sampling.voice import Greedy, IndependentDraft, Sampled, SharedDraft
from engine.decoding.sampling.warp import Warp


@dataclass(frozen=True)
class Resources:
    """Offered to every drafter; what it does not touch is not loaded.

    `capacity` is the number of tokens a cache must hold, `load_draft` returns the draft Decoder,
    `reference_tokens` what the baseline commits after the prompt, as the runtime's tokens;
    `draft_voice` chooses a drafted token from the draft's logits. `policy` is asked before, if it
    looks; `draft_window` are the tokens that a draft model may see.
    """

    runtime: Any
    capacity: int
    load_draft: Callable[[], Any]
    reference_tokens: Callable[[], list[Any]] | None = None
    draft_voice: Any = field(default_factory=Greedy)
    policy: Any = field(default_factory=fixed.Policy)
    draft_window: int | None = None


def build_runtime(mode: Mapping[str, Any], device, stop_ids):
    module = importlib.import_module(f"engine.decoding.runtimes.{mode['runtime']}")
    return module.Runtime(device, stop_ids)


def build_drafter(mode: Mapping[str, Any], resources: Resources):
    """The mode's drafter, or None for plain decoding."""
    if mode["drafter"] == "none":
        return None
    module = importlib.import_module(f"engine.decoding.drafters.{mode['drafter']}")
    return module.Drafter(resources)


def build_policy(mode: Mapping[str, Any]):
    """The mode's policy, with the keys that its file says it takes."""
    module = importlib.import_module(f"engine.decoding.policies.{mode['policy']}")
    return module.Policy(**{name: mode[name] for name in getattr(module, "TAKES", ())})


def build_target(mode: Mapping[str, Any], model, capacity: int):
    """The target of a mode, which keeps its cache between verifications or does not."""
    if mode["target_cache"] == "recomputed":
        return recomputing.Target(model, capacity)
    return target.Target(model, capacity, mode["numerics"] == "invariant")


def acceptance_rule(mode: Mapping[str, Any]):
    """The mode's rule as a function of the case."""
    rule = getattr(acceptance, mode["acceptance"])
    taken = list(inspect.signature(rule).parameters)[1:]
    return functools.partial(rule, **{name: mode[name] for name in taken}) if taken else rule


def build_voices(mode: Mapping[str, Any], seed: int, prompt: Tensor, runtime) -> tuple[Any, Any]:
    """How the target and the draft choose tokens behind a prompt (LongTensor [P], on the device).

    Target first; both greedy without `sampling`. They share one source of noise: its purposes
    keep their numbers apart, or, in coupled sampling, let them share.
    """
    if mode["sampling"] is None:
        return Greedy(), Greedy()
    parts = Noise(seed, prompt.tolist()), prompt, runtime.upload
    draft = SharedDraft if mode["acceptance"] in acceptance.SHARED_NOISE else IndependentDraft
    draft_warp = Warp(**(mode["draft_sampling"] or mode["sampling"]))
    return Sampled(Warp(**mode["sampling"]), *parts), draft(draft_warp, *parts)
