"""What a drafter may ask for when it is built, and how a mode's parts are found by name."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.decoding import loop, recomputing
from engine.decoding.policies import fixed


@dataclass(frozen=True)
class Resources:
    """Offered to every drafter; what it does not touch is not loaded.

    `capacity` is the number of tokens a cache must hold, `load_draft` returns the draft Decoder,
    `reference_tokens` what the baseline commits after the prompt, as the runtime's tokens. `policy`
    is asked before a token is drafted, if it looks; `draft_window` are the tokens that a draft
    model may see.
    """

    runtime: Any
    capacity: int
    load_draft: Callable[[], Any]
    reference_tokens: Callable[[], list[Any]] | None = None
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
    kind = {"kept": loop.Target, "recomputed": recomputing.Target}[mode["target_cache"]]
    return kind(model, capacity)


def acceptance_rule(mode: Mapping[str, Any]):
    """The mode's rule as a function of proposal and logits."""
    rule = getattr(importlib.import_module("engine.decoding.acceptance"), mode["acceptance"])
    return rule if mode["delta"] is None else functools.partial(rule, delta=mode["delta"])
