// Products of a matrix with a few vectors: weights from the ring, vectors from other blocks.
#pragma once
#include "shape.cuh"

constexpr int slots_of(int width) { return (width + SLOT_COLUMNS - 1) / SLOT_COLUMNS; }

__device__ __forceinline__ float squares(u32 pair) {
    const float low = widen_low(pair), high = widen_high(pair);
    return low * low + high * high;
}
// The factor of a token's RMS norm, from the squares that all warps left. It is taken into account
// behind the product, so that nobody waits for it before.
__device__ __forceinline__ float norm_factor(const Here& at, int token) {
    const float* table = (const float*)(at.shared + SQUARES_AT);
    const Four* sums = (const Four*)(table + min(token, MAX_ROWS - 1) * HELD * WARPS);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
        const Four a = sums[2 * i], b = sums[2 * i + 1];
        sum += ((a.a + a.b) + (a.c + a.d)) + ((b.a + b.b) + (b.c + b.d));
    }
    return rsqrtf(sum * (1.f / HIDDEN) + at.p.eps);
}

// The vectors that a warp multiplies: of every row the same 64 columns in each slot, which it
// receives for itself. Eight lanes share a row, four rows a pass, so that many rows cost few
// more instructions than one; pieces (row, slot) follow each other without gaps.
struct Desk {
    static constexpr int N = (MAX_ROWS * HELD + 3) / 4;
    Quad x[N], weight[N];  // of row `row(n)` and slot `slot(n)`

    static __device__ int row(const Here& at, int n) { return (n * 4 + at.lane / 8) / HELD; }
    static __device__ int slot(const Here& at, int n) { return (n * 4 + at.lane / 8) % HELD; }
    static __device__ int column(const Here& at, int n) {
        return slot(at, n) * SLOT_COLUMNS + at.warp * 64 + at.lane % 8 * 8;
    }
    // Asks for the weights of the norm.
    __device__ __forceinline__ void fetch(const Here& at, const u16* norm) {
#pragma unroll
        for (int n = 0; n < N; ++n) {
            weight[n] = {0, 0, 0, 0};
            if (column(at, n) < HIDDEN) weight[n] = load_l2(norm + column(at, n));
        }
    }
    __device__ __forceinline__ void embed(const Here& at) {
#pragma unroll
        for (int n = 0; n < N; ++n) {
            x[n] = {0, 0, 0, 0};
            if (row(at, n) < at.rows && column(at, n) < HIDDEN)
                x[n] = load_l2(at.embedded(row(at, n)) + column(at, n));
        }
    }
    template <int WIDTH>
    __device__ __forceinline__ void receive_rows(const Here& at, const u16* sent) {
        auto from = [&](int n) { return sent + place<WIDTH>(row(at, n), column(at, n)); };
        u32 missing = 0;
#pragma unroll
        for (int n = 0; n < N; ++n) {
            x[n] = {0, 0, 0, 0};
            if (row(at, n) < at.rows && column(at, n) < WIDTH) missing |= 1u << n;
        }
        pause(BEFORE_ROWS);
        // The words of the first row come from everyone: once they are there, the others are or
        // soon will be.
        if (MAX_ROWS > 1 && HELD <= 4) {
            bool absent;
            do {
                absent = false;
                if (missing & 1) {
                    x[0] = look(from(0));
                    absent = !there(x[0]);
                }
            } while (__any_sync(~0u, absent));
            missing &= ~1u;
        }
#pragma unroll
        for (int n = 0; n < N; ++n)
            if (missing >> n & 1) x[n] = look(from(n));
        receive(x, missing, from);
    }
    // The norm's weights, and the squares of the numbers for its factor.
    __device__ __forceinline__ void weigh(const Here& at) {
        float* table = (float*)(at.shared + SQUARES_AT);
#pragma unroll
        for (int n = 0; n < N; ++n) {
            Quad& q = x[n];
            float sum = (squares(q.x) + squares(q.y)) + (squares(q.z) + squares(q.w));
            const Quad& w = weight[n];
            q = {times_pair(q.x, w.x), times_pair(q.y, w.y), times_pair(q.z, w.z),
                 times_pair(q.w, w.w)};
#pragma unroll
            for (int step = 1; step < 8; step <<= 1) sum += __shfl_xor_sync(~0u, sum, step);
            if (at.lane % 8 == 0 && row(at, n) < MAX_ROWS)
                table[(row(at, n) * HELD + slot(at, n)) * WARPS + at.warp] = sum;
        }
    }
    // From the lanes that received to those that multiply: 32 columns, half of a slot, at a time.
    // Rows that are not there get the last one's numbers, and no one looks at their results.
    __device__ __forceinline__ void deal(const Here& at, Quad (&held)[2 * HELD]) const {
        const u32 desk = shared_address(at.shared + DESK_AT) + at.warp * MAX_ROWS * DESK_STRIDE;
#pragma unroll
        for (int n = 0; n < N; ++n)
            if (row(at, n) < MAX_ROWS)
                store_shared(
                    desk + row(at, n) * DESK_STRIDE + slot(at, n) * 128 + at.lane % 8 * 16, x[n]);
        __syncwarp();
        const u32 mine = desk + min(at.lane % 8, at.rows - 1) * DESK_STRIDE + at.lane / 8 * 16;
#pragma unroll
        for (int i = 0; i < 2 * HELD; ++i) load_matrices(held[i], mine + i * 64);
        __syncwarp();
    }
};

// Two accumulators, so that one product need not wait for the one before.
struct Sum {
    float even[4] = {0, 0, 0, 0}, odd[4] = {0, 0, 0, 0};
};

// A warp's part of a slot: 16 rows by 64 columns.
struct Weights {
    Quad columns[4];  // 16 each

    __device__ __forceinline__ void load(const Here& at, const Ring& ring) {
        ring.wait_filled();
        const u32 from =
            ring.address() + at.lane % 16 * ROW_STRIDE + at.warp * 128 + at.lane / 16 * 16;
#pragma unroll
        for (int i = 0; i < 4; ++i) load_matrices(columns[i], from + i * 32);
    }
    __device__ __forceinline__ void multiply_by(const Quad& x0, const Quad& x1, Sum& sum) const {
        multiply(sum.even, columns[0], x0.x, x0.y);
        multiply(sum.odd, columns[1], x0.z, x0.w);
        multiply(sum.even, columns[2], x1.x, x1.y);
        multiply(sum.odd, columns[3], x1.z, x1.w);
    }
};

// N slots of a tile times the lane's part of the vectors. All are read before the first is
// multiplied, for a read takes as long as three products. Columns beyond the row hold leftovers,
// and their vectors zeros.
template <int N>
__device__ __forceinline__ void multiply_slots(const Here& at, Ring& ring, const Quad* x, Sum& sum) {
    Weights weights[N];
    Ring next = ring;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        weights[i].load(at, next);
        next.advance();
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
        weights[i].multiply_by(x[2 * i], x[2 * i + 1], sum);
        ring.release();
        ring.advance();
    }
}

// Vectors that are too wide to be held: received four slots at a time, the next four while these
// are multiplied. A lane has one slot and 8 columns of it, of every row.
struct Wide {
    Quad x[MAX_ROWS];

    static __device__ int column(const Here& at, int group) {
        return (group * 4 + at.lane / 8) * SLOT_COLUMNS + at.warp * 64 + at.lane % 8 * 8;
    }
    // Waits until something is there, for looking loads the memory system.
    static __device__ __forceinline__ void wait(const Here& at, const u16* sent) {
        if (at.lane == 0 && column(at, 0) < INTER)
            while (!there(look(sent + gated_place(0, column(at, 0))))) {
            }
        __syncwarp();
    }
    __device__ __forceinline__ void ask(const Here& at, const u16* sent, int group) {
        const bool has = column(at, group) < INTER;
#pragma unroll
        for (int r = 0; r < MAX_ROWS; ++r) {
            x[r] = {0, 0, 0, 0};
            if (has && r < at.rows) x[r] = look(sent + gated_place(r, column(at, group)));
        }
    }
    __device__ __forceinline__ void settle(const Here& at, const u16* sent, int group) {
        while (true) {
            bool absent = false;
#pragma unroll
            for (int r = 0; r < MAX_ROWS; ++r) absent |= !there(x[r]);
            if (!__any_sync(~0u, absent)) break;
#pragma unroll
            for (int r = 0; r < MAX_ROWS; ++r)
                if (!there(x[r])) x[r] = look(sent + gated_place(r, column(at, group)));
        }
    }
    // To the lanes that multiply: 32 columns, half of a slot, at a time.
    __device__ __forceinline__ void put(u32 desk, const Here& at) const {
#pragma unroll
        for (int r = 0; r < MAX_ROWS; ++r)
            store_shared(desk + r * DESK_STRIDE + at.lane * 16, x[r]);
        __syncwarp();
    }
};
// Two slots at a time (the last may be one), of vectors that lie at `mine`.
__device__ __forceinline__ void multiply_desk(const Here& at, Ring& ring, u32 mine, int first,
                                              Sum& sum) {
    constexpr int ALL = slots_of(INTER);
    Quad x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) load_matrices(x[i], mine + i * 64);
    if (ALL % 2 && first + 1 == ALL)
        multiply_slots<1>(at, ring, x, sum);
    else
        multiply_slots<2>(at, ring, x, sum);
}

// Four slots are a group; several are asked for before the first has come, for each is a trip that
// queues behind weights.
__device__ __forceinline__ void multiply_wide(const Here& at, Ring& ring, const u16* sent, Sum& sum) {
    constexpr int ALL = slots_of(INTER), GROUPS = (ALL + 3) / 4;
    constexpr int MOST = MAX_ROWS <= 5 ? 3 : MAX_ROWS <= 7 ? 2 : 1;  // what registers allow
    constexpr int AHEAD = MOST < GROUPS ? MOST : GROUPS;
    const u32 desk = shared_address(at.shared + DESK_AT) + at.warp * MAX_ROWS * DESK_STRIDE;
    const u32 mine = desk + min(at.lane % 8, at.rows - 1) * DESK_STRIDE + at.lane / 8 * 16;
    Wide wide[AHEAD];
    Wide::wait(at, sent);
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) wide[a].ask(at, sent, a);
#pragma unroll 1
    for (int base = 0; base < GROUPS; base += AHEAD) {
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            const int group = base + a;
            if (group >= GROUPS) break;
            wide[a].settle(at, sent, group);
            wide[a].put(desk, at);
            if (AHEAD < GROUPS) wide[a].ask(at, sent, group + AHEAD);
#pragma unroll 1
            for (int pair = 0; pair < 2; ++pair) {
                const int first = 4 * group + 2 * pair;
                if (first >= ALL) break;
                multiply_desk(at, ring, mine + pair * 256, first, sum);
            }
            __syncwarp();
        }
    }
}

// What becomes of a finished tile. Of the four numbers of a lane, the first two belong to row g
// and tokens 2t, 2t + 1, the others to row g + 8; in the gated part row g is a gate and g + 8 its up.
struct Finish {
    Kind kind;
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
            const u16* stream = kind == DOWN ? at.middle_of(l) : at.hidden_of(l - 1);
            const bool first = kind == OUTPUT && l == 0;
            before[i] = load_l2_16(first ? at.embedded(m) + r : stream + place<HIDDEN>(m, r));
        }
    }
    __device__ __forceinline__ float added(float total, int i) const {
        return rounded(total + widen(offset[i / 2]));
    }

    __device__ __forceinline__ void store(const Here& at, int l, int tile, float (&total)[4]) {
        if (kind != OUTPUT && kind != DOWN) {
#pragma unroll
            for (int i = 0; i < (MAX_ROWS == 1 ? 1 : 2); ++i) {
                const float factor = norm_factor(at, 2 * at.t + i);
                // A product of its own: joined with the sum behind it in one kernel and not in
                // another, a row would have other bits among others than alone.
                total[i] = __fmul_rn(total[i], factor);
                total[i + 2] = __fmul_rn(total[i + 2], factor);
            }
        }
        if (kind == GATE_UP)
            send_gated(at, l, tile, total);
        else if (kind == HEAD)
            store_logits(at, tile, total);
        else
            send_rows(at, l, tile, total);
    }

    // bf16(product + bias), plus the block's own part of the residual stream.
    __device__ __forceinline__ void send_rows(const Here& at, int l, int tile,
                                              const float (&total)[4]) {
        const Share rows = at.rows_of(kind);
        u16* out = kind == QKV ? at.qkv_of(l) : kind == OUTPUT ? at.middle_of(l) : at.hidden_of(l);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (MAX_ROWS == 1 && i % 2) continue;
            const float mine = added(total[i], i) + (kind == QKV ? 0.f : widen(before[i]));
            const float next = __shfl_down_sync(~0u, mine, 4);
            const int r = tile * 16 + at.g + (i & 2) * 4, m = 2 * at.t + (i & 1);
            if (at.g % 2 == 0 && r < rows.count && m < at.rows)
                send(out + (kind == QKV ? m * QKV_ROWS + rows.first + r
                                        : place<HIDDEN>(m, rows.first + r)),
                     narrow_pair(mine, next));
        }
    }

    // silu(gate) * up.
    __device__ __forceinline__ void send_gated(const Here& at, int l, int tile,
                                               const float (&total)[4]) {
        const int pair = tile * 8 + at.g;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (MAX_ROWS == 1 && i) continue;
            const int m = 2 * at.t + i;
            const float gate = added(total[i], i), up = added(total[i + 2], i + 2);
            const float silu = rounded(__fdividef(gate, 1.f + __expf(-gate)));
            const float mine = silu * up, next = __shfl_down_sync(~0u, mine, 4);
            if (at.g % 2 == 0 && pair < at.pairs.count && m < at.rows)
                send(at.gated_of(l) + gated_place(m, at.pairs.first + pair), narrow_pair(mine, next));
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
