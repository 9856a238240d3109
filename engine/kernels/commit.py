"""The end of a round on the device: judge the block, commit, trim, and plan the next round.

A plain step is a round that proposes nothing; the end of a prefill is one as well, whose choice
is the first token. The form is `folded` of METHODS section 3: the target's cache holds t - 1.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from engine.kernels.nvrtc import load_kernel

LENGTH, COUNT, BUDGET, PROPOSED, DRAFTED, ROUNDS = range(6)


@dataclass(frozen=True)
class Board:
    """What a generation is at, in int64 tensors on the device; fields as in commit.cu.

    state [6]: tokens committed with the prompt, committed without, to commit, proposed in this
    round, tokens that the draft's cache holds, rounds done. block [k + 1]: the last committed
    token, then the proposals. choices [k + 1]: of the target. pending [2]: committed tokens that
    the draft has not read; draft_rows and draft_start [max(k, 1)]: of the draft's steps. rows and
    start [1]: of the target's step. committed, round_k and round_m [n]: the record. mailbox
    [1 + n]: the number of committed tokens, then the tokens; in memory that the host reads.
    reference [n]: tokens to propose instead of a draft's, or None.
    """

    state: Tensor
    block: Tensor
    choices: Tensor
    pending: Tensor
    draft_rows: Tensor
    draft_start: Tensor
    rows: Tensor
    start: Tensor
    committed: Tensor
    round_k: Tensor
    round_m: Tensor
    mailbox: Tensor
    reference: Tensor | None

    @classmethod
    def empty(cls, device: torch.device, k: int, tokens: int, reference: Tensor | None) -> Board:
        """A board for `tokens` new tokens; with slack, for proposals are written whole."""

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.long, device=device)

        room = tokens + k + 1
        if reference is not None:
            reference = torch.cat((reference, zeros(room + k + 1 - len(reference))))
        mailbox = torch.zeros(room + 1, dtype=torch.long, pin_memory=device.type == "cuda")
        steps = max(k, 1)
        return cls(
            *(zeros(6), zeros(k + 1), zeros(k + 1), zeros(2), zeros(steps), zeros(steps)),
            *(zeros(1), zeros(1), zeros(room), zeros(room), zeros(room), mailbox, reference),
        )

    def begin(self, prompt_length: int, first: Tensor, budget: int) -> None:
        """Stand at the end of a prefill whose greedy choice is `first` (int64 [1])."""
        start = [prompt_length, 0, budget, 0, prompt_length, -1]
        self.state.copy_(torch.tensor(start), non_blocking=True)
        self.rows.fill_(1)
        self.choices[:1] = first
        self.mailbox[0] = 0


class FusedCommit:
    """commit.cu on one board."""

    def __init__(self, board: Board, k: int, bonus: bool, accept_all: bool) -> None:
        class Commit(ctypes.Structure):
            _fields_ = [
                *((field.name, ctypes.c_void_p) for field in fields(Board)),
                *((name, ctypes.c_int64) for name in ("k", "bonus", "accept_all")),
            ]

        self._board = board
        self._kernel = load_kernel("commit.cu", "commit_round", 32)
        tensors = (getattr(board, field.name) for field in fields(Board))
        addresses = (None if tensor is None else tensor.data_ptr() for tensor in tensors)
        self._parameters = Commit(*addresses, k, bonus, accept_all)

    def __call__(self) -> None:
        self._kernel(1, self._parameters)


class TwinCommit:
    """The same in plain PyTorch, without a wait for the device."""

    def __init__(self, board: Board, k: int, bonus: bool, accept_all: bool) -> None:
        self._board = board
        self._k, self._bonus, self._accept_all = k, bonus, accept_all
        self._places = torch.arange(len(board.committed), device=board.state.device)

    def __call__(self) -> None:
        b, k, places = self._board, self._k, self._places
        active = b.rows > 0
        length, count, budget, proposed, drafted, rounds = b.state.split(1)
        judged = (b.choices[:k] == b.block[1:]) | self._accept_all
        m = (judged & (places[:k] < proposed)).long().cumprod(0).sum(0, keepdim=True)
        own = active & ((m < proposed) | (proposed == 0) | self._bonus)
        new = torch.where(places[: k + 1] < m, b.block.roll(-1), b.choices.gather(0, m))
        b.committed.index_copy_(0, count + places[: k + 1], new)
        added = torch.where(active, m + own, 0)
        reached = torch.minimum(length - 1 + proposed, length + m)
        drafted = torch.where(active & (proposed > 0), reached, drafted)
        length, count = length + added, count + added

        recorded = active & (places == rounds)
        b.round_k.copy_(torch.where(recorded, proposed, b.round_k))
        b.round_m.copy_(torch.where(recorded, m, b.round_m))

        remaining = budget - count
        k_next = (remaining - 1 if self._bonus else remaining).clamp(0, k)
        b.state.copy_(torch.cat((length, count, budget, k_next, drafted, rounds + active)))
        b.rows.copy_(torch.where(remaining > 0, k_next + self._bonus, 0))
        b.start.copy_(length - 1)
        b.block[:1] = b.committed.gather(0, (count - 1).clamp(min=0))
        lag = (length - drafted).clamp(max=2)
        b.pending.copy_(b.committed.gather(0, (count - lag + places[:2]).clamp(min=0)))
        steps = places[: len(b.draft_rows)]
        b.draft_rows.copy_(torch.where(steps < k_next, torch.where(steps == 0, lag, 1), 0))
        b.draft_start.copy_(torch.where(steps == 0, length - lag, length - 1 + steps))
        if b.reference is not None:
            b.block[1:] = b.reference.gather(0, count + places[:k])
        b.mailbox[1:].copy_(b.committed, non_blocking=True)
        b.mailbox[:1].copy_(count, non_blocking=True)
