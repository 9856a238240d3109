// The end of a round, by one warp: judge the block, commit, trim, and plan the next round.
// Beside engine/kernels/commit.py, which names the fields and has the same in plain PyTorch.
#include "ptx.cuh"

struct Commit {
    i64 *state, *block, *choices, *pending, *draft_rows, *draft_start, *rows, *start, *committed,
        *round_k, *round_m, *mailbox;
    const i64* reference;
    i64 k, bonus, accept_all;
};
enum { LENGTH, COUNT, BUDGET, PROPOSED, DRAFTED, ROUNDS };

// A lane for each token of a round. All that it needs is asked for before the first answer: the next
// round waits for this kernel, and one number after the other would be a trip to memory each.
extern "C" __global__ void commit_round(const Commit p) {
    const i64 lane = threadIdx.x;
    const i64 rows = *p.rows, length = p.state[LENGTH], count = p.state[COUNT],
              budget = p.state[BUDGET], proposed = p.state[PROPOSED], drafted = p.state[DRAFTED],
              round = p.state[ROUNDS], before = p.block[0];
    const i64 choice = lane <= p.k ? p.choices[lane] : 0;
    const i64 proposal = lane < p.k ? p.block[lane + 1] : 0;
    if (rows == 0) return;
    const bool wrong = lane < proposed && !p.accept_all && choice != proposal;
    const u32 all_wrong = __ballot_sync(~0u, wrong);
    const i64 accepted = all_wrong ? __ffs(all_wrong) - 1 : proposed;
    const i64 added = accepted + (accepted < proposed || !proposed || p.bonus);
    const i64 token = lane < accepted ? proposal : choice;
    const i64 last = __shfl_sync(~0u, token, added - 1);

    const i64 now = count + added, reached = length + added, remaining = budget - now;
    const i64 cached = proposed ? min(length - 1 + proposed, length + accepted) : drafted;
    const i64 lag = min(reached - cached, 2LL);
    const i64 k = max(0LL, min(p.k, p.bonus ? remaining - 1 : remaining));
    if (lane < added) {
        p.committed[count + lane] = token;
        p.mailbox[1 + count + lane] = token;
    }
    // Of two tokens that the draft has not read, one may be of the round before.
    const i64 place = added - lag + lane;
    const i64 unread = __shfl_sync(~0u, token, max(place, 0LL));
    if (lane < lag && now >= lag) p.pending[lane] = place < 0 ? before : unread;
    if (lane < p.k) {
        p.draft_rows[lane] = lane >= k ? 0 : lane ? 1 : lag;
        p.draft_start[lane] = lane ? reached - 1 + lane : reached - lag;
        if (p.reference && lane < k) p.block[1 + lane] = p.reference[now + lane];
    }
    if (lane == 0) {
        p.state[LENGTH] = reached;
        p.state[COUNT] = now;
        p.state[PROPOSED] = k;
        p.state[DRAFTED] = cached;
        p.state[ROUNDS] = round + 1;
        if (round >= 0) {
            p.round_k[round] = proposed;
            p.round_m[round] = accepted;
        }
        *p.rows = remaining > 0 ? k + (p.bonus ? 1 : 0) : 0;
        *p.start = reached - 1;
        p.block[0] = last;
    }
    __threadfence_system();
    __syncwarp();
    if (lane == 0) *(volatile i64*)p.mailbox = now;
}
