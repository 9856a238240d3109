// Products of a matrix with a few vectors: weights from the ring, vectors from other blocks.
#pragma once
#include "shape.cuh"

constexpr int slots_of(int width) { return (width + SLOT_COLUMNS - 1) / SLOT_COLUMNS; }
constexpr int HELD = slots_of(HIDDEN > QUERY_WIDTH ? HIDDEN : QUERY_WIDTH);
constexpr int AHEAD = 4;  // slots of a wider vector that are read before they are needed

// Columns of a row that this lane multiplies: 8 in each half of its warp's part of a slot.
__device__ __forceinline__ int column_of(const Here& at, int half_slot) {
    return half_slot / 2 * SLOT_COLUMNS + at.warp * 64 + half_slot % 2 * 32 + at.t * 8;
}

__device__ __forceinline__ float squares(u32 pair) {
    const float low = widen_low(pair), high = widen_high(pair);
    return low * low + high * high;
}
__device__ __forceinline__ u32 scaled(u32 pair, u32 weight, float factor) {
    const u32 unit = narrow_pair(widen_low(pair) * factor, widen_high(pair) * factor);
    return narrow_pair(widen_low(unit) * widen_low(weight), widen_high(unit) * widen_high(weight));
}

// The lane's part of row g as other blocks send it; zeros where the row is not live. The lanes of a
// warp have all rows between them, so that many rows cost no more instructions than one. Where pairs
// are not there yet, the lane looks at one of them until it comes: waiting must stay cheap for the
// memory system.
__device__ __forceinline__ void receive_columns(const Here& at, const u64* row, int width, u32 flag,
                                                Quad (&x)[2 * HELD]) {
    const u64* missing;
    do {
        missing = nullptr;
#pragma unroll
        for (int i = 0; i < 2 * HELD; ++i) {
            const int column = column_of(at, i);
            x[i] = {0, 0, 0, 0};
            if (at.g < at.rows && column < width) {
                const u64* from = row + column / 2;
                const Two a = look(from, flag), b = look(from + 2, flag);
                x[i] = {a.first, a.second, b.first, b.second};
                if (!a.there) missing = from;
                if (!b.there) missing = from + 2;
            }
        }
        if (missing)
            while (!look(missing, flag).there) {
            }
    } while (missing);
    __syncwarp();
}

// RMS norm of the rows that all warps hold in pieces.
__device__ __forceinline__ void normalise(const Here& at, const Quad (&weight)[2 * HELD],
                                          Quad (&x)[2 * HELD]) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 2 * HELD; ++i)
        sum += squares(x[i].x) + squares(x[i].y) + squares(x[i].z) + squares(x[i].w);
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    float* table = (float*)(at.shared + SQUARES_AT);
    if (at.t == 0) table[at.warp * 8 + at.g] = sum;
    meet<THREADS>();
    sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) sum += table[w * 8 + at.g];
    const float factor = rsqrtf(sum * (1.f / HIDDEN) + at.p.eps);
#pragma unroll
    for (int i = 0; i < 2 * HELD; ++i)
        x[i] = {scaled(x[i].x, weight[i].x, factor), scaled(x[i].y, weight[i].y, factor),
                scaled(x[i].z, weight[i].z, factor), scaled(x[i].w, weight[i].w, factor)};
}

// Two accumulators, so that one product need not wait for the one before.
struct Sum {
    float even[4] = {0, 0, 0, 0}, odd[4] = {0, 0, 0, 0};
};

// The ring's next slot, columns `slot` * 512 and on of a tile, times the lane's part of x.
__device__ __forceinline__ void multiply_slot(const Here& at, Ring& ring, int slot, int width,
                                              const Quad& x0, const Quad& x1, Sum& sum) {
    ring.wait_filled();
    if (slot * SLOT_COLUMNS + at.warp * 64 < width) {
        const u32 from = ring.address() + at.g * ROW_STRIDE + at.warp * 128 + at.t * 16;
        const Quad low0 = load_shared(from), high0 = load_shared(from + 8 * ROW_STRIDE);
        const Quad low1 = load_shared(from + 64), high1 = load_shared(from + 8 * ROW_STRIDE + 64);
        multiply(sum.even, low0.x, high0.x, low0.y, high0.y, x0.x, x0.y);
        multiply(sum.odd, low0.z, high0.z, low0.w, high0.w, x0.z, x0.w);
        multiply(sum.even, low1.x, high1.x, low1.y, high1.y, x1.x, x1.y);
        multiply(sum.odd, low1.z, high1.z, low1.w, high1.w, x1.z, x1.w);
    }
    ring.release();
    ring.advance();
}

// A tile times the vectors that are held.
__device__ __forceinline__ void multiply_held(const Here& at, Ring& ring, int width,
                                              const Quad (&x)[2 * HELD], Sum& sum) {
#pragma unroll
    for (int slot = 0; slot < HELD; ++slot)
        if (slot * SLOT_COLUMNS < width)
            multiply_slot(at, ring, slot, width, x[2 * slot], x[2 * slot + 1], sum);
}

// The lane's part of AHEAD slots of a gated row; zeros beyond it and where the row is not live.
__device__ __forceinline__ void load_columns(const Here& at, const u16* row, bool live, int first,
                                             Quad (&x)[2 * AHEAD]) {
#pragma unroll
    for (int i = 0; i < 2 * AHEAD; ++i) {
        const int column = column_of(at, 2 * first + i);
        x[i] = {0, 0, 0, 0};
        if (live && column < INTER) x[i] = load_l2(row + column);
    }
}

// A tile times vectors that are too wide to be held: read as they are needed.
__device__ __forceinline__ void multiply_wide(const Here& at, Ring& ring, const u16* row, bool live,
                                              Sum& sum) {
    Quad x[2 * AHEAD], next[2 * AHEAD];
    load_columns(at, row, live, 0, x);
#pragma unroll 1
    for (int first = 0; first < slots_of(INTER); first += AHEAD) {
        load_columns(at, row, live, first + AHEAD, next);
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
            if (first + i < slots_of(INTER))
                multiply_slot(at, ring, first + i, INTER, x[2 * i], x[2 * i + 1], sum);
            x[2 * i] = next[2 * i];
            x[2 * i + 1] = next[2 * i + 1];
        }
    }
}

// What becomes of a finished tile. Of the four numbers of a lane, the first two belong to row g
// and tokens 2t, 2t + 1, the others to row g + 8; in the gated part row g is a gate and g + 8 its up.
struct Finish {
    Kind kind;
    u32 flag;
    u16 offset[2], before[4];        // what is added: bits, for a conversion would wait for them
    float best[2] = {NEVER, NEVER};  // the head's greatest logits; of equals, the lowest index
    int index[2] = {0x7fffffff, 0x7fffffff};

    // Asks for what will be added, before the product. Rows and tokens that are not there get what
    // the last one gets, so that no branch waits.
    __device__ __forceinline__ void fetch(const Here& at, int l, int tile) {
        const bool biased = kind == QKV      ? QKV_BIASED
                            : kind == OUTPUT ? OUTPUT_BIASED
                            : kind == HEAD   ? false
                                             : MLP_BIASED;
        const bool adds = kind == OUTPUT || kind == DOWN;
        offset[0] = offset[1] = 0;
        if (!biased && !adds) return;
        const Share rows = at.rows_of(kind);
        const int height = kind == GATE_UP ? 8 : 16, end = rows.first + rows.count - 1;
        const int row = min(rows.first + tile * height + at.g, end);
        const int below = kind == GATE_UP ? row + INTER : min(row + 8, end);
        const int bias = kind == QKV      ? QKV_BIAS
                         : kind == OUTPUT ? OUTPUT_BIAS
                         : kind == DOWN   ? DOWN_BIAS
                                          : GATE_UP_BIAS;
        if (biased) {
            offset[0] = load_l2_16(at.small(l) + bias + row);
            offset[1] = load_l2_16(at.small(l) + bias + below);
        }
        if (!adds) return;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int r = i < 2 ? row : below, m = min(2 * at.t + (i & 1), at.rows - 1);
            const u64* stream = kind == OUTPUT ? at.p.hidden : at.p.middle;
            const u16* from = (const u16*)(stream + (m * HIDDEN + r) / 2) + (r & 1);
            before[i] = load_l2_16(kind == OUTPUT && l == 0 ? at.embedded(m) + r : from);
        }
    }
    __device__ __forceinline__ float added(float total, int i) const {
        return rounded(total + widen(offset[i / 2]));
    }

    __device__ __forceinline__ void store(const Here& at, int tile, const float (&total)[4]) {
        if (kind == GATE_UP)
            store_gated(at, tile, total);
        else if (kind == HEAD)
            store_logits(at, tile, total);
        else
            send_rows(at, tile, total);
    }

    // bf16(product + bias), plus the block's own part of the residual stream.
    __device__ __forceinline__ void send_rows(const Here& at, int tile, const float (&total)[4]) {
        const Share rows = at.rows_of(kind);
        const int width = kind == QKV ? QKV_ROWS : HIDDEN;
        u64* out = kind == QKV ? at.p.qkv : kind == OUTPUT ? at.p.middle : at.p.hidden;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float mine = added(total[i], i) + (kind == QKV ? 0.f : widen(before[i]));
            const float next = __shfl_down_sync(~0u, mine, 4);
            const int r = tile * 16 + at.g + (i & 2) * 4, m = 2 * at.t + (i & 1);
            if (at.g % 2 == 0 && r < rows.count && m < at.rows)
                send(out + (m * width + rows.first + r) / 2, narrow_pair(mine, next), flag);
        }
    }

    // silu(gate) * up.
    __device__ __forceinline__ void store_gated(const Here& at, int tile,
                                                const float (&total)[4]) {
        const int pair = tile * 8 + at.g;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int m = 2 * at.t + i;
            if (pair >= at.pairs.count || m >= at.rows) continue;
            const float gate = added(total[i], i), up = added(total[i + 2], i + 2);
            const float silu = rounded(__fdividef(gate, 1.f + __expf(-gate)));
            at.p.gated[m * INTER + at.pairs.first + pair] = narrow(silu * up);
        }
    }

    __device__ __forceinline__ void store_logits(const Here& at, int tile,
                                                 const float (&total)[4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int r = tile * 16 + at.g + (i & 2) * 4, m = 2 * at.t + (i & 1);
            if (r >= at.vocabulary.count || m >= at.rows) continue;
            const int id = at.vocabulary.first + r;
            const u16 logit = narrow(total[i]);
            if (at.p.logits) at.p.logits[(i64)m * VOCABULARY + id] = logit;
            if (widen(logit) > best[i & 1]) {
                best[i & 1] = widen(logit);
                index[i & 1] = id;
            }
        }
    }
};

// The warps' parts of a tile, added by one of them in turn while the others go on to the next.
struct Adder {
    char* shared;
    u32 full, drained;  // barriers
    int n = 0;          // tiles so far

    __device__ Adder(char* shared)
        : shared(shared), full(shared_address(shared + PART_BARRIER_AT)),
          drained(full + 8 * PART_BUFFERS) {}

    __device__ bool mine(const Here& at) const { return at.warp == n % WARPS; }
    __device__ Four* buffer() const {
        return (Four*)(shared + PARTS_AT + n % PART_BUFFERS * PART_BYTES);
    }
    __device__ u32 turn() const { return n / PART_BUFFERS & 1; }

    __device__ __forceinline__ void give(const Here& at, const Sum& sum) {
        barrier_wait(drained + n % PART_BUFFERS * 8, turn() ^ 1);
        buffer()[at.warp * 32 + at.lane] = {sum.even[0] + sum.odd[0], sum.even[1] + sum.odd[1],
                                            sum.even[2] + sum.odd[2], sum.even[3] + sum.odd[3]};
        __syncwarp();
        if (at.lane == 0) barrier_arrive(full + n % PART_BUFFERS * 8);
    }
    __device__ __forceinline__ void take(const Here& at, float (&total)[4]) {
        barrier_wait(full + n % PART_BUFFERS * 8, turn());
        total[0] = total[1] = total[2] = total[3] = 0;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            const Four part = buffer()[w * 32 + at.lane];
            total[0] += part.a;
            total[1] += part.b;
            total[2] += part.c;
            total[3] += part.d;
        }
        __syncwarp();
        if (at.lane == 0) barrier_arrive(drained + n % PART_BUFFERS * 8);
    }
};
