// What a block has sent is made absent again, so that it can be sent anew.
#pragma once
#include "shape.cuh"

// Between the warps that compute and those that forget: "the layer before is used up", when the
// middle vectors of a layer are here, for everyone has then sent what comes of all that was sent in
// the layer before; and "it is absent", seen by all blocks, before this block sends what lets
// others look there again, a layer later.
struct Forgetting {
    u32 used, absent;  // barriers

    __device__ Forgetting(const Here& at)
        : used(shared_address(at.shared + FORGET_AT)), absent(used + 8) {}

    __device__ __forceinline__ void allow(int l) const {
        if (l) barrier_wait(absent, (l - 1) & 1);
        __syncwarp();
        if ((threadIdx.x & 31) == 0) barrier_arrive(used);
    }
};

__device__ __forceinline__ void forget_hidden(const Here& at, u16* sent, int token) {
#pragma unroll 1
    for (int i = 2 * at.lane; i < at.hidden.count; i += 64)
        send(sent + place<HIDDEN>(token, at.hidden.first + i), ABSENT);
}

// Weights that come behind what the ring holds, into the L2 cache: one warp, a row at a time and
// slowly, so that what blocks tell each other is not delayed. From the end of a layer's first
// product on, while the block waits for others more than for memory. More than two tiles, or another
// pause, made the exchanges slower than the product became faster (LOG.md, 13 and 14).
__device__ __forceinline__ void prefetch_gate_up(const Here& at, int l) {
    constexpr int HELD_BY_RING = 16, AHEAD = 16;  // pairs of rows
    if (at.pairs.count < 3 * HELD_BY_RING) return;  // the ring reaches far enough
    const int end = min(at.pairs.count, HELD_BY_RING + AHEAD);
    while (at.progress() <= l) asm volatile("nanosleep.u32 200;");
#pragma unroll 1
    for (int i = 2 * HELD_BY_RING; i < 2 * end; ++i) {
        const u16* row =
            at.p.layer[l].gate_up + (i64)(at.pairs.first + i / 2 + i % 2 * INTER) * HIDDEN;
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(row), "r"(HIDDEN * 2)
                     : "memory");
        asm volatile("nanosleep.u32 200;");
    }
}

// The warps that forget.
__device__ __forceinline__ void forget(const Here& at) {
    constexpr int OTHERS = FORGETTERS * 32;
    const Forgetting signals(at);
    const int me = threadIdx.x - (WARPS + REQUESTERS) * 32;
#pragma unroll 1
    for (int l = 0; l < LAYERS; ++l) {
        if (me == (FORGETTERS - 1) * 32) prefetch_gate_up(at, l);
        __syncwarp();
        barrier_wait_idly(signals.used, l & 1);
        const int rows = l ? at.rows : at.rows_before;
#pragma unroll 1
        for (int m = me / 32; m < rows; m += FORGETTERS) {
#pragma unroll 1
            for (int i = 2 * at.lane; i < at.qkv.count; i += 64)
                send(at.qkv_of(l - 1) + m * QKV_ROWS + at.qkv.first + i, ABSENT);
            forget_hidden(at, at.middle_of(l - 1), m);
            forget_hidden(at, at.hidden_of(l - 1), m);
#pragma unroll 1
            for (int i = 2 * at.lane; i < at.pairs.count; i += 64)
                send(at.gated_of(l - 1) + gated_place(m, at.pairs.first + i), ABSENT);
        }
#pragma unroll 1
        for (int task = blockIdx.x; task < rows * HEADS; task += gridDim.x)
            if (me < HEAD_DIM / 8)
                send_absent(at.attended_of(l - 1) +
                            place<QUERY_WIDTH>(task / HEADS, task % HEADS * HEAD_DIM + 8 * me));
        if (at.split() < at.splits()) {
            const i64 part = at.part_of(l - 1, at.kv_head(), at.split());
#pragma unroll 1
            for (int i = me; i < rows * GROUP * HEAD_DIM / 4; i += OTHERS)
                send_absent(at.p.partial + part * HEAD_DIM + 4 * i);
#pragma unroll 1
            for (int i = me; i < (rows * GROUP + 1) / 2; i += OTHERS)
                send_absent(at.p.weights + part * 2 + 4 * i);
        }
        __threadfence();
        barrier_arrive(signals.absent);
    }
}
