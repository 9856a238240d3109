"""Distil the target into a draft of a few layers that shares the target's embeddings and head.

The data order is a function of (seed, step) alone, so a run resumed from a checkpoint takes the
same batches as one that was never stopped, and on CPU ends with bitwise the same weights.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM

from engine.training.sampler import FrozenLlama, head_logits
from engine.training.settings import Training

# What a reader of the draft's config.json needs; the rest is transformers' bookkeeping.
CONFIG_KEYS = {
    "attention_bias", "bos_token_id", "eos_token_id", "head_dim", "hidden_act", "hidden_size",
    "initializer_range", "intermediate_size", "max_position_embeddings", "mlp_bias", "model_type",
    "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "pad_token_id",
    "rms_norm_eps", "rope_parameters", "tie_word_embeddings", "vocab_size",
}  # fmt: skip


def new_student(target: LlamaForCausalLM, layers: list[int]) -> LlamaForCausalLM:
    """A draft that starts as copies of the target's `layers`; blocks and final norm train."""
    fields = target.config.to_dict() | {"num_hidden_layers": len(layers)}
    student = LlamaForCausalLM(LlamaConfig(**{k: v for k, v in fields.items() if k[0] != "_"}))
    weights = target.state_dict()
    kept = {
        name: weight for name, weight in weights.items() if not name.startswith("model.layers.")
    }
    for new, old in enumerate(layers):
        prefix = f"model.layers.{old}."
        kept |= {
            f"model.layers.{new}.{name.removeprefix(prefix)}": weight
            for name, weight in weights.items()
            if name.startswith(prefix)
        }
    student.load_state_dict(kept)
    student.to(target.device).train()
    student.model.embed_tokens.requires_grad_(False)
    student.lm_head.requires_grad_(False)
    return student


def trained_state(student: LlamaForCausalLM) -> dict[str, torch.Tensor]:
    """The draft's own tensors, by their Hugging Face names: blocks and final norm."""
    return {
        name: weight.detach() for name, weight in student.named_parameters() if weight.requires_grad
    }


def write_draft(student: LlamaForCausalLM, target_sha256: str | None, folder: Path) -> None:
    """model.safetensors in bf16, and config.json, which names the target it belongs to."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {
        name: weight.bfloat16().cpu().contiguous()
        for name, weight in trained_state(student).items()
    }
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    fields = {key: value for key, value in student.config.to_dict().items() if key in CONFIG_KEYS}
    fields |= {
        "architectures": ["LlamaForCausalLM"],
        "dtype": "bfloat16",
        "shares_embeddings_with": target_sha256,
    }
    (folder / "config.json").write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")


@dataclass(frozen=True)
class Shard:
    """Rows of one length: tokens [rows, length], starts [rows], where the target's text begins."""

    tokens: np.ndarray
    starts: np.ndarray


def load_shards(
    folder: Path, held_out: float, *, take_held_out: bool = False, greedy: bool = False
) -> list[Shard]:
    """Training rows, or the held-out ones (the last share of each file), grouped by length.

    greedy keeps only rows that the target wrote at temperature 0. Raises FileNotFoundError if none
    are left.
    """
    found: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    for path in sorted(Path(folder).glob("*-*.npz")):
        with np.load(path) as stored:
            tokens, starts, temperatures = (
                stored[key] for key in ("tokens", "starts", "temperatures")
            )
        cut = len(tokens) - max(1, round(held_out * len(tokens)))
        keep = np.arange(len(tokens)) >= cut if take_held_out else np.arange(len(tokens)) < cut
        if greedy:
            keep &= temperatures == 0
        if keep.any():
            found.setdefault(tokens.shape[1], []).append(
                (tokens[keep], starts[keep].astype(np.int64))
            )
    if not found:
        raise FileNotFoundError(f"no corpus rows in {folder}; run build-corpus first")
    return [
        Shard(*(np.concatenate(part) for part in zip(*found[length], strict=True)))
        for length in sorted(found)
    ]


class Batches:
    """Batches of `batch_tokens` tokens and equal row length; each epoch visits every row once."""

    def __init__(self, shards: list[Shard], batch_tokens: int, seed: int):
        self.shards, self.seed = shards, seed
        self.rows = [max(1, batch_tokens // shard.tokens.shape[1]) for shard in shards]
        self.per_epoch = sum(
            len(shard.tokens) // rows for shard, rows in zip(shards, self.rows, strict=True)
        )
        if self.per_epoch == 0:
            raise ValueError("the corpus is smaller than one batch")
        self._epoch, self._order = -1, []

    def __getitem__(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(tokens [rows, length], starts [rows]) of a step, whichever steps came before."""
        epoch, position = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            rng = np.random.default_rng([self.seed, epoch])
            order = []
            for shard, rows in enumerate(self.rows):
                shuffled = rng.permutation(len(self.shards[shard].tokens))
                order += [
                    (shard, shuffled[at : at + rows])
                    for at in range(0, len(shuffled) - rows + 1, rows)
                ]
            self._epoch, self._order = epoch, [order[i] for i in rng.permutation(len(order))]
        shard, picked = self._order[position]
        tokens = torch.from_numpy(self.shards[shard].tokens[picked].astype(np.int64))
        return tokens, torch.from_numpy(self.shards[shard].starts[picked])


def soft_label_loss(
    student: torch.Tensor,
    target: torch.Tensor,
    weights: torch.Tensor,
    argmax_weight: float,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Cross-entropy with the target's distribution, its argmax given extra mass.

    student, target: logits [N, vocabulary]; weights [N]. The label is (p + a e) / (1 + a), with p
    the target's softmax, e its argmax and a `argmax_weight`. Returns the gradient with respect to
    the student's logits [N, vocabulary] in `dtype`, the Kullback-Leibler divergence from p in nats
    [N], and whether both argmaxes agree [N].
    """
    log_q = student.log_softmax(-1)
    log_p = target.log_softmax(-1)
    p = log_p.exp()
    top = target.argmax(-1)
    divergence = (p * (log_p - log_q)).sum(-1)
    agrees = student.argmax(-1) == top
    is_top = torch.arange(student.shape[-1], device=student.device) == top[:, None]
    label = (p + argmax_weight * is_top) / (1 + argmax_weight)
    return ((log_q.exp() - label) * weights[:, None]).to(dtype), divergence, agrees


class HeadLoss(torch.autograd.Function):
    """The loss above through the frozen head, in chunks: a whole batch's logits never exist."""

    @staticmethod
    def forward(ctx, student, target, head, weights, argmax_weight, chunk, loss_function):
        """student, target: hidden states [N, width]. Returns (mean divergence, agreement [N])."""
        gradient = torch.empty_like(student)
        divergence = torch.empty(len(student), device=student.device)
        agrees = torch.empty(len(student), dtype=torch.bool, device=student.device)
        for at in range(0, len(student), chunk):
            part = slice(at, at + chunk)
            ours, theirs = head_logits(student[part], head), head_logits(target[part], head)
            slope, divergence[part], agrees[part] = loss_function(
                ours, theirs, weights[part], argmax_weight, head.dtype
            )
            gradient[part] = slope @ head
        total = weights.sum()
        ctx.save_for_backward(gradient / total)
        ctx.mark_non_differentiable(agrees)
        return (divergence * weights).sum() / total, agrees

    @staticmethod
    def backward(ctx, grad_loss, _):
        return ctx.saved_tensors[0] * grad_loss, None, None, None, None, None, None


def position_weights(
    tokens: torch.Tensor, starts: torch.Tensor, context_weight: float
) -> torch.Tensor:
    """[rows, length - 1]: 1 where the next token is the target's own, context_weight elsewhere."""
    written = torch.arange(1, tokens.shape[1], device=tokens.device) >= starts[:, None]
    return torch.where(written, 1.0, context_weight)


class Distiller:
    """Student, optimizer and schedule; one `step` a batch; its state can be kept."""

    def __init__(
        self, settings: Training, target: LlamaForCausalLM, batches: Batches, seed: int, steps: int
    ):
        torch.manual_seed(seed)
        self.settings, self.batches, self.steps, self.position = settings, batches, steps, 0
        self.on_cuda = target.device.type == "cuda"
        self.device = target.device
        self.teacher = FrozenLlama(target, torch.bfloat16 if self.on_cuda else torch.float32)
        self.student = new_student(target, settings.layers)
        self.parameters = [p for p in self.student.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=settings.learning_rate,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
            fused=self.on_cuda,
        )
        compiled = self.on_cuda and settings.compile
        self.loss_function: Callable = (
            torch.compile(soft_label_loss) if compiled else soft_label_loss
        )

    def learning_rate(self) -> float:
        """Linear up over the warm-up, linear down to zero at the last step."""
        warm = min(1.0, (self.position + 1) / max(1, self.settings.warmup_steps))
        left = 1 - self.position / self.steps
        return self.settings.learning_rate * min(warm, left)

    def step(self) -> dict[str, torch.Tensor]:
        """One batch. Returns loss and agreement on the target's own text, as tensors: no sync."""
        tokens, starts = self.batches[self.position]
        if self.on_cuda:
            tokens, starts = (
                t.pin_memory().to(self.device, non_blocking=True) for t in (tokens, starts)
            )
        weights = position_weights(tokens, starts, self.settings.context_weight)
        inputs = tokens[:, :-1]
        target_hidden = self.teacher.hidden(inputs).flatten(0, 1)
        with torch.autocast("cuda", torch.bfloat16, enabled=self.on_cuda):
            hidden = self.student.model(
                input_ids=inputs, use_cache=False
            ).last_hidden_state.flatten(0, 1)
        loss, agrees = HeadLoss.apply(
            hidden.float(),
            target_hidden,
            self.teacher.head,
            weights.flatten(),
            self.settings.argmax_weight,
            self.settings.chunk_tokens,
            self.loss_function,
        )
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.clip)
        self.optimizer.step()
        self.position += 1
        own = (weights == 1).flatten()
        return {"loss": loss.detach(), "agreement": (agrees & own).sum() / own.sum().clamp(min=1)}

    def save(self, path: Path) -> None:
        partial = path.with_suffix(".partial")
        state = {
            "position": self.position,
            "steps": self.steps,
            "student": trained_state(self.student),
            "optimizer": self.optimizer.state_dict(),
        }
        torch.save(state, partial)
        partial.rename(path)

    def restore(self, path: Path) -> None:
        """Continue where `save` stopped. Raises KeyError if the layers differ."""
        state = torch.load(path, map_location=self.device, weights_only=True)
        own = dict(self.student.named_parameters())
        with torch.no_grad():
            for name, weight in state["student"].items():
                own[name].copy_(weight)
        self.optimizer.load_state_dict(state["optimizer"])
        self.position, self.steps = state["position"], state["steps"]


def steps_in(distiller: Distiller, seconds: float, probe: int = 30) -> int:
    """How many steps fit into `seconds`, timed with a distiller that is thrown away afterwards."""
    # Every row length compiles and allocates once; none of that belongs to a step.
    for _ in range(probe):
        distiller.step()
    finish = torch.cuda.synchronize if distiller.on_cuda else lambda: None
    finish()
    started = time.monotonic()
    for _ in range(probe):
        distiller.step()
    finish()
    return max(1, int(seconds / ((time.monotonic() - started) / probe)))


def train(
    distiller: Distiller,
    checkpoint: Path,
    stop_after: int | None = None,
    log: Callable[[str], None] = tqdm.write,
    watch: Callable[[Distiller], None] | None = None,
) -> None:
    """Run to the last step, or `stop_after` more, saving every checkpoint_steps and at the end.

    watch, if given, is called after each checkpoint.
    """
    settings = distiller.settings
    last = (
        distiller.steps
        if stop_after is None
        else min(distiller.steps, distiller.position + stop_after)
    )
    with tqdm(
        total=distiller.steps, initial=distiller.position, desc="distil", unit="step", mininterval=5
    ) as bar:
        while distiller.position < last:
            figures = distiller.step()
            bar.update()
            if distiller.position % settings.log_steps == 0:
                log(
                    f"step {distiller.position}/{distiller.steps}: "
                    f"loss {float(figures['loss']):.4f}, "
                    f"agreement {float(figures['agreement']):.4f}"
                )
            if distiller.position % settings.checkpoint_steps == 0 or distiller.position == last:
                distiller.save(checkpoint)
                if watch is not None:
                    watch(distiller)
