"""What config/training.yaml may say. Unknown keys are errors."""

from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Source(Strict):
    """One kind of self-generated text; stops at `batches` or `seconds`, whichever is first."""

    name: str = Field(pattern=r"^[a-z0-9_]+$")
    kind: Literal["dialogue", "topics", "answers", "contexts"]
    length: int = Field(ge=8, description="tokens in a row, prompt included")
    new_tokens: int = Field(
        default=128, ge=1, description="for kind contexts: tokens the target adds"
    )
    batches: int | None = Field(default=None, ge=1)
    seconds: float | None = Field(default=None, gt=0)
    temperatures: dict[float, float] = Field(
        description="temperature -> share of the rows; 0 is greedy"
    )


class Documents(Strict):
    """Text files found on the disk of the training machine."""

    suffixes: list[str]
    roots: list[Path] = Field(
        default=[], description="searched besides this Python's site-packages"
    )
    site_packages: bool = True
    megabytes: float = Field(gt=0)
    package_share: float = Field(
        gt=0, le=1, description="largest share of the bytes one package may have"
    )
    length: int = Field(ge=8)


class Corpus(Strict):
    topics: Path
    batch_tokens: int = Field(
        ge=8, description="rows x length generated at once; bounded by memory"
    )
    held_out: float = Field(gt=0, lt=0.5)
    documents: Documents
    sources: list[Source]


class Training(Strict):
    layers: list[int] = Field(
        min_length=1, description="target layers the draft's layers start from"
    )
    batch_tokens: int = Field(ge=8)
    steps: int | None = Field(default=None, ge=1)
    seconds: float | None = Field(default=None, gt=0, description="used if steps is not given")
    learning_rate: float = Field(gt=0)
    warmup_steps: int = Field(ge=0)
    betas: tuple[float, float]
    weight_decay: float = Field(ge=0)
    clip: float = Field(gt=0)
    context_weight: float = Field(
        ge=0, description="loss weight of tokens that the target did not write"
    )
    argmax_weight: float = Field(
        ge=0, description="extra mass on the target's argmax in the soft label"
    )
    chunk_tokens: int = Field(ge=1, description="rows of logits held at once")
    compile: bool = Field(description="compile the loss on CUDA")
    checkpoint_steps: int = Field(ge=1)
    log_steps: int = Field(ge=1)


class Evaluation(Strict):
    contexts: list[int]
    new_tokens: int = Field(ge=1)
    k: int = Field(ge=1)


class Settings(Strict):
    seed: int
    device: Literal["auto", "cpu", "cuda"] = "auto"
    design: Path = Field(description="its target is distilled, its prompts are evaluated on")
    corpus: Corpus
    training: Training
    evaluation: Evaluation

    @classmethod
    def read(cls, path: Path) -> "Settings":
        """Parse a YAML file. Raises pydantic.ValidationError, whose text names the key."""
        return cls.model_validate(yaml.safe_load(Path(path).read_text()))
