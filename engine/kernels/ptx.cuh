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
__device__ __forceinline__ i64 load_l2_64(const void* pointer) {
    i64 value;
    asm volatile("ld.global.cg.s64 %0, [%1];" : "=l"(value) : "l"(pointer));
    return value;
}
__device__ __forceinline__ void prefetch(const void* pointer) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(pointer));
}
__device__ __forceinline__ Quad load_shared(u32 address) {
    Quad q;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
                 : "r"(address));
    return q;
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

__device__ __forceinline__ void add_release(u32* counter) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
__device__ __forceinline__ u32 load_acquire(const u32* counter) {
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
    return value;
}

// Numbers for other blocks travel with a flag, {number, flag} in 8 bytes that are written at once:
// who finds the flag has the number, and neither side waits for a fence. The flag is the layer's
// own, so that what lies there from the layer before is not taken for it.
__device__ __forceinline__ void send(u64* to, u32 number, u32 flag) {
    asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1,%2};" ::"l"(to), "r"(number), "r"(flag));
}
__device__ __forceinline__ void send_two(u64* to, u32 first, u32 second, u32 flag) {
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1,%3,%2,%3};" ::"l"(to), "r"(first),
                 "r"(second), "r"(flag));
}
struct Two {
    u32 first, second;
    bool there;
};
__device__ __forceinline__ Two look(const u64* from, u32 flag) {
    u32 a, b, c, d;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "l"(from));
    return {a, c, b == flag && d == flag};
}
struct One {
    u32 number;
    bool there;
};
__device__ __forceinline__ One look_at(const u64* from, u32 flag) {
    u32 number, found;
    asm volatile("ld.relaxed.gpu.global.v2.u32 {%0,%1}, [%2];"
                 : "=r"(number), "=r"(found)
                 : "l"(from));
    return {number, found == flag};
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
