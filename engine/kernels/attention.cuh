// Attention of a few rows over a long cache, its positions spread over all blocks of the grid.
#pragma once
#include "shape.cuh"

// Cosines and sines of the step's positions, for the warps that compute.
__device__ __forceinline__ void load_tables(const Here& at) {
    u16* tables = (u16*)(at.shared + ROPE_AT);
    const int size = at.rows * HEAD_DIM;
#pragma unroll 1
    for (int i = threadIdx.x; i < 2 * size; i += THREADS) {
        const bool second = i >= size;
        const int j = second ? i - size : i;
        tables[second * MAX_ROWS * HEAD_DIM + j] =
            (second ? at.p.sines : at.p.cosines)[(i64)at.start * HEAD_DIM + j];
    }
}

// One head vector, held by a warp: lane i < HEAD_DIM / 4 has numbers 2i, 2i + 1 and those half a
// head further.
struct Vector {
    static constexpr int LANES = HEAD_DIM / 4;
    float v[4];

    // Whether the numbers are there; if so, they are held.
    __device__ __forceinline__ bool look_for(const Here& at, const u16* from) {
        const int pair = min(at.lane, LANES - 1);
        const u32 low = look_word(from + 2 * pair), high = look_word(from + 2 * (pair + LANES));
        const bool held = at.lane < LANES;
        v[0] = held ? widen_low(low) : 0.f;
        v[1] = held ? widen_high(low) : 0.f;
        v[2] = held ? widen_low(high) : 0.f;
        v[3] = held ? widen_high(high) : 0.f;
        return low != ABSENT && high != ABSENT;
    }
    __device__ int index(const Here& at, int i) const {
        return 2 * at.lane + (i & 1) + (i / 2) * (HEAD_DIM / 2);
    }
    __device__ __forceinline__ void normalise(const Here& at, const u16* weight) {
        __syncwarp();
        float sum = v[0] * v[0] + v[1] * v[1] + v[2] * v[2] + v[3] * v[3];
#pragma unroll
        for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(~0u, sum, step);
        const float factor = rsqrtf(sum / HEAD_DIM + at.p.eps);
        if (at.lane >= LANES) return;
#pragma unroll
        for (int i = 0; i < 4; ++i)
            v[i] = rounded(rounded(v[i] * factor) * widen(weight[index(at, i)]));
    }
    __device__ __forceinline__ void rotate(const Here& at, int row) {
        if (at.lane >= LANES) return;
        const u16* cosines = (const u16*)(at.shared + ROPE_AT) + row * HEAD_DIM;
        const u16* sines = cosines + MAX_ROWS * HEAD_DIM;
        const float before[4] = {v[0], v[1], v[2], v[3]};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int d = index(at, i);
            v[i] = rounded(rounded(before[i] * widen(cosines[d])) +
                           before[i ^ 2] * widen(sines[d]));
        }
    }
    __device__ __forceinline__ void store(const Here& at, u16* to) const {
        if (at.lane >= LANES) return;
        ((u32*)to)[at.lane] = narrow_pair(v[0], v[1]);
        ((u32*)to)[at.lane + LANES] = narrow_pair(v[2], v[3]);
    }
};

// The step's own vectors: queries to shared memory; keys and values of the blocks that this block
// reads there as well, and to the cache.
__device__ __forceinline__ void receive_heads(const Here& at, int l, u16* queries, u16* own) {
    constexpr int EACH = (MAX_ROWS * GROUP + WARPS - 1) / WARPS;
    const int count = at.rows * GROUP, first_head = at.kv_head() * GROUP;
    const u16* heads = at.qkv_of(l);
    auto sent = [&](int row, int head) { return heads + row * QKV_ROWS + head * HEAD_DIM; };
    Vector vector[EACH];
    u32 missing = 0;
#pragma unroll
    for (int n = 0; n < EACH; ++n)
        if (at.warp + n * WARPS < count) missing |= 1u << n;
    pause(BEFORE_HEADS);
    while (__any_sync(~0u, missing)) {
#pragma unroll
        for (int n = 0; n < EACH; ++n) {
            const int i = at.warp + n * WARPS;
            if ((missing >> n & 1) &&
                vector[n].look_for(at, sent(i / GROUP, first_head + i % GROUP)))
                missing &= ~(1u << n);
        }
    }
#pragma unroll
    for (int n = 0; n < EACH; ++n) {
        const int i = at.warp + n * WARPS;
        if (i >= count) continue;
        if (QK_NORM)
            vector[n].normalise(at, at.small(l) + HEAD_NORM + (first_head + i % GROUP) * HEAD_DIM);
        vector[n].rotate(at, i / GROUP);
        vector[n].store(at, queries + i * QUERY_STRIDE);
    }
    // From the last warp on, which has the fewest queries.
#pragma unroll 1
    for (int i = WARPS - 1 - at.warp; i < 2 * at.rows; i += WARPS) {
        const int row = i / 2, which = i % 2;  // key, value
        if (!at.owns(row)) continue;
        const int head = HEADS + which * KV_HEADS + at.kv_head();
        Vector& own_vector = vector[0];
        while (!__all_sync(~0u, own_vector.look_for(at, sent(row, head)))) {
        }
        if (which == 0) {
            if (QK_NORM) own_vector.normalise(at, at.small(l) + HEAD_NORM + head * HEAD_DIM);
            own_vector.rotate(at, row);
        }
        own_vector.store(at, own + (which * MAX_ROWS + row) * HEAD_DIM);
        own_vector.store(at, at.cached(l, which) + (i64)(at.start + row) * HEAD_DIM);
    }
    meet<THREADS>();
}

// Own keys and values into the slots, where the cache's part of the block lies already. What is
// left of the last 16 positions becomes zeros: they get weight 0, but 0 times a leftover might not
// be 0.
__device__ __forceinline__ void add_own_rows(const Here& at, int block, const u16* own, u32 keys,
                                             u32 values) {
    constexpr int PAIRS = HEAD_DIM / 2;
    const int end = at.start + at.rows, base = block * BLOCK;
    const int first = max(at.start, base), last = min((end + 15) / 16 * 16, base + BLOCK);
    for (int i = threadIdx.x; i < (last - first) * PAIRS; i += THREADS) {
        const int position = first + i / PAIRS, d = i % PAIRS;
        const u32 to = (position - base) * POSITION_STRIDE + d * 4;
        const u32* from = (const u32*)own + (position - at.start) * PAIRS + d;
        const bool real = position < end;
        store_shared(keys + to, real ? from[0] : 0);
        store_shared(values + to, real ? from[MAX_ROWS * PAIRS] : 0);
    }
    meet<THREADS>();
}

// 16 queries over this block's positions, and of the result 16 columns in every 64: four warps share
// the queries, and rather repeat the scores than add up each other's results.
struct Attention {
    static constexpr int SLICES = (HEAD_DIM + 63) / 64;
    float out[SLICES][2][4] = {};
    float most[2] = {NEVER, NEVER}, sum[2] = {0, 0};

    static __device__ int column(const Here& at, int slice) {
        return (at.warp % 4 + 4 * slice) * 16;
    }

    // One pair of tiles stays in registers: reading queries, keys and values again for every block
    // is more than shared memory gives.
    Quad held[HEAD_DIM / 16];

    __device__ __forceinline__ void hold(const Here& at, u32 queries) {
        if (PAIR_TILES > 1) return;
        const u32 q_at = queries + ((at.lane & 15) * QUERY_STRIDE + (at.lane >> 4) * 8) * 2;
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 16; ++i) load_matrices(held[i], q_at + i * 32);
    }

    // The positions of one block, which lie at `keys` and `values`.
    __device__ __forceinline__ void add(const Here& at, u32 queries, int query, u32 keys,
                                        u32 values, int block) {
        constexpr int TILES = BLOCK / 16;
        const int i = at.lane, base = block * BLOCK, count = at.start + at.rows - base;
        float s[2 * TILES][4] = {};
        const u32 q_at = queries + ((i & 15) * QUERY_STRIDE + (i >> 4) * 8) * 2;
        const u32 k_at = keys + ((i & 7) + (i >> 4) * 8) * POSITION_STRIDE + ((i >> 3) & 1) * 16;
        // Some are read before the first is multiplied, for a read takes as long as three products.
        constexpr int READ = HEAD_DIM % 64 ? 1 : 4;
#pragma unroll
        for (int from = 0; from < HEAD_DIM; from += 16 * READ) {
            Quad q[READ], k[READ][TILES];
#pragma unroll
            for (int n = 0; n < READ; ++n) {
                const int d = from + n * 16;
                if (PAIR_TILES == 1)
                    q[n] = held[d / 16];
                else
                    load_matrices(q[n], q_at + d * 2);
#pragma unroll
                for (int j = 0; j < TILES; ++j)
                    load_matrices(k[n][j], k_at + j * 16 * POSITION_STRIDE + d * 2);
            }
#pragma unroll
            for (int n = 0; n < READ; ++n)
#pragma unroll
                for (int j = 0; j < TILES; ++j) {
                    multiply(s[2 * j], q[n].x, q[n].y, q[n].z, q[n].w, k[n][j].x, k[n][j].y);
                    multiply(s[2 * j + 1], q[n].x, q[n].y, q[n].z, q[n].w, k[n][j].z, k[n][j].w);
                }
        }
        float factor[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float top = NEVER;
            if (base + BLOCK > at.start + 1) {  // some rows must not see all of it
                const int seen = at.start + (query + at.g + 8 * r) / GROUP - base - 2 * at.t;
#pragma unroll
                for (int j = 0; j < 4 * TILES; ++j)
                    if (j / 2 * 8 + j % 2 > seen) s[j / 2][2 * r + j % 2] = NEVER;
            }
#pragma unroll
            for (int j = 0; j < 4 * TILES; ++j) top = fmaxf(top, s[j / 2][2 * r + j % 2]);
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
            const float scale = at.p.scale * LOG2_E;
            top = fmaxf(top * scale, most[r]);
            const float shift = top == NEVER ? 0.f : top;
            factor[r] = power_of_two(most[r] - shift);
            most[r] = top;
            float added = 0;
#pragma unroll
            for (int j = 0; j < 4 * TILES; ++j) {
                float& x = s[j / 2][2 * r + j % 2];
                x = power_of_two(fmaf(x, scale, -shift));
                added += x;
            }
            sum[r] = sum[r] * factor[r] + added;
        }
#pragma unroll
        for (int slice = 0; slice < SLICES; ++slice)
#pragma unroll
            for (int j = 0; j < 8; ++j) out[slice][j / 4][j % 4] *= factor[j / 2 % 2];
        const u32 v_at = values + (i & 15) * POSITION_STRIDE + (i >> 4) * 16;
#pragma unroll
        for (int j = 0; j < TILES; ++j) {
            if (j * 16 >= count) continue;
            const u32 a0 = narrow_pair(s[2 * j][0], s[2 * j][1]);
            const u32 a1 = narrow_pair(s[2 * j][2], s[2 * j][3]);
            const u32 a2 = narrow_pair(s[2 * j + 1][0], s[2 * j + 1][1]);
            const u32 a3 = narrow_pair(s[2 * j + 1][2], s[2 * j + 1][3]);
#pragma unroll
            for (int slice = 0; slice < SLICES; ++slice) {
                if (column(at, slice) >= HEAD_DIM) continue;
                Quad v;
                load_matrices_transposed(
                    v, v_at + j * 16 * POSITION_STRIDE + column(at, slice) * 2);
                multiply(out[slice][0], a0, a1, a2, a3, v.x, v.y);
                multiply(out[slice][1], a0, a1, a2, a3, v.z, v.w);
            }
        }
    }

    __device__ __forceinline__ void send_part(const Here& at, int l, int query) {
        const i64 base = at.part_of(l, at.kv_head(), at.split()) + query;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
            sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
            const int row = at.g + 8 * r;
            if (query + row >= at.rows * GROUP) continue;
#pragma unroll
            for (int n = 0; n < 2 * SLICES; ++n) {
                const int d = column(at, n / 2) + n % 2 * 8 + 2 * at.t;
                const float* pair = &out[n / 2][n % 2][2 * r];
                if (d < HEAD_DIM)
                    send_two(at.p.partial + (base + row) * HEAD_DIM + d, pair[0], pair[1]);
            }
            if (at.t == 0 && at.warp % 4 == 0)
                send_two(at.p.weights + (base + row) * 2, most[r], sum[r]);
        }
    }
};

// This block's share of the positions, for all query heads that share its key head.
__device__ __forceinline__ void attend(const Here& at, Ring& ring, int l) {
    u16* queries = (u16*)(at.shared + QUERIES_AT);
    u16* own = (u16*)(at.shared + PARTS_AT);
    receive_heads(at, l, queries, own);
    const int half = at.warp / 4 * 16;
    Attention part[PAIR_TILES];
    part[0].hold(at, shared_address(queries + half * QUERY_STRIDE));
#pragma unroll 1
    for (int block = at.split(); block < at.blocks(); block += at.splits()) {
        ring.wait_filled();
        const u32 keys = ring.address(), values = keys + BLOCK * POSITION_STRIDE;
        if ((block + 1) * BLOCK > at.start) add_own_rows(at, block, own, keys, values);
#pragma unroll
        for (int pair = 0; pair < PAIR_TILES; ++pair) {
            const int query = pair * 32 + half;
            if (query < at.rows * GROUP)
                part[pair].add(at, shared_address(queries + query * QUERY_STRIDE), query, keys,
                               values, block);
        }
        ring.release();
        ring.advance();
    }
#pragma unroll
    for (int pair = 0; pair < PAIR_TILES; ++pair) part[pair].send_part(at, l, pair * 32 + half);
}

// Sends attended[token, head], from the parts of all blocks that had positions of it.
__device__ __forceinline__ void combine(const Here& at, int l) {
    constexpr int AT_ONCE = 9, STRIDE = HEAD_DIM + 4;
    const int parts = min(at.splits(), at.blocks()), d = min(4 * at.lane, HEAD_DIM - 4);
    float* table = (float*)(at.shared + PARTS_AT);
    u16* out_at = at.attended_of(l);
    for (int task = blockIdx.x; task < at.rows * HEADS; task += gridDim.x) {
        const int row = task / HEADS, head = task % HEADS;
        const i64 base = at.part_of(l, head / GROUP, 0) + row * GROUP + head % GROUP;
        float out[4] = {0, 0, 0, 0};
        float most = NEVER, sum = 0;
        meet<THREADS>();  // the table is free
        for (int i = at.warp; i < parts; i += WARPS * AT_ONCE) {
            Pair weight[AT_ONCE];
            Quad number[AT_ONCE];
            u32 missing = 0;
#pragma unroll
            for (int j = 0; j < AT_ONCE; ++j) {
                weight[j] = {__float_as_uint(NEVER), 0};
                number[j] = {0, 0, 0, 0};
                if (i + j * WARPS < parts) missing |= 1u << j;
            }
            while (__any_sync(~0u, missing)) {
#pragma unroll
                for (int j = 0; j < AT_ONCE; ++j)
                    if (missing >> j & 1) {
                        const i64 part = base + (i64)(i + j * WARPS) * QUERIES;
                        weight[j] = look_pair(at.p.weights + part * 2);
                        number[j] = look(at.p.partial + part * HEAD_DIM + d);
                    }
#pragma unroll
                for (int j = 0; j < AT_ONCE; ++j)
                    if (there(weight[j]) && there(number[j])) missing &= ~(1u << j);
            }
            float top = most;
#pragma unroll
            for (int j = 0; j < AT_ONCE; ++j) top = fmaxf(top, __uint_as_float(weight[j].x));
            const float shift = top == NEVER ? 0.f : top;
            const float old = power_of_two(most - shift);
            most = top;
            sum *= old;
#pragma unroll
            for (int n = 0; n < 4; ++n) out[n] *= old;
#pragma unroll
            for (int j = 0; j < AT_ONCE; ++j) {
                const float factor = power_of_two(__uint_as_float(weight[j].x) - shift);
                sum += factor * __uint_as_float(weight[j].y);
                out[0] += factor * __uint_as_float(number[j].x);
                out[1] += factor * __uint_as_float(number[j].y);
                out[2] += factor * __uint_as_float(number[j].z);
                out[3] += factor * __uint_as_float(number[j].w);
            }
        }
        float* mine = table + at.warp * STRIDE;
        if (4 * at.lane < HEAD_DIM) *(Four*)(mine + d) = {out[0], out[1], out[2], out[3]};
        if (at.lane == 0) *(float2*)(mine + HEAD_DIM) = make_float2(most, sum);
        meet<THREADS>();
        if (threadIdx.x < HEAD_DIM / 2) {
            float top = NEVER, whole = 0, low = 0, high = 0;
#pragma unroll
            for (int w = 0; w < WARPS; ++w) top = fmaxf(top, table[w * STRIDE + HEAD_DIM]);
#pragma unroll
            for (int w = 0; w < WARPS; ++w) {
                const float* from = table + w * STRIDE;
                const float2 weight = *(const float2*)(from + HEAD_DIM);
                const float2 pair = *(const float2*)(from + 2 * threadIdx.x);
                const float factor = power_of_two(weight.x - top);
                whole += factor * weight.y;
                low += factor * pair.x;
                high += factor * pair.y;
            }
            send(out_at + place<QUERY_WIDTH>(row, head * HEAD_DIM + 2 * threadIdx.x),
                 narrow_pair(__fdividef(low, whole), __fdividef(high, whole)));
        }
    }
    meet<THREADS>();
}

