// A ring of slots in shared memory, through which weights, keys and values flow.
//
// Warps of their own request what the whole step will read, in order, as slots come free. They never
// wait for a result of the step, so memory stays busy while the other warps meet the rest of
// the grid between two layers. A slot holds 16 rows of 512 numbers, or 32 keys and values.
#pragma once
#include "ptx.cuh"

constexpr int WARPS = 8;       // that compute
constexpr int REQUESTERS = 4;  // warps beside them, for a quarter of each slot
constexpr int FORGETTERS = 4;  // and those of forgetting.cuh, one group for their registers
constexpr int SLOT_COLUMNS = 512;
// 16 bytes beyond the row: the eight rows that are read at once then lie in different banks.
constexpr int ROW_STRIDE = SLOT_COLUMNS * 2 + 16;
constexpr int BLOCK = 32;                           // positions of one attention block
constexpr int POSITION_STRIDE = HEAD_DIM * 2 + 16;  // of a key or value
constexpr int SLOT_BYTES = 16 * ROW_STRIDE > 2 * BLOCK * POSITION_STRIDE
                               ? 16 * ROW_STRIDE
                               : 2 * BLOCK * POSITION_STRIDE;

struct Ring {
    u32 data, full, empty;  // addresses: slots, one barrier a slot for "filled" and for "read"
    int slot = 0;
    u32 turn = 0;

    __device__ Ring(u32 data, u32 barriers)
        : data(data), full(barriers), empty(barriers + 8 * SLOTS) {}

    __device__ __forceinline__ u32 address() const { return data + slot * SLOT_BYTES; }
    __device__ __forceinline__ u32 filled() const { return full + 8 * slot; }

    __device__ __forceinline__ void wait_filled() const { barrier_wait(full + 8 * slot, turn & 1); }

    __device__ __forceinline__ void release() const {
        __syncwarp();
        if ((threadIdx.x & 31) == 0) barrier_arrive(empty + 8 * slot);
    }
    __device__ __forceinline__ void advance() {
        if (++slot == SLOTS) {
            slot = 0;
            ++turn;
        }
    }
    // For a requesting warp: a free slot, and at most `window` slots under way. More would queue in
    // the memory system, and what the other warps read from the L2 cache would wait behind.
    __device__ __forceinline__ void acquire(int window) const {
        barrier_wait(empty + 8 * slot, (turn & 1) ^ 1);
        int before = slot - window;
        u32 when = turn;
        if (before < 0) {
            before += SLOTS;
            if (turn == 0) return;
            when = turn - 1;
        }
        barrier_wait(full + 8 * before, when & 1);
    }
};

// Ask for `count` rows of WIDTH numbers that lie behind each other, without the arrival.
template <int WIDTH>
__device__ __forceinline__ void copy_rows(u32 to, const u16* source, int count, u64 policy) {
    constexpr int QUADS = WIDTH / 8;
#pragma unroll 1
    for (int i = threadIdx.x - WARPS * 32; i < count * QUADS; i += REQUESTERS * 32)
        copy_quad(to + i / QUADS * (WIDTH * 2 + 16) + i % QUADS * 16, source + i * 8, policy);
}
