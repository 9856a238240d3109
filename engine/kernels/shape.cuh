// What the step is compiled for, and what every part of it knows.
//
// Per shape: LAYERS HIDDEN INTER HEADS KV_HEADS HEAD_DIM VOCABULARY MAX_ROWS, the flags QK_NORM
// QKV_BIASED OUTPUT_BIASED MLP_BIASED, and for the device SLOTS WINDOW WINDOW_EASE
// SHARED_BYTES.
#pragma once
#include "ring.cuh"

constexpr int GROUP = HEADS / KV_HEADS;
constexpr int QUERY_WIDTH = HEADS * HEAD_DIM;
constexpr int QKV_ROWS = (HEADS + 2 * KV_HEADS) * HEAD_DIM;
constexpr int QUERY_STRIDE = HEAD_DIM + 8;                // of a query in shared memory, in numbers
constexpr int PAIR_TILES = (MAX_ROWS * GROUP + 31) / 32;  // pairs of 16 queries
constexpr int QUERIES = PAIR_TILES * 32;
constexpr int THREADS = WARPS * 32;  // that compute
constexpr int PASSES = (MAX_ROWS + 3) / 4;  // of four rows that a warp receives at a time
constexpr float LOG2_E = 1.4426950408889634f;
#define NEVER __int_as_float(0xff800000)  // minus infinity

static_assert(HEAD_DIM % 16 == 0 && HEAD_DIM <= 128, "head size");
static_assert(HIDDEN % 8 == 0 && INTER % 8 == 0 && QUERY_WIDTH % 8 == 0, "16-byte rows");
static_assert(MAX_ROWS <= 8, "one tile of columns");

// Norms and biases of a layer, behind each other. Their addresses are computed, for an address that
// is loaded costs the wait for it. After the last layer, the last norm.
constexpr int INPUT_NORM = 0;
constexpr int POST_NORM = INPUT_NORM + HIDDEN;
constexpr int HEAD_NORM = POST_NORM + HIDDEN;
constexpr int QKV_BIAS = HEAD_NORM + (QK_NORM ? (HEADS + KV_HEADS) * HEAD_DIM : 0);
constexpr int OUTPUT_BIAS = QKV_BIAS + (QKV_BIASED ? QKV_ROWS : 0);
constexpr int GATE_UP_BIAS = OUTPUT_BIAS + (OUTPUT_BIASED ? HIDDEN : 0);
constexpr int DOWN_BIAS = GATE_UP_BIAS + (MLP_BIASED ? 2 * INTER : 0);
constexpr int SMALL = DOWN_BIAS + (MLP_BIASED ? HIDDEN : 0);

struct Layer {
    const u16 *qkv, *output, *gate_up, *down;
};
struct Step {
    Layer layer[LAYERS];
    const u16 *small, *embedding, *head, *cosines, *sines;
    const i64 *tokens, *rows, *start;
    i64 *choices, *last;
    u16 *cache, *logits;
    // Sent to other blocks, three of each, used in turn: bf16 vectors of up to 8 tokens, as `place`
    // lays them, and floats [KV_HEADS, splits, QUERIES, HEAD_DIM] with maximum and sum [.., 2].
    u16 *hidden, *middle, *qkv, *attended, *gated;
    float *partial, *weights;
    float* candidate;  // [blocks, 8, 2]: logit, index (bits)
    u32* state;        // blocks that have finished; `origin` and `rows_before`
    i64 capacity, skip;  // skip: tokens that the launch before has done
    float eps, scale;
};

constexpr int up16(int bytes) { return (bytes + 15) / 16 * 16; }
// Shared memory: the ring; parts of tiles that wait to be added, which attention uses between two
// products; a desk for the vectors of the next product or, in attention, queries; tables.
constexpr int PART_BUFFERS = 4;
constexpr int PART_BYTES = WARPS * 32 * 16;
constexpr int PARTS_AT = SLOTS * SLOT_BYTES;
// Slots of a vector that is held whole; and a row of a warp's columns of it, or of four slots of a
// wider one, with 16 bytes beyond them, as in ROW_STRIDE.
constexpr int HELD =
    ((HIDDEN > QUERY_WIDTH ? HIDDEN : QUERY_WIDTH) + SLOT_COLUMNS - 1) / SLOT_COLUMNS;
constexpr int DESK_STRIDE = (HELD > 4 ? HELD : 4) * 128 + 16;
constexpr int DESK_BYTES = up16(WARPS * MAX_ROWS * DESK_STRIDE);
constexpr int QUERIES_AT = PARTS_AT + PART_BUFFERS * PART_BYTES;
constexpr int DESK_AT = QUERIES_AT;
constexpr int QUERY_BYTES = up16(QUERIES * QUERY_STRIDE * 2);
constexpr int ROPE_AT = QUERIES_AT + (DESK_BYTES > QUERY_BYTES ? DESK_BYTES : QUERY_BYTES);
constexpr int SQUARES_AT = ROPE_AT + up16(2 * MAX_ROWS * HEAD_DIM * 2);
constexpr int BARRIER_AT = SQUARES_AT + WARPS * MAX_ROWS * HELD * 4;
constexpr int PART_BARRIER_AT = BARRIER_AT + 16 * SLOTS;
constexpr int FORGET_AT = PART_BARRIER_AT + 16 * PART_BUFFERS;
constexpr int HURRY_AT = FORGET_AT + 16;
static_assert(HURRY_AT + 16 <= SHARED_BYTES, "shared memory");

// Rows of a matrix that a block owns; even, where pairs of them are sent.
struct Share {
    int first, count;

    __device__ Share(u32 whole, u32 unit = 1)
        : first(whole / unit * blockIdx.x / gridDim.x * unit),
          count(whole / unit * (blockIdx.x + 1) / gridDim.x * unit - first) {}
};

// Where number `index` of a token's vector lies that all blocks read. They look for the first token's
// numbers before they are there, so those lie few to a line of 128 bytes: more slices of the L2
// cache share the asking. The others, which are read once, lie close.
template <int WIDTH>
__device__ __forceinline__ int place(int token, int index) {
    constexpr int IN_LINE = 8;
    if (token == 0) return index / IN_LINE * 64 + index % IN_LINE;
    return (64 / IN_LINE + token - 1) * WIDTH + index;
}
constexpr int ROOM = 16;  // times the width, for eight tokens

// The same of the gated vectors, which are wide: up to two tokens' lie 16 to a line.
__device__ __forceinline__ int gated_place(int token, int index) {
    constexpr int IN_LINE = MAX_ROWS <= 2 ? 16 : 64;
    return token * (64 / IN_LINE) * INTER + index / IN_LINE * 64 + index % IN_LINE;
}
constexpr int GATED_ROOM = 8;  // times the width, for eight tokens, or for two at 16 a line

// Looking loads the memory system that the answer comes through: a warp waits, in cycles, for nearly
// as long as what it looks for needs at least.
constexpr int BEFORE_ROWS = 900, BEFORE_HEADS = 400;
__device__ __forceinline__ void pause(int cycles) {
    u32 began, now;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(began)::"memory");
    do {
        asm volatile("mov.u32 %0, %%clock;" : "=r"(now)::"memory");
    } while (now - began < cycles);
}

// The products of a layer in their order; after the last layer, the head.
enum Kind { QKV, OUTPUT, GATE_UP, DOWN, HEAD };

struct Here {
    const Step& p;
    char* shared;
    int rows, start;
    bool ends;             // with the last of the step's tokens
    u32 origin;            // layers of the steps before, modulo 3
    int rows_before;       // rows of the step before
    int warp, lane, g, t;  // g, t: row and column group of a lane in a fragment
    Share qkv, hidden, pairs, vocabulary;

    __device__ Here(const Step& p, char* shared, int rows, int start, bool ends)
        : p(p), shared(shared), rows(rows), start(start), ends(ends),
          origin(load_l2_32(p.state + 1)), rows_before(load_l2_32(p.state + 2)),
          warp(threadIdx.x >> 5), lane(threadIdx.x & 31), g((threadIdx.x & 31) >> 2),
          t(threadIdx.x & 3),
          qkv(QKV_ROWS, 2), hidden(HIDDEN, 2), pairs(INTER, 2), vocabulary(VOCABULARY) {}

    // Which of the three of everything that is sent belongs to a layer.
    __device__ __forceinline__ int third(int layer) const { return (origin + layer + 3) % 3; }
    __device__ u16* hidden_of(int layer) const { return p.hidden + third(layer) * ROOM * HIDDEN; }
    __device__ u16* middle_of(int layer) const { return p.middle + third(layer) * ROOM * HIDDEN; }
    __device__ u16* qkv_of(int layer) const { return p.qkv + third(layer) * 8 * QKV_ROWS; }
    __device__ u16* attended_of(int layer) const {
        return p.attended + third(layer) * ROOM * QUERY_WIDTH;
    }
    __device__ u16* gated_of(int layer) const { return p.gated + third(layer) * GATED_ROOM * INTER; }
    // Of the queries of a key head, from a share of the positions.
    __device__ i64 part_of(int layer, int head, int share) const {
        return ((i64)(third(layer) * KV_HEADS + head) * splits() + share) * QUERIES;
    }

    __device__ int kv_head() const { return blockIdx.x % KV_HEADS; }
    __device__ int split() const { return blockIdx.x / KV_HEADS; }
    __device__ int splits() const { return gridDim.x / KV_HEADS; }
    __device__ int blocks() const { return (start + rows + BLOCK - 1) / BLOCK; }
    __device__ bool attends() const { return split() < splits() && split() < blocks(); }
    // Whether it reads the block of the step's own position `row`.
    __device__ bool owns(int row) const { return (start + row) / BLOCK % splits() == split(); }
    __device__ u16* cached(int layer, int which) const {
        return p.cache + ((i64)(layer * 2 + which) * KV_HEADS + kv_head()) * p.capacity * HEAD_DIM;
    }
    __device__ const u16* embedded(int row) const {
        return p.embedding + load_l2_64(p.tokens + row) * HIDDEN;
    }
    // While the block waits for others, its weights shall not be in the way.
    __device__ __forceinline__ void hurry(bool value) const {
        if (threadIdx.x == 0) *(volatile u32*)(shared + HURRY_AT) = value;
    }
    __device__ __forceinline__ bool hurries() const { return *(volatile u32*)(shared + HURRY_AT); }
    // Layers whose first product is done.
    __device__ __forceinline__ void progress(u32 layers) const {
        if (threadIdx.x == 0) *(volatile u32*)(shared + HURRY_AT + 4) = layers;
    }
    __device__ __forceinline__ int progress() const {
        return *(volatile int*)(shared + HURRY_AT + 4);
    }
    __device__ const u16* small(int layer) const { return p.small + (i64)layer * SMALL; }
    __device__ Share rows_of(Kind kind) const {
        return kind == QKV ? qkv : kind == GATE_UP ? pairs : kind == HEAD ? vocabulary : hidden;
    }
    __device__ int tiles_of(Kind kind) const {
        const int count = rows_of(kind).count;
        return kind == GATE_UP ? (count + 7) / 8 : (count + 15) / 16;
    }
};
constexpr int width_of(Kind kind) {
    return kind == OUTPUT ? QUERY_WIDTH : kind == DOWN ? INTER : HIDDEN;
}
