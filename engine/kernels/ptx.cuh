// The few instructions of compute capability 9.0 that C++ has no name for. No headers: the
// run-time compiler then needs none on the machine.
#pragma once

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;
typedef long long i64;

struct alignas(16) Quad {
    u32 x, y, z, w;
};
struct alignas(16) Four {
    float a, b, c, d;
};

// ---- bf16, held as its bits ----------------------------------------------------------------

__device__ __forceinline__ float widen(u16 bits) { return __uint_as_float((u32)bits << 16); }
__device__ __forceinline__ float widen_low(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float widen_high(u32 pair) {
    return __uint_as_float(pair & 0xffff0000u);
}
// Two at a time: the instruction for one runs at a fraction of the rate.
__device__ __forceinline__ u32 narrow_pair(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
__device__ __forceinline__ u16 narrow(float value) { return (u16)narrow_pair(value, 0.f); }
// Two products, each rounded as one.
__device__ __forceinline__ u32 times_pair(u32 a, u32 b) {
    u32 pair;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
    return pair;
}
__device__ __forceinline__ float rounded(float value) { return widen(narrow(value)); }

// ---- memory --------------------------------------------------------------------------------

__device__ __forceinline__ u32 shared_address(const void* pointer) {
    return (u32)__cvta_generic_to_shared(pointer);
}
// What other blocks wrote is read past the L1 cache, which is not coherent.
__device__ __forceinline__ Quad load_l2(const void* pointer) {
    Quad q;
    asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
                 : "l"(pointer));
    return q;
}
__device__ __forceinline__ u16 load_l2_16(const void* pointer) {
    u16 bits;
    asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(bits) : "l"(pointer));
    return bits;
}
__device__ __forceinline__ float load_l2_float(const void* pointer) {
    float value;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(pointer));
    return value;
}
__device__ __forceinline__ u32 load_l2_32(const void* pointer) {
    u32 value;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(value) : "l"(pointer));
    return value;
}
__device__ __forceinline__ i64 load_l2_64(const void* pointer) {
    i64 value;
    asm volatile("ld.global.cg.s64 %0, [%1];" : "=l"(value) : "l"(pointer));
    return value;
}
__device__ __forceinline__ void prefetch(const void* pointer) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(pointer));
}
__device__ __forceinline__ void store_shared(u32 address, const Quad& q) {
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(q.x), "r"(q.y),
                 "r"(q.z), "r"(q.w)
                 : "memory");
}
__device__ __forceinline__ void store_shared(u32 address, u32 value) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
__device__ __forceinline__ void load_matrices(Quad& q, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
                 : "r"(address));
}
__device__ __forceinline__ void load_matrices_transposed(Quad& q, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
                 : "r"(address));
}

// ---- the matrix unit: c[16, 8] += a[16, 16] b[16, 8] ---------------------------------------

__device__ __forceinline__ void multiply(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0,
                                         u32 b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void multiply(float (&c)[4], const Quad& a, u32 b0, u32 b1) {
    multiply(c, a.x, a.y, a.z, a.w, b0, b1);
}

// ---- barriers in shared memory, and the copies that complete on them -----------------------

__device__ __forceinline__ void barrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
__device__ __forceinline__ void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra ready;\n"
        "bra again;\n"
        "ready:\n"
        "}\n" ::"r"(barrier),
        "r"(parity)
        : "memory");
}
// For those who are in no hurry.
__device__ __forceinline__ void barrier_wait_idly(u32 barrier, u32 parity) {
    u32 done = 0;
    while (true) {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n"
            "}\n"
            : "=r"(done)
            : "r"(barrier), "r"(parity)
            : "memory");
        if (done) break;
        asm volatile("nanosleep.u32 500;");
    }
}
__device__ __forceinline__ u64 stream_once_policy() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
// 16 bytes to shared memory, past the registers; and this thread's arrival once all of its copies
// have come.
__device__ __forceinline__ void copy_quad(u32 to, const void* from, u64 policy) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "l"(policy)
                 : "memory");
}
__device__ __forceinline__ void arrive_when_copied(u32 barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// ---- between blocks of the grid ------------------------------------------------------------

// What a block sends to others, 32 bits at a time, says by itself that it is there: before, the word
// is ABSENT, which no result is (a conversion or an operation gives another NaN). Neither side waits
// for a fence, and 16 bytes bring 8 numbers.
constexpr u32 ABSENT = 0xffffffffu;

__device__ __forceinline__ void send(void* to, u32 word) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}
__device__ __forceinline__ void send_two(void* to, float first, float second) {
    asm volatile("st.relaxed.gpu.global.v2.f32 [%0], {%1,%2};" ::"l"(to), "f"(first), "f"(second)
                 : "memory");
}
__device__ __forceinline__ void send_absent(void* to) {  // 16 bytes
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1,%1,%1,%1};" ::"l"(to), "r"(ABSENT)
                 : "memory");
}
__device__ __forceinline__ u32 look_word(const void* from) {
    u32 word;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
    return word;
}
struct alignas(8) Pair {
    u32 x, y;
};
__device__ __forceinline__ Pair look_pair(const void* from) {
    Pair p;
    asm volatile("ld.relaxed.gpu.global.v2.u32 {%0,%1}, [%2];"
                 : "=r"(p.x), "=r"(p.y)
                 : "l"(from)
                 : "memory");
    return p;
}
__device__ __forceinline__ Quad look(const void* from) {
    Quad q;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
                 : "l"(from)
                 : "memory");
    return q;
}
__device__ __forceinline__ bool there(const Pair& p) { return p.x != ABSENT && p.y != ABSENT; }
__device__ __forceinline__ bool there(const Quad& q) {
    return q.x != ABSENT && q.y != ABSENT && q.z != ABSENT && q.w != ABSENT;
}
// Looks at the words that bits of `missing` stand for until all are there: `from` gives the place of
// the n-th, x[n] what was seen of it last. The lanes of a warp stay together, for a warp that comes
// out of such a loop in pieces stays in pieces.
template <int N, class From>
__device__ __forceinline__ void receive(Quad (&x)[N], u32 missing, From from) {
    while (true) {
#pragma unroll
        for (int n = 0; n < N; ++n)
            if ((missing >> n & 1) && there(x[n])) missing &= ~(1u << n);
        const u32 waiting = __ballot_sync(~0u, missing);
        if (!waiting) break;
        // Looking loads the memory system: of many rows only one word is watched.
        if (MAX_ROWS > 1) {
            if ((threadIdx.x & 31) == __ffs(waiting) - 1) {
                const void* first = from(__ffs(missing) - 1);
                while (!there(look(first))) {
                }
            }
            __syncwarp();
        }
#pragma unroll
        for (int n = 0; n < N; ++n)
            if (missing >> n & 1) x[n] = look(from(n));
    }
}

// ---- registers, from one group of four warps to others -------------------------------------

template <int COUNT>
__device__ __forceinline__ void keep_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// ---- within a block ------------------------------------------------------------------------

template <int THREADS>
__device__ __forceinline__ void meet() {
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}
__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
