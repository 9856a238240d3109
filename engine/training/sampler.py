"""Sample many rows at once from a frozen Llama: one forward for prefill, decode and teaching."""

import torch
import torch.nn.functional as F
from transformers import LlamaForCausalLM

PREFILL_TOKENS = 262_144  # bounds the activations of a prefill, not its result


def head_logits(hidden: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
    """Logits [N, vocabulary] in fp32 of hidden states [N, width].

    On CUDA the product runs on bf16 operands but leaves in fp32: bf16 logits near 30 are 0.125
    apart, which makes ties of close tokens and a wrong argmax.
    """
    if hidden.is_cuda:
        return torch.mm(hidden.bfloat16(), head.bfloat16().t(), out_dtype=torch.float32)
    return hidden.float() @ head.float().t()


class FrozenLlama:
    """Weights of a LlamaForCausalLM, matrices fused, for inference without padding.

    Every row of a batch has the same length, so attention needs no mask: causal over a prefill, all
    of the cache for a single token.
    """

    def __init__(self, model: LlamaForCausalLM, dtype: torch.dtype):
        config = model.config
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.epsilon = config.rms_norm_eps
        theta = config.rope_parameters["rope_theta"]
        device = model.device
        frequency = theta ** -(
            torch.arange(0, self.head_dim, 2, device=device).float() / self.head_dim
        )
        angle = (
            torch.arange(config.max_position_embeddings, device=device).float()[:, None] * frequency
        )
        self.cos = angle.cos().repeat(1, 2).to(dtype)[:, None]  # [positions, 1, head_dim]
        self.sin = angle.sin().repeat(1, 2).to(dtype)[:, None]
        self.embedding = model.model.embed_tokens.weight.detach().to(dtype)
        self.head = model.lm_head.weight.detach().to(dtype)
        self.norm = model.model.norm.weight.detach().to(dtype)
        self.layers = []
        for layer in model.model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            weights = (
                layer.input_layernorm.weight,
                torch.cat(
                    [attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight]
                ),
                attention.o_proj.weight,
                layer.post_attention_layernorm.weight,
                torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]),
                mlp.down_proj.weight,
            )
            self.layers.append(tuple(weight.detach().to(dtype) for weight in weights))

    def new_cache(self, rows: int, length: int) -> torch.Tensor:
        """Keys and values, [layers, 2, rows, kv_heads, length, head_dim]."""
        shape = (len(self.layers), 2, rows, self.kv_heads, length, self.head_dim)
        return torch.empty(shape, dtype=self.embedding.dtype, device=self.embedding.device)

    def _rotate(self, x: torch.Tensor, start: int) -> torch.Tensor:
        cos, sin = (table[start : start + x.shape[1]] for table in (self.cos, self.sin))
        low, high = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-high, low], dim=-1) * sin

    @torch.no_grad()
    def hidden(
        self, tokens: torch.Tensor, cache: torch.Tensor | None = None, start: int = 0
    ) -> torch.Tensor:
        """Final hidden states [rows, T, width] of tokens [rows, T] at positions start to start+T-1.

        With a cache, keys and values are stored in it. Several tokens at start > 0 are refused.
        """
        length = tokens.shape[1]
        if start and length > 1:
            raise ValueError("a cached prefix takes one token at a time")
        rotated = (self.heads + self.kv_heads) * self.head_dim
        x = F.embedding(tokens, self.embedding)
        for index, (norm_in, qkv, out, norm_mlp, gate_up, down) in enumerate(self.layers):
            projected = F.linear(F.rms_norm(x, norm_in.shape, norm_in, self.epsilon), qkv)
            qk = self._rotate(
                projected[..., :rotated].unflatten(-1, (-1, self.head_dim)), start
            ).transpose(1, 2)
            query, key = qk[:, : self.heads], qk[:, self.heads :]
            value = projected[..., rotated:].unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            if cache is not None:
                cache[index, 0, :, :, start : start + length] = key
                cache[index, 1, :, :, start : start + length] = value
                key, value = cache[index, :, :, :, : start + length]
            attended = F.scaled_dot_product_attention(
                query, key, value, is_causal=length > 1, enable_gqa=True
            )
            x = x + F.linear(attended.transpose(1, 2).flatten(2), out)
            gate, up = F.linear(
                F.rms_norm(x, norm_mlp.shape, norm_mlp, self.epsilon), gate_up
            ).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, down)
        return F.rms_norm(x, self.norm.shape, self.norm, self.epsilon)

    @torch.no_grad()
    def sample(
        self,
        forced: torch.Tensor,
        forced_lengths: torch.Tensor,
        length: int,
        temperatures: torch.Tensor,
        generator: torch.Generator,
    ) -> torch.Tensor:
        """Continue each row to exactly `length` tokens, past any end-of-sequence.

        forced: [rows, P] prompts, padded with anything; forced_lengths: [rows], at least 1;
        temperatures: [rows], 0 is greedy. Returns [rows, length] token ids.
        """
        rows = len(forced)
        device = self.embedding.device
        forced_lengths, temperatures = forced_lengths.to(device), temperatures.to(device)[:, None]
        shortest = int(forced_lengths.min())
        tokens = torch.zeros(rows, length, dtype=torch.long, device=device)
        tokens[:, : min(length, forced.shape[1])] = forced[:, :length].to(device)
        cache = self.new_cache(rows, length)
        last = []
        slice_rows = max(1, PREFILL_TOKENS // shortest)
        for at in range(0, rows, slice_rows):
            part = slice(at, at + slice_rows)
            last.append(self.hidden(tokens[part, :shortest], cache[:, :, part])[:, -1])
        state = torch.cat(last)
        for position in range(shortest, length):
            logits = head_logits(state, self.head)
            # argmax(logits + T g), g Gumbel noise, samples softmax(logits / T); greedy at T = 0.
            noise = torch.empty_like(logits).exponential_(generator=generator)
            noise.clamp_min_(torch.finfo(noise.dtype).tiny).log_()
            chosen = logits.sub_(noise.mul_(temperatures)).argmax(-1)
            tokens[:, position] = torch.where(
                position < forced_lengths, tokens[:, position], chosen
            )
            if position + 1 < length:
                state = self.hidden(tokens[:, position : position + 1], cache, position)[:, 0]
        return tokens
