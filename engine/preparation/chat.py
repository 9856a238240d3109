"""A model's chat turn and its stop tokens, read once so that no later step needs transformers."""

from __future__ import annotations

import json
from pathlib import Path

_SLOT = "@@specscale-user-turn@@"


class ChatError(ValueError):
    """The model's folder does not say how a turn looks; the text is one sentence."""


def chat_turn(folder: Path) -> dict[str, str]:
    """Text before and after what the user says in one turn, by the model's own chat template.

    A model without a template gets its beginning-of-sequence token before and nothing after.
    """
    from transformers import AutoTokenizer  # seconds to import; needed here alone

    tokenizer = AutoTokenizer.from_pretrained(folder)
    if tokenizer.chat_template is None:
        return {"before": tokenizer.bos_token or "", "after": ""}
    turn = tokenizer.apply_chat_template(
        [{"role": "user", "content": _SLOT}], tokenize=False, add_generation_prompt=True
    )
    before, found, after = turn.partition(_SLOT)
    if not found:
        raise ChatError(f"the chat template in {folder} does not repeat the user's text")
    return {"before": before, "after": after}


def stop_ids(folder: Path) -> list[int]:
    """End-of-sequence ids, from generation_config.json where there is one, else config.json."""
    for name in ("generation_config.json", "config.json"):
        try:
            ids = json.loads((folder / name).read_text(encoding="utf-8")).get("eos_token_id")
        except FileNotFoundError:
            continue
        if ids is not None:
            return ids if isinstance(ids, list) else [ids]
    return []
