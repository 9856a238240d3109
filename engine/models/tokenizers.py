"""Which token ids exist, and whether two models mean the same by each of them."""

from __future__ import annotations

from pathlib import Path

from engine.models.folder import ModelError, read_json


def vocabulary_size(folder: Path) -> int:
    """Largest token id of the tokenizer plus one, over its vocabulary and its added tokens.

    Weights often have more rows than that: padding, which no one may sample.
    Raises ModelError if the folder has no tokenizer.json.
    """
    return max(read_tokens(folder)) + 1


def compare_tokenizers(target_folder: Path, draft_folder: Path) -> None:
    """Raise ModelError at the lowest id that is not the same token to target and draft."""
    target, draft = read_tokens(Path(target_folder)), read_tokens(Path(draft_folder))
    for token_id in sorted(target.keys() | draft.keys()):
        ours, theirs = target.get(token_id), draft.get(token_id)
        if ours != theirs:
            raise ModelError(
                f"target and draft have different tokenizers: id {token_id} is {_shown(ours)} in "
                f"{target_folder} and {_shown(theirs)} in {draft_folder}; a draft must use the "
                "target's own tokenizer"
            )


def read_tokens(folder: Path) -> dict[int, str]:
    """Token text by id, from tokenizer.json and the added tokens of tokenizer_config.json."""
    tokenizer = read_json(folder / "tokenizer.json")
    vocabulary = tokenizer.get("model", {}).get("vocab", {})
    if isinstance(vocabulary, dict):
        tokens = {token_id: token for token, token_id in vocabulary.items()}
    else:  # unigram models list (token, score) in the order of their ids
        tokens = {token_id: token for token_id, (token, _) in enumerate(vocabulary)}
    tokens.update((added["id"], added["content"]) for added in tokenizer.get("added_tokens", ()))
    if (folder / "tokenizer_config.json").is_file():
        settings = read_json(folder / "tokenizer_config.json")
        for token_id, added in settings.get("added_tokens_decoder", {}).items():
            tokens[int(token_id)] = added["content"]
    if not tokens:
        raise ModelError(f"{folder / 'tokenizer.json'} names no tokens")
    return tokens


def _shown(token: str | None) -> str:
    return "no token" if token is None else repr(token)
