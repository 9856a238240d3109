"""What all parts of a design share: strict models, safe names, and the error that users see."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    model_validator,
)

# An escape in YAML or JSON can spell one; UTF-8 cannot, nor does any tokenizer take it.
HALF_CHARACTER = re.compile("[\ud800-\udfff]")
SLUG = re.compile(r"^[a-z0-9][a-z0-9_-]{0,63}$")


class DesignError(ValueError):
    """The design asks for something that cannot be measured; the text is one sentence."""


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _means_what_it_says(cls, data: Any) -> Any:
        """Refuse what pydantic takes for something else, or what no file can hold."""
        for name, value in data.items() if isinstance(data, dict) else ():
            field = cls.model_fields.get(name)
            for part in value if isinstance(value, list) else [value]:
                # It would count: `temperature: on` would be 1.
                if isinstance(part, bool) and field and field.annotation is not bool:
                    raise ValueError(
                        f"{name} cannot be {str(part).lower()}, which YAML also writes as "
                        f"{'yes and on' if part else 'no and off'}"
                    )
                if isinstance(part, str) and HALF_CHARACTER.search(part):
                    raise ValueError(f"{name} has half a character in {part!r}")
        return data


def slug(name: str) -> str:
    if not SLUG.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a usable name: use 1 to 64 of a-z, 0-9, '-' and '_', "
            "starting with a letter or digit"
        )
    return name


def slug_of(name: str) -> str:
    """A family's path-safe name; names that already are slugs stay as they are."""
    if SLUG.fullmatch(name):
        return name
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:48]
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{words}-{digest}" if words else f"family-{digest}"


Slug = Annotated[str, AfterValidator(slug)]
Share = Annotated[float, Field(gt=0, lt=1)]
