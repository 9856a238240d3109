// What the step is compiled for, and what every part of it knows.
//
// Per shape: LAYERS HIDDEN INTER HEADS KV_HEADS HEAD_DIM VOCABULARY MAX_ROWS, the flags QK_NORM
// QKV_BIASED OUTPUT_BIASED MLP_BIASED, and for the device SLOTS WINDOW SHARED_BYTES.
#pragma once
#include "ring.cuh"

constexpr int GROUP = HEADS / KV_HEADS;
constexpr int QUERY_WIDTH = HEADS * HEAD_DIM;
constexpr int QKV_ROWS = (HEADS + 2 * KV_HEADS) * HEAD_DIM;
constexpr int BLOCK = 32;                           // positions of one attention block
constexpr int POSITION_STRIDE = HEAD_DIM * 2 + 16;  // of a key or value in its slot
constexpr int QUERY_STRIDE = HEAD_DIM + 8;          // of a query in shared memory, in numbers
constexpr int PAIR_TILES = (MAX_ROWS * GROUP + 31) / 32;  // pairs of 16 queries
constexpr int QUERIES = PAIR_TILES * 32;
constexpr int THREADS = WARPS * 32;  // that compute
constexpr int COUNTERS = LAYERS + 1;
constexpr int COUNTER_STRIDE = 8;
constexpr float LOG2_E = 1.4426950408889634f;
#define NEVER __int_as_float(0xff800000)  // minus infinity

static_assert(2 * BLOCK * POSITION_STRIDE <= SLOT_BYTES, "keys of a block do not fit a slot");
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
    u16 *cache, *gated, *logits;
    // Sent with flags: pairs of bf16 [8, width / 2], and floats [KV_HEADS, splits, QUERIES,
    // HEAD_DIM] with maximum and sum [.., 2].
    u64 *hidden, *middle, *qkv, *attended, *partial, *weights;
    float* candidate;  // [blocks, 8, 2]: logit, index (bits)
    u32* counters;     // one a layer, one for the end, and the flags' origin
    i64 capacity;
    float eps, scale;
};

constexpr int up16(int bytes) { return (bytes + 15) / 16 * 16; }
// Shared memory: the ring; parts of tiles that wait to be added, which attention uses between two
// products; queries; tables.
constexpr int PART_BUFFERS = 4;
constexpr int PART_BYTES = WARPS * 32 * 16;
constexpr int PARTS_AT = SLOTS * SLOT_BYTES;
constexpr int QUERIES_AT = PARTS_AT + PART_BUFFERS * PART_BYTES;
constexpr int ROPE_AT = QUERIES_AT + up16(QUERIES * QUERY_STRIDE * 2);
constexpr int SQUARES_AT = ROPE_AT + up16(2 * MAX_ROWS * HEAD_DIM * 2);
constexpr int BARRIER_AT = SQUARES_AT + WARPS * 8 * 4;
constexpr int PART_BARRIER_AT = BARRIER_AT + 16 * SLOTS;
static_assert(PART_BARRIER_AT + 16 * PART_BUFFERS <= SHARED_BYTES, "shared memory");

// Rows of a matrix that a block owns; even, where pairs of them are sent.
struct Share {
    int first, count;

    __device__ Share(u32 whole, u32 unit = 1)
        : first(whole / unit * blockIdx.x / gridDim.x * unit),
          count(whole / unit * (blockIdx.x + 1) / gridDim.x * unit - first) {}
};

// The products of a layer in their order; after the last layer, the head.
enum Kind { QKV, OUTPUT, GATE_UP, DOWN, HEAD };

struct Here {
    const Step& p;
    char* shared;
    int rows, start;
    u32 origin;            // of this step's flags
    int warp, lane, g, t;  // g, t: row and column group of a lane in a fragment
    Share qkv, hidden, pairs, vocabulary;

    __device__ Here(const Step& p, char* shared, int rows, int start, u32 origin)
        : p(p), shared(shared), rows(rows), start(start), origin(origin), warp(threadIdx.x >> 5),
          lane(threadIdx.x & 31), g((threadIdx.x & 31) >> 2), t(threadIdx.x & 3),
          qkv(QKV_ROWS, 2), hidden(HIDDEN, 2), pairs(INTER), vocabulary(VOCABULARY) {}

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
    __device__ const u16* small(int layer) const { return p.small + (i64)layer * SMALL; }
    // Say that this block has done its part of a layer's gated vector; wait until all have.
    __device__ __forceinline__ void arrive(int layer) const {
        meet<THREADS>();
        if (threadIdx.x == 0) add_release(p.counters + layer * COUNTER_STRIDE);
    }
    __device__ __forceinline__ void wait(int layer) const {
        if (threadIdx.x == 0)
            while (load_acquire(p.counters + layer * COUNTER_STRIDE) < gridDim.x) {
            }
        meet<THREADS>();
    }
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
