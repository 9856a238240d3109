"""The tensors of a model folder, read one by one and held against what its config asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.models.folder import ModelError, weight_files

Shape = tuple[int, ...]


class Checkpoint(Mapping[str, Tensor]):
    """Name to tensor, each from its mapped safetensors file when it is asked for.

    A tensor keeps its file mapped only while it lives, so a reader that copies one after the
    other never holds the weights twice in resident memory. Raises ModelError for a damaged file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shapes: dict[str, Shape] = {}
        self._files: dict[str, Path] = {}
        for path in weight_files(folder):
            try:
                with safe_open(path, framework="pt") as file:
                    for name in file.keys():  # noqa: SIM118 - not a dict
                        self.shapes[name] = tuple(file.get_slice(name).get_shape())
                        self._files[name] = path
            except SafetensorError as error:
                raise ModelError(
                    f"{path} is damaged ({error}): delete it and fetch the model again"
                ) from None

    def __getitem__(self, name: str) -> Tensor:
        with safe_open(self._files[name], framework="pt") as file:
            return file.get_tensor(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def check(self, expected: dict[str, Shape]) -> None:
        """Raise ModelError, naming the tensor, unless names and shapes are as expected.

        Passed over are what transformers passes over too: rope tables of old checkpoints, and
        the copy of the embedding that some tied checkpoints store as a head.
        """
        for name, shape in expected.items():
            if name not in self.shapes:
                raise ModelError(f"{self.folder} lacks the tensor {name}")
            if self.shapes[name] != shape:
                raise ModelError(
                    f"the tensor {name} of {self.folder} has shape {list(self.shapes[name])}, "
                    f"but its config.json asks for {list(shape)}"
                )
        for name in sorted(self.shapes.keys() - expected.keys()):
            tied_head = name == "lm_head.weight" and "model.embed_tokens.weight" in expected
            if not tied_head and not name.endswith("rotary_emb.inv_freq"):
                raise ModelError(
                    f"{self.folder} holds the tensor {name}, which its config.json has no place for"
                )
