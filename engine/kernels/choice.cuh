// The greedy choice after each token.
#pragma once
#include "product.cuh"

__device__ __forceinline__ void prefer(float& best, int& index, float other, int other_index) {
    if (other > best || (other == best && other_index < index)) {
        best = other;
        index = other_index;
    }
}

// The last block to finish compares all blocks' candidates, and leaves the state for the next step.
__device__ __forceinline__ void choose(const Here& at, Finish& logits) {
    float* table = (float*)(at.shared + PARTS_AT);
    meet<THREADS>();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int step = 4; step < 32; step <<= 1)
            prefer(logits.best[i], logits.index[i],
                   __shfl_xor_sync(~0u, logits.best[i], step),
                   __shfl_xor_sync(~0u, logits.index[i], step));
        if (at.g == 0) {
            table[(at.warp * 8 + 2 * at.t + i) * 2] = logits.best[i];
            table[(at.warp * 8 + 2 * at.t + i) * 2 + 1] = __int_as_float(logits.index[i]);
        }
    }
    meet<THREADS>();
    if (threadIdx.x < 8) {
        float best = NEVER;
        int index = 0x7fffffff;
        for (int w = 0; w < WARPS; ++w)
            prefer(best, index, table[(w * 8 + threadIdx.x) * 2],
                   __float_as_int(table[(w * 8 + threadIdx.x) * 2 + 1]));
        float* to = at.p.candidate + (blockIdx.x * 8 + threadIdx.x) * 2;
        to[0] = best;
        to[1] = __int_as_float(index);
    }
    meet<THREADS>();
    u32* finished = (u32*)(at.shared + SQUARES_AT);
    if (threadIdx.x == 0) {
        __threadfence();
        *finished = atomicAdd(at.p.state, 1u);
        __threadfence();
    }
    meet<THREADS>();
    if (*finished != gridDim.x - 1) return;
    if (at.warp < at.rows) {
        float best = NEVER;
        int index = 0x7fffffff;
        for (int i = at.lane; i < gridDim.x; i += 32) {
            const float* from = at.p.candidate + (i * 8 + at.warp) * 2;
            prefer(best, index, load_l2_float(from), __float_as_int(load_l2_float(from + 1)));
        }
#pragma unroll
        for (int step = 16; step; step >>= 1)
            prefer(best, index, __shfl_xor_sync(~0u, best, step),
                   __shfl_xor_sync(~0u, index, step));
        if (at.lane == 0) {
            at.p.choices[at.warp] = index;
            if (at.p.last && at.ends && at.warp == at.rows - 1) *at.p.last = index;
        }
    }
    if (threadIdx.x == 0) {
        at.p.state[0] = 0;
        at.p.state[1] = at.third(LAYERS);
        at.p.state[2] = at.rows;
    }
}
