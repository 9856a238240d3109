"""One decoder step over static buffers: the fused kernel, and its twin in plain PyTorch.

Both read how many tokens there are and where they go from the device, so that one captured graph
serves every position, and both leave their results at fixed places.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.kernels.nvrtc import KernelError, load_kernel
from engine.models.architecture import DecoderConfig
from engine.models.attention import attend_rows
from engine.models.cache import Cache
from engine.models.decoder import Decoder
from engine.models.norm import rms_norm
from engine.models.rope import rotate

MOST_ROWS = 16
_AT_ONCE = 8  # rows of a launch: one tile of the matrix unit
_ROOM = 16  # vectors' widths for those that all blocks read: see `place` in shape.cuh
_THREADS = 16 * 32
_BITS = {torch.bfloat16: torch.int16, torch.float32: torch.int32}
_MATRICES = ("qkv", "output", "gate_up", "down")


@dataclass(frozen=True)
class Ports:
    """Where a step finds its input and leaves its output: int64 tensors on the device.

    tokens [M]; rows [1], of which only the first so many tokens count (0: the step does nothing);
    start [1], the length of the cache before the step; choices [M], the greedy choice after each
    token; last [1], a copy of the last row's choice, or None.
    """

    tokens: Tensor
    rows: Tensor
    start: Tensor
    choices: Tensor
    last: Tensor | None = None


class TwinStep:
    """The step in plain PyTorch, for any device and dtype; it always computes all M rows.

    Rows that do not count write nothing, yet the cache needs room for all M.
    """

    def __init__(self, decoder: Decoder, cache: Cache, max_rows: int) -> None:
        self._decoder = decoder
        self._cache = cache
        self._cosines, self._sines = decoder.rope.rows(0, cache.capacity)
        self._places = torch.arange(cache.capacity, device=decoder.device)
        self.logits = torch.zeros(
            (max_rows, decoder.vocabulary), dtype=decoder.dtype, device=decoder.device
        )

    def __call__(self, ports: Ports) -> None:
        decoder, config = self._decoder, self._decoder.config
        count = ports.tokens.shape[0]
        places = ports.start + self._places[:count]
        cosines, sines = self._cosines[places], self._sines[places]
        hidden_from = self._places > places[:, None]
        mask = torch.zeros_like(hidden_from, dtype=decoder.dtype)
        mask = mask.masked_fill_(hidden_from, float("-inf")).repeat(
            config.heads // config.kv_heads, 1
        )
        counts = self._places[:count] < ports.rows
        queries_end, keys_end = config.heads, config.heads + config.kv_heads
        hidden = F.embedding(ports.tokens, decoder.embedding)
        for index, layer in enumerate(decoder.layers):
            heads = layer.project(hidden)
            turned = rotate(layer.normed(heads[:, :keys_end]), cosines, sines)
            keys, values = self._cache.view(index, self._cache.capacity)
            _write(keys, places, turned[:, queries_end:], counts)
            _write(values, places, heads[:, keys_end:], counts)
            hidden = layer.finish(hidden, attend_rows(turned[:, :queries_end], keys, values, mask))
        logits = F.linear(rms_norm(hidden, decoder.norm, config.norm_eps), decoder.head)
        self.logits[:count] = logits
        choices = logits.argmax(-1)
        ports.choices[:count] = choices
        if ports.last is not None:
            ports.last.copy_(choices.gather(0, (ports.rows - 1).clamp(min=0)))


def _write(cache: Tensor, places: Tensor, rows: Tensor, counts: Tensor) -> None:
    """Rows [M, kv_heads, head_dim] that count, to their places in [kv_heads, n, head_dim]."""
    kept = torch.where(counts[:, None], rows.transpose(0, 1), cache[:, places])
    cache.index_copy_(1, places, kept)


class FusedStep:
    """The step as one kernel (step.cu): bf16, compute capability 9 or later, at most 16 rows.

    Up to 8 rows are one launch, more are a second one.

    It reads the decoder's own weights and the cache's own buffer; row i of a step is bitwise what
    a step of one row gives. `logits` [max_rows, vocabulary] are kept if asked for. Raises
    KernelError, one sentence, for what it cannot run.
    """

    def __init__(
        self, decoder: Decoder, cache: Cache, max_rows: int, keep_logits: bool = True
    ) -> None:
        if reason := why_not_fused(decoder, max_rows):
            raise KernelError(f"the fused step cannot run this model: {reason}")
        config, device = decoder.config, decoder.device
        with torch.cuda.device(device):
            properties = torch.cuda.get_device_properties(device)
            self._blocks = properties.multi_processor_count
            splits = self._blocks // config.kv_heads
            constants = step_constants(config, decoder.vocabulary, max_rows, properties)
            queries = -(-constants["MAX_ROWS"] * (config.heads // config.kv_heads) // 32) * 32
            self._kernel = load_kernel(
                "step.cu", "decode_step", _THREADS, constants["SHARED_BYTES"], **constants
            )

        def zeros(*shape: int, dtype: torch.dtype = decoder.dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        def absent(*shape: int, dtype: torch.dtype = decoder.dtype) -> Tensor:
            """Three of what blocks send each other, all bits set, which means: not sent yet."""
            return torch.full((3, *shape), -1, dtype=_BITS[dtype], device=device).view(dtype)

        self.logits = zeros(max_rows, decoder.vocabulary) if keep_logits else None
        cosines, sines = decoder.rope.rows(0, cache.capacity)
        width = config.heads * config.head_dim
        self._tensors = {
            "small": _small_vectors(decoder),
            "embedding": decoder.embedding,
            "head": decoder.head,
            "cosines": cosines,
            "sines": sines,
            "cache": cache.view(0, cache.capacity)[0],
            "logits": self.logits,
            "hidden": absent(_ROOM, config.hidden),
            "middle": absent(_ROOM, config.hidden),
            "qkv": absent(_AT_ONCE, width + 2 * config.kv_heads * config.head_dim),
            "attended": absent(_ROOM, width),
            "gated": absent(_AT_ONCE, config.intermediate),
            "partial": absent(
                config.kv_heads, splits, queries, config.head_dim, dtype=torch.float32
            ),
            "weights": absent(config.kv_heads, splits, queries, 2, dtype=torch.float32),
            "candidate": zeros(self._blocks, _AT_ONCE, 2, dtype=torch.float32),
            "state": zeros(3, dtype=torch.int32),
        }
        # The structure holds addresses only: the decoder keeps its weights alive.
        self._decoder = decoder
        self._parameters = _parameters(decoder, cache.capacity)
        for name, tensor in self._tensors.items():
            setattr(self._parameters, name, _address(tensor))

    @property
    def workspace_bytes(self) -> int:
        """Bytes on the device beyond weights, cache and position tables."""
        shared = ("embedding", "head", "cosines", "sines", "cache")
        own = (t for n, t in self._tensors.items() if n not in shared and t is not None)
        return sum(tensor.nbytes for tensor in own)

    def __call__(self, ports: Ports) -> None:
        """Start the step on the current stream."""
        parameters = self._parameters
        for name in ("rows", "start", "last"):
            setattr(parameters, name, _address(getattr(ports, name)))
        for skip in range(0, len(ports.tokens), _AT_ONCE):
            parameters.skip = skip
            parameters.tokens = _address(ports.tokens[skip:])
            parameters.choices = _address(ports.choices[skip:])
            if self.logits is not None:
                parameters.logits = _address(self.logits[skip:])
            self._kernel(self._blocks, parameters, cooperative=True)


def step_constants(
    config: DecoderConfig, vocabulary: int, max_rows: int, properties
) -> dict[str, int]:
    """What step.cu is compiled with, for the properties of a device."""
    rows = min(max_rows, _AT_ONCE)
    queries = -(-rows * (config.heads // config.kv_heads) // 32) * 32
    fixed = _shared_beside_ring(config, rows, queries)
    slot = _slot_bytes(config) + 16
    slots = (properties.shared_memory_per_block_optin - fixed) // slot
    return {
        "LAYERS": config.layers,
        "HIDDEN": config.hidden,
        "INTER": config.intermediate,
        "HEADS": config.heads,
        "KV_HEADS": config.kv_heads,
        "HEAD_DIM": config.head_dim,
        "VOCABULARY": vocabulary,
        "MAX_ROWS": rows,
        "QK_NORM": int(config.qk_norm),
        "QKV_BIASED": int(config.qkv_bias),
        "OUTPUT_BIASED": int(config.output_bias),
        "MLP_BIASED": int(config.mlp_bias),
        "SLOTS": slots,
        "WINDOW": min(WINDOW, slots - 2),
        "WINDOW_EASE": min(WINDOW_EASE, slots - 2),
        "SHARED_BYTES": fixed + slots * slot,
    }


# Slots of a block under way at a time: enough to keep memory busy; and while the block waits for
# others, few enough that what they tell each other does not queue behind weights.
WINDOW, WINDOW_EASE = 3, 1


def why_not_fused(decoder: Decoder, max_rows: int) -> str:
    """Why the fused step cannot run a model; '' if it can."""
    config, device = decoder.config, decoder.device
    reason = ""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (9, 0):
        reason = "it needs an NVIDIA GPU of compute capability 9.0 or later"
    elif decoder.dtype != torch.bfloat16:
        reason = f"it computes in bfloat16, not {decoder.dtype}"
    elif config.head_dim % 16 or config.head_dim > 128:
        reason = f"heads of {config.head_dim} numbers are not a multiple of 16 up to 128"
    elif config.hidden % 8 or config.intermediate % 8:
        reason = "the sizes of its matrices are not multiples of 8"
    elif min(config.intermediate, (config.heads + 2 * config.kv_heads) * config.head_dim) < 2 * (
        torch.cuda.get_device_properties(device).multi_processor_count
    ):
        reason = "its matrices have fewer rows than the device has use for"
    elif not 1 <= max_rows <= MOST_ROWS:
        reason = f"a step has 1 to {MOST_ROWS} tokens, not {max_rows}"
    return reason


def _shared_beside_ring(config: DecoderConfig, max_rows: int, queries: int) -> int:
    """Bytes of shared memory that a block of step.cu uses beside its ring (see shape.cuh)."""
    parts = 4 * 8 * 32 * 16
    rope = -(-2 * max_rows * config.head_dim * 2 // 16) * 16
    held = -(-max(config.hidden, config.heads * config.head_dim) // 512)
    desk = max(8 * max_rows * (max(held, 4) * 128 + 16), queries * (config.head_dim + 8) * 2)
    return parts + desk + rope + 8 * 4 * max_rows * held + 4 * 16 + 32


def _slot_bytes(config: DecoderConfig) -> int:
    """Bytes of a slot of the ring (see ring.cuh), its barriers aside."""
    return max(16 * (1024 + 16), 2 * 32 * (config.head_dim * 2 + 16))


def _small_vectors(decoder: Decoder) -> Tensor:
    """Norms and biases of all layers, in the order of shape.cuh, and the last norm."""
    vectors = []
    for layer in decoder.layers:
        heads = None if layer.head_norm is None else layer.head_norm.flatten()
        vectors += [layer.input_norm, layer.post_norm, heads]
        vectors += [layer.qkv_bias, layer.output_bias, layer.gate_up_bias, layer.down_bias]
    return torch.cat([v for v in (*vectors, decoder.norm) if v is not None])


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _parameters(decoder: Decoder, capacity: int) -> ctypes.Structure:
    """The structure `Step` of step.cu, with the addresses of the weights filled in."""

    class Layer(ctypes.Structure):
        _fields_ = [(name, ctypes.c_void_p) for name in _MATRICES]

    pointers = (
        *("small", "embedding", "head", "cosines", "sines", "tokens", "rows", "start"),
        *("choices", "last", "cache", "logits", "hidden", "middle", "qkv", "attended", "gated"),
        *("partial", "weights", "candidate", "state"),
    )

    class Step(ctypes.Structure):
        _fields_ = [
            ("layer", Layer * len(decoder.layers)),
            *((name, ctypes.c_void_p) for name in pointers),
            ("capacity", ctypes.c_int64),
            ("skip", ctypes.c_int64),
            ("eps", ctypes.c_float),
            ("scale", ctypes.c_float),
        ]

    layers = (
        Layer(*(_address(getattr(layer, name)) for name in _MATRICES)) for layer in decoder.layers
    )
    return Step(
        layer=(Layer * len(decoder.layers))(*layers),
        capacity=capacity,
        eps=decoder.config.norm_eps,
        scale=decoder.config.head_dim**-0.5,
    )
