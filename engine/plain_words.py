"""What pydantic finds wrong with a design, in words for people who have never read the code."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

_WORDS = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be keys and values, such as {{key: value}}",
    "extra_forbidden": "is unknown; config/README.md lists the keys",
    "finite_number": "must be a finite number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be {ge} or more",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a whole number, and a smaller one",
    "int_type": "must be a whole number",
    "invalid_key": "must be text",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be {le} or less",
    "list_type": "must be a list, such as [a, b]",
    "literal_error": "must be {expected}",
    "missing": "is missing",
    "model_attributes_type": "must be keys and values, such as {{key: value}}",
    "model_type": "must be keys and values, such as {{key: value}}",
    "recursion_loop": "must not contain itself",
    "string_pattern_mismatch": "must be text of the form {pattern}",
    "string_too_long": "must be text of at most {max_length} characters",
    "string_too_short": "must be text that is not empty",
    "string_type": "must be text",
    "too_short": "must hold at least {min_length}",
    "tuple_type": "must be a list, such as [a, b]",
    "union_tag_invalid": "unknown {discriminator} {tag!r}; there is {expected_tags}",
    "union_tag_not_found": "must say its {discriminator}",
}
_SHOWN = 60  # characters of a faulty value: enough to find it by


def sentence(error: ValidationError) -> str:
    """Every faulty key with what is allowed there and what was given, in one line."""
    # A value that may be of several kinds fails once a kind; to a user that is one fault.
    faults: dict[str, list[str]] = {}
    given: dict[str, str] = {}
    for fault in error.errors():
        key = _key(fault["loc"])
        faults.setdefault(key, []).append(_words(fault))
        given[key] = _given(fault)
    return "; ".join(_told(key, said, given[key]) for key, said in faults.items())


def _told(key: str, said: list[str], given: str) -> str:
    first, *others = dict.fromkeys(said)
    words = " or ".join([first, *(other.removeprefix("must be ") for other in others)])
    if given and given not in words:
        words += f" (given: {given})"
    if not key:  # about the design as a whole: the words name the keys
        return words
    colon = "" if words.startswith(("must ", "is ")) else ":"
    return f"config key {key!r}{colon} {words}"


def _key(place: tuple[str | int, ...]) -> str:
    """The key as a user writes it: without what pydantic adds to tell kinds of a value apart."""
    parts = list(place)
    if parts[:1] == ["models"]:
        del parts[2:3]  # the source
    elif parts[:1] == ["contexts"]:
        del parts[2:]  # a number, or a word
    if "shape" in parts:
        del parts[parts.index("shape") + 1 :]
    return ".".join(str(part) for part in parts if part != "[key]")


def _words(fault: dict[str, Any]) -> str:
    if fault["type"] in _WORDS:
        return _WORDS[fault["type"]].format(**fault.get("ctx", {}))
    message = fault["msg"].removeprefix("Value error, ")
    return message.replace(repr(fault["input"]), _shown(fault["input"]))


def _given(fault: dict[str, Any]) -> str:
    known = isinstance(fault["input"], str | int | float) and fault["type"] != "extra_forbidden"
    return _shown(fault["input"]) if known else ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
