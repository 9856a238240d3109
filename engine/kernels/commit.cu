// The end of a round, by one thread: judge the block, commit, trim, and plan the next round.
// Beside engine/kernels/commit.py, which names the fields and has the same in plain PyTorch.
#include "ptx.cuh"

struct Commit {
    i64 *state, *block, *choices, *pending, *draft_rows, *draft_start, *rows, *start, *committed,
        *round_k, *round_m, *mailbox;
    const i64* reference;
    i64 k, bonus, accept_all;
};
enum { LENGTH, COUNT, BUDGET, PROPOSED, DRAFTED, ROUNDS };

extern "C" __global__ void commit_round(const Commit p) {
    if (*p.rows == 0) return;
    const i64 proposed = p.state[PROPOSED];
    i64 accepted = 0;
    while (accepted < proposed &&
           (p.accept_all || p.choices[accepted] == p.block[accepted + 1]))
        ++accepted;
    i64 count = p.state[COUNT], length = p.state[LENGTH];
    if (proposed) p.state[DRAFTED] = min(length - 1 + proposed, length + accepted);
    for (i64 i = 0; i < accepted; ++i) p.committed[count++] = p.block[i + 1];
    if (accepted < proposed || !proposed || p.bonus) p.committed[count++] = p.choices[accepted];
    const i64 first = p.state[COUNT];
    length += count - first;
    const i64 round = p.state[ROUNDS]++;
    if (round >= 0) {
        p.round_k[round] = proposed;
        p.round_m[round] = accepted;
    }
    for (i64 i = first; i < count; ++i) p.mailbox[1 + i] = p.committed[i];
    __threadfence_system();
    *(volatile i64*)p.mailbox = count;
    p.state[COUNT] = count;
    p.state[LENGTH] = length;

    const i64 remaining = p.state[BUDGET] - count;
    const i64 k = max(0LL, min(p.k, p.bonus ? remaining - 1 : remaining));
    p.state[PROPOSED] = k;
    *p.rows = remaining > 0 ? k + (p.bonus ? 1 : 0) : 0;
    *p.start = length - 1;
    p.block[0] = p.committed[count - 1];
    const i64 lag = min(length - p.state[DRAFTED], 2LL);
    for (i64 i = 0; i < lag; ++i)
        if (count >= lag) p.pending[i] = p.committed[count - lag + i];
    for (i64 j = 0; j < p.k; ++j) {
        p.draft_rows[j] = j >= k ? 0 : j ? 1 : lag;
        p.draft_start[j] = j ? length - 1 + j : length - lag;
        if (p.reference && j < k) p.block[1 + j] = p.reference[count + j];
    }
}
