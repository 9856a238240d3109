"""One dense pre-norm decoder for Llama, SmolLM2, Qwen2, Qwen3 and Mistral, by flags; batch 1."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.models.architecture import DecoderConfig, UnsupportedModel
from engine.models.attention import attend_chunk, attend_rows, prefill_kernels
from engine.models.cache import Cache
from engine.models.layer import Layer
from engine.models.norm import rms_norm
from engine.models.rope import RopeTable, rotate
from engine.models.weights import own_matrix, own_rows
from engine.models.window import WindowedCache

__all__ = ["Decoder", "DecoderConfig", "UnsupportedModel"]
Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


class Decoder:
    """Weights and the forward step. Tensors are [M, hidden]; nothing here waits for the device.

    `vocabulary` is the number of token ids that are judged: head and embedding are cut to it,
    so that the padding rows of a checkpoint can never win. A student (`shared` given) brings
    blocks only and uses the embedding and the head of another decoder, without copies.
    """

    def __init__(
        self,
        config: DecoderConfig,
        tensors: Mapping[str, Tensor],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        vocabulary: int | None = None,
        shared: Decoder | None = None,
    ) -> None:
        self.config = config
        self.device = torch.device(device)
        self.dtype = dtype

        def judged(name: str) -> list[Tensor]:
            return [tensors[name][: self.vocabulary]]

        if shared is None:
            self.vocabulary = vocabulary or config.vocabulary_rows
            if config.tied_head:
                self.head = own_matrix(judged("model.embed_tokens.weight"), self.device, dtype)
                self.embedding = self.head
            else:
                self.head = own_matrix(judged("lm_head.weight"), self.device, dtype)
                self.embedding = own_rows(judged("model.embed_tokens.weight"), self.device, dtype)
        else:
            self.vocabulary = shared.vocabulary
            self.embedding, self.head = shared.embedding, shared.head
        self.norm = own_rows([tensors["model.norm.weight"]], self.device, dtype)
        self.layers = [
            Layer.load(config, tensors, i, self.device, dtype) for i in range(config.layers)
        ]
        self.rope = RopeTable(config, dtype, self.device)
        self._scored: Tensor | None = None

        self._block_bytes = sum(w.nbytes for w in self.weights()) - self.head.nbytes
        self.weights_bytes = self._block_bytes
        if shared is None:
            self.weights_bytes += self.head.nbytes
            self.weights_bytes += 0 if config.tied_head else self.embedding.nbytes

    def trimmed(self, ids: Sequence[int]) -> Decoder:
        """The same decoder with a head for these token ids only; all else is shared.

        Its logits keep their shape, and the other ids have minus infinity, so that whatever
        chooses or samples from them needs not know. Ids beyond the vocabulary are left out.
        """
        twin = copy.copy(self)
        twin._scored = torch.tensor(
            [i for i in ids if i < self.vocabulary], dtype=torch.long, device=self.device
        )
        # Gathered once: rows picked in every step would cost more than they save.
        twin.head = own_matrix([self.head[twin._scored]], self.device, self.dtype)
        twin.weights_bytes = self.weights_bytes + twin.head.nbytes
        return twin

    def weights(self) -> list[Tensor]:
        """What a step reads beside the cache, as `step_bytes` counts it."""
        blocks = (tensor for layer in self.layers for tensor in layer.tensors)
        return [*blocks, self.norm, self.head]

    def step_bytes(self, length: int) -> int:
        """Least bytes that a step of one token reads with `length` tokens in the cache.

        Every weight once (a tied matrix as the head; one row of the embedding is negligible)
        and the keys and values.
        """
        row = 2 * self.config.layers * self.config.kv_heads * self.config.head_dim
        return self._block_bytes + self.head.nbytes + length * row * self.dtype.itemsize

    def new_cache(self, capacity: int, window: int | None = None) -> Cache:
        """An empty cache for `capacity` tokens; position tables are made for as many.

        With a `window` it shows no more than the first few tokens and the last `window`.
        """
        config = self.config
        self.rope.rows(0, capacity)
        shape = (config.layers, config.kv_heads, capacity, config.head_dim, self.dtype, self.device)
        return Cache(*shape) if window is None else WindowedCache(window, *shape)

    def forward(self, tokens: Tensor, cache: Cache, rows: int = 1) -> Tensor:
        """Append tokens [M] (int64, on the device) to the cache.

        Returns the logits of the last `rows` of them, [rows, vocabulary] in the model's dtype.
        Raises CacheError if they do not fit, and ValueError if there are fewer than `rows`.
        """
        count = tokens.shape[0]
        if not 1 <= rows <= count:
            raise ValueError(f"{rows} rows of logits were asked for from {count} tokens")
        cache.reserve(count)
        mask = cache.mask(count, self.norm)
        if mask is not None:
            mask = mask.repeat(self.config.heads // self.config.kv_heads, 1)
        return self._logits(self._blocks(tokens, cache, attend_rows, mask)[-rows:])

    def prefill(self, tokens: Tensor, cache: Cache, chunk: int) -> Tensor:
        """Append tokens [P] in pieces of at most `chunk`; logits [vocabulary] of the last one.

        On a GPU the attention of a whole prompt is one piece: as such it needs no mask.
        """
        cache.reserve(tokens.shape[0])
        with prefill_kernels():
            whole = cache.length == 0 and not isinstance(cache, WindowedCache)
            if self.device.type == "cuda" and whole:
                return self._logits(self._prompt(tokens, cache, chunk))[0]
            for piece in tokens.split(chunk):
                rows = piece.shape[0]
                mask = cache.mask(rows, self.norm) if cache.length else None
                hidden = self._blocks(piece, cache, attend_chunk, mask)
        return self._logits(hidden[-1:])[0]

    def read(self, tokens: Tensor, cache: Cache, rows: int) -> Tensor:
        """Read tokens [P] into an empty cache at once; logits [rows, vocabulary] of the last."""
        cache.expect(0)
        cache.reserve(tokens.shape[0])
        with prefill_kernels():
            return self._logits(self._blocks(tokens, cache, attend_chunk, None)[-rows:])

    def _prompt(self, tokens: Tensor, cache: Cache, chunk: int) -> Tensor:
        """Residual stream [1, hidden] after the last token of a whole prompt.

        Only what stands behind attention, whose vectors are the widest, goes in pieces.
        """
        rows = tokens.shape[0]
        table = self.rope.rows(0, rows)
        hidden = F.embedding(tokens, self.embedding)
        for index, layer in enumerate(self.layers):
            attended = self._attend(index, hidden, cache, table, attend_chunk, None)
            if index + 1 == len(self.layers):
                hidden, attended = hidden[-1:], attended[-1:]
            for piece, added in zip(hidden.split(chunk), attended.split(chunk), strict=True):
                _finish_in_place(layer, piece, added)
        cache.advance(rows)
        return hidden

    def _blocks(
        self,
        tokens: Tensor,
        cache: Cache,
        attend: Attend,
        mask: Tensor | None,
    ) -> Tensor:
        rows = tokens.shape[0]
        table = self.rope.rows(cache.length, rows)
        hidden = F.embedding(tokens, self.embedding)
        for index, layer in enumerate(self.layers):
            hidden = layer.finish(hidden, self._attend(index, hidden, cache, table, attend, mask))
        cache.advance(rows)
        return hidden

    def _attend(
        self,
        index: int,
        hidden: Tensor,
        cache: Cache,
        table: tuple[Tensor, Tensor],
        attend: Attend,
        mask: Tensor | None,
    ) -> Tensor:
        """What the attention of block `index` gives for hidden; keys and values are appended."""
        queries_end = self.config.heads
        keys_end = queries_end + self.config.kv_heads
        heads = self.layers[index].project(hidden)
        turned = rotate(self.layers[index].normed(heads[:, :keys_end]), *table)
        keys, values = cache.append(index, turned[:, queries_end:], heads[:, keys_end:])
        return attend(turned[:, :queries_end], keys, values, mask)

    def _logits(self, hidden: Tensor) -> Tensor:
        logits = F.linear(rms_norm(hidden, self.norm, self.config.norm_eps), self.head)
        if self._scored is None:
            return logits
        whole = logits.new_full((hidden.shape[0], self.vocabulary), float("-inf"))
        return whole.index_copy_(1, self._scored, logits)


def _finish_in_place(layer: Layer, hidden: Tensor, attended: Tensor) -> None:
    """`Layer.finish` for many rows, on `hidden` itself.

    Gate and up are two products: what follows reads whole tensors at twice the speed of halves.
    """
    hidden += F.linear(attended, layer.output, layer.output_bias)
    normed = rms_norm(hidden, layer.post_norm, layer.eps)
    biases = (None, None) if layer.gate_up_bias is None else layer.gate_up_bias.chunk(2)
    gate, up = map(F.linear, (normed, normed), layer.gate_up.chunk(2), biases)
    hidden += F.linear(F.silu(gate, inplace=True).mul_(up), layer.down, layer.down_bias)
