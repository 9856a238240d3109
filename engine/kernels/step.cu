// One step of a dense pre-norm decoder in one kernel: M <= MAX_ROWS tokens in, M choices out.
//
// Every block owns the same share of the rows of every matrix and walks through the layers with
// the others. What a block computes it sends to all, who wait for nothing but the numbers themselves
// (ptx.cuh). Numbers are rounded to bf16 where Hugging Face models round. The result of a row does
// not depend on how many rows are in the step: rows are columns of the matrix unit, and every order
// of summation is fixed.
//
// Three kinds of warps share a block: some compute, some request what will be multiplied (ring.cuh),
// and some clear away what was sent (forgetting.cuh).
#include "attention.cuh"
#include "choice.cuh"
#include "forgetting.cuh"

// Norms and biases of a layer come to the L2 cache, a line from each block.
__device__ __forceinline__ void prefetch_small(const Here& at, int l) {
    const int size = l < LAYERS ? SMALL : HIDDEN;
    for (int line = blockIdx.x * 32 + at.lane; line < (size + 63) / 64; line += gridDim.x * 32)
        prefetch(at.small(l) + line * 64);
}

// A place in the stream of slots: a tile of a product, and a piece of its columns. Each requesting
// warp has four rows of the tile.
struct Place {
    static constexpr int EACH = 16 / REQUESTERS;
    const Here& at;
    int turn = 0, tile = 0, column = 0;
    int width, tiles, valid;  // valid: rows of this warp that the tile has
    const u16* row;           // the first of them

    __device__ Place(const Here& at) : at(at) { open(); }
    __device__ bool ended() const { return turn > 4 * LAYERS; }
    __device__ Kind kind() const { return turn == 4 * LAYERS ? HEAD : (Kind)(turn & 3); }
    __device__ int first_row() const { return (at.warp - WARPS) * EACH; }

    __device__ __forceinline__ void open() {
        width = width_of(kind());
        tiles = at.tiles_of(kind());
        aim();
    }
    __device__ __forceinline__ void aim() {
        const Share rows = at.rows_of(kind());
        const bool paired = kind() == GATE_UP;
        const int i = first_row(), r = paired ? tile * 8 + (i & 7) : tile * 16 + i;
        const Layer& layer = at.p.layer[min(turn >> 2, LAYERS - 1)];
        const u16* matrix = kind() == QKV      ? layer.qkv
                            : kind() == OUTPUT ? layer.output
                            : paired           ? layer.gate_up
                            : kind() == DOWN   ? layer.down
                                               : at.p.head;
        valid = max(0, min(EACH, rows.count - r));
        row = matrix + (i64)(rows.first + r + (paired && i >= 8 ? INTER : 0)) * width;
    }
    // To the next slot; whether that is the first of a product.
    __device__ __forceinline__ bool advance() {
        column += SLOT_COLUMNS;
        if (column < width) return false;
        column = 0;
        if (++tile < tiles) {
            aim();
            return false;
        }
        tile = 0;
        ++turn;
        if (!ended()) open();
        return true;
    }
    __device__ __forceinline__ void request(Ring& ring, u64 policy) const {
        const bool tall = kind() == GATE_UP || kind() == HEAD;
        ring.acquire((at.hurries() ? WINDOW_EASE : WINDOW) + !tall);
        const u32 to = ring.address() + first_row() * ROW_STRIDE + at.lane * 16;
#pragma unroll
        for (int r = 0; r < EACH; ++r)
#pragma unroll
            for (int part = 0; part < SLOT_COLUMNS; part += 256) {
                const int at_column = column + part + at.lane * 8;
                if (r < valid && at_column < width)
                    copy_quad(to + r * ROW_STRIDE + part * 2, row + (i64)r * width + at_column,
                              policy);
            }
        arrive_when_copied(ring.filled());
        ring.advance();
    }
};

// The warps that request: everything that the step reads, in the order of its use.
__device__ __forceinline__ void request(const Here& at, Ring ring) {
    const u64 policy = stream_once_policy();
    Place here(at);
    prefetch_small(at, 0);
#pragma unroll 1
    while (!here.ended()) {
        const int l = here.turn >> 2;
        const bool asked = here.kind() == QKV;
        if (here.tiles) here.request(ring, policy);
        if (!here.advance() || !asked) continue;
        if (at.warp == WARPS) prefetch_small(at, l + 1);
        if (!at.attends()) continue;
#pragma unroll 1
        for (int block = at.split(); block < at.blocks(); block += at.splits()) {
            const int old = max(0, min(BLOCK, at.start - block * BLOCK));
            const i64 from = (i64)block * BLOCK * HEAD_DIM;
            ring.acquire(WINDOW_EASE);
            copy_rows<HEAD_DIM>(ring.address(), at.cached(l, 0) + from, old, policy);
            copy_rows<HEAD_DIM>(ring.address() + BLOCK * POSITION_STRIDE, at.cached(l, 1) + from, old,
                                policy);
            arrive_when_copied(ring.filled());
            ring.advance();
        }
    }
}

// One product of the warps that compute: its vectors received, its tiles sent on.
template <Kind KIND>
__device__ __forceinline__ void turn(const Here& at, Ring& ring, Adder& adder, Finish& finish,
                                     int l) {
    constexpr int WIDTH = width_of(KIND);
    const int tiles = at.tiles_of(KIND);
    finish.kind = KIND;
    if (KIND == DOWN) meet<THREADS>();  // the block's own middle numbers are there, for all warps
    if (tiles && adder.mine(at)) finish.fetch(at, l, 0);  // long before it is needed
    Quad x[2 * HELD];
    if (KIND != DOWN) {
        Desk desk;
        if (KIND != OUTPUT)
            desk.fetch(at, at.small(l) + (KIND == GATE_UP ? POST_NORM : INPUT_NORM));
        if (KIND == QKV && l == 0)
            desk.embed(at);
        else
            desk.receive_rows<WIDTH>(at,
                                     KIND == OUTPUT    ? at.attended_of(l)
                                     : KIND == GATE_UP ? at.middle_of(l)
                                                       : at.hidden_of(l - 1));
        if (KIND != OUTPUT) desk.weigh(at);
        if (KIND == GATE_UP) Forgetting(at).allow(l);
        desk.deal(at, x);
        at.hurry(KIND != GATE_UP && KIND != HEAD);
    }
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile, ++adder.n) {
        if (tile && adder.mine(at)) finish.fetch(at, l, tile);
        Sum sum;
        if (KIND == DOWN)
            multiply_wide(at, ring, at.gated_of(l), sum);
        else
            multiply_slots<slots_of(WIDTH)>(at, ring, x, sum);
        adder.give(at, sum);
        if (adder.mine(at)) {
            float total[4];
            adder.take(at, total);
            finish.store(at, l, tile, total);
        }
    }
    if (KIND == DOWN) at.hurry(true);
}

// The warps that compute.
__device__ __forceinline__ void compute(const Here& at, Ring ring) {
    Adder adder(at.shared);
    Finish finish;
    load_tables(at);
#pragma unroll 1
    for (int l = 0; l < LAYERS; ++l) {
        turn<QKV>(at, ring, adder, finish, l);
        at.progress(l + 1);
        meet<THREADS>();  // attention uses the memory of the parts and of the desk
        if (at.attends()) attend(at, ring, l);
        combine(at, l);
        turn<OUTPUT>(at, ring, adder, finish, l);
        turn<GATE_UP>(at, ring, adder, finish, l);
        turn<DOWN>(at, ring, adder, finish, l);
    }
    turn<HEAD>(at, ring, adder, finish, LAYERS);
    choose(at, finish);
}

extern "C" __global__ void __launch_bounds__(THREADS + (REQUESTERS + FORGETTERS) * 32, 1)
    decode_step(const __grid_constant__ Step p) {
    extern __shared__ __align__(128) char shared[];
    const int left = (int)(load_l2_64(p.rows) - p.skip), rows = min(left, MAX_ROWS);
    const int start = (int)(load_l2_64(p.start) + p.skip);
    if (rows <= 0) return;
    const Here at(p, shared, rows, start, rows == left);
    const u32 barriers = shared_address(shared + BARRIER_AT);
    if (threadIdx.x == 0) {
        for (int i = 0; i < SLOTS; ++i) {
            barrier_init(barriers + 8 * i, REQUESTERS * 32);
            barrier_init(barriers + 8 * (SLOTS + i), WARPS);
        }
        const Forgetting signals(at);
        barrier_init(signals.used, WARPS);
        barrier_init(signals.absent, FORGETTERS * 32);
        at.hurry(false);
        at.progress(0);
    }
    if (threadIdx.x < 2 * PART_BUFFERS)
        barrier_init(shared_address(shared + PART_BARRIER_AT) + 8 * threadIdx.x,
                     threadIdx.x < PART_BUFFERS ? WARPS : 1);
    // What a short row leaves free is multiplied by 0.
    if (HIDDEN % SLOT_COLUMNS || QUERY_WIDTH % SLOT_COLUMNS || INTER % SLOT_COLUMNS)
        for (int i = threadIdx.x * 16; i < SLOTS * SLOT_BYTES; i += blockDim.x * 16)
            *(Quad*)(shared + i) = {0, 0, 0, 0};
    __syncthreads();
    const Ring ring(shared_address(shared), barriers);
    if (at.warp >= WARPS + REQUESTERS) {
        keep_registers<24>();
        forget(at);
    } else if (at.warp >= WARPS) {
        keep_registers<56>();
        request(at, ring);
    } else {
        take_registers<216>();
        compute(at, ring);
    }
}
