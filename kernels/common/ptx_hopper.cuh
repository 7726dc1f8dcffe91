// PTX of sm_90a: mbarrier, tensor copies (TMA), wgmma, setmaxnreg, stmatrix. One function for each instruction, named after it.
// Section numbers are those of the PTX ISA 8.x manual.
#pragma once
#include "common/ptx_mma.cuh"

// A CUtensorMap as the driver encodes it: a kernel takes it by value as a __grid_constant__ parameter.
struct alignas(64) TensorMap {
    unsigned char opaque[128];
};

// How often a wait asks before it gives up (seconds): a lost arrive then is a launch failure (trap), no hang of the GPU.
constexpr unsigned WAIT_LIMIT = 1u << 24;

// mbarrier.init (9.7.13.15.9): expects `arrivals` a phase.
__device__ __forceinline__ void mbarrier_init(unsigned barrier /* shared */, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// fence.mbarrier_init (9.7.13.4): the copy engine sees initialised barriers.
__device__ __forceinline__ void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// mbarrier.arrive.expect_tx (9.7.13.15.13): one arrival, and `bytes` to come from the copy engine in this phase.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// mbarrier.arrive (9.7.13.15.13): releases what this thread did before.
__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// mbarrier.try_wait.parity (9.7.13.15.16) until the phase of that parity is complete; acquires what was released there.
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity) {
#pragma unroll 1
    for (unsigned tries = 0; tries < WAIT_LIMIT; ++tries) {
        unsigned complete;
        asm volatile(
            "{\n"
            ".reg .pred done;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
            "selp.u32 %0, 1, 0, done;\n"
            "}"
            : "=r"(complete)
            : "r"(barrier), "r"(parity)
            : "memory");
        if (complete) return;
    }
    asm volatile("trap;");
}

// prefetch.tensormap (9.7.9.15).
__device__ __forceinline__ void prefetch_tensormap(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// cp.async.bulk.tensor.2d global to shared (9.7.9.25.5.2): the box at column x, row y; zeros outside the tensor. The barrier
// always gets the bytes of the whole box.
__device__ __forceinline__ void tma_load_2d(unsigned target, const TensorMap& map, unsigned barrier, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(target),
                 "l"(&map), "r"(barrier), "r"(x), "r"(y)
                 : "memory");
}

// cp.async.bulk.tensor.2d shared to global (same section): clipped to the tensor.
__device__ __forceinline__ void tma_store_2d(const TensorMap& map, unsigned source, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map), "r"(source), "r"(x), "r"(y)
                 : "memory");
}

// cp.async.bulk.commit_group (9.7.9.25.4.2).
__device__ __forceinline__ void bulk_commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// cp.async.bulk.wait_group.read (9.7.9.25.4.3): all but the PENDING newest stores of this thread have read their shared memory.
template <int PENDING>
__device__ __forceinline__ void bulk_wait_group_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

// fence.proxy.async (9.7.13.4): what this thread wrote to shared memory is visible to the copy engine and to wgmma.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// bar.sync (9.7.13.1) of `threads` threads on barrier `id`; id 0 is that of __syncthreads.
__device__ __forceinline__ void bar_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

// setmaxnreg (9.7.19.5): the warpgroup's registers a thread from here on.
template <int REGISTERS>
__device__ __forceinline__ void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ __forceinline__ void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// stmatrix.x4 (9.7.14.5.16): the inverse of ldmatrix.x4.
__device__ __forceinline__ void stmatrix_x4(unsigned address, unsigned r0, unsigned r1, unsigned r2, unsigned r3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r0), "r"(r1), "r"(r2), "r"(r3)
                 : "memory");
}

// wgmma.fence (9.7.15.7.1): orders register and shared-memory accesses of the warpgroup before the next wgmma.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// wgmma.commit_group (9.7.15.7.2).
__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// wgmma.wait_group (9.7.15.7.3): all but the PENDING newest groups are done; their shared memory may be reused.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait_group() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// The matrix descriptor of wgmma (9.7.15.5.1) of a K-major tile with rows of 128 bytes and 128-byte swizzle, 1024-byte aligned:
// eight rows every 1024 bytes (64 units of 16); the leading offset is not used (1); layout 1 in the top bits. A step of 16 elements
// along k adds 2.
__device__ __forceinline__ unsigned long long wgmma_descriptor(unsigned address /* shared */) {
    return (1ull << 62) | (64ull << 32) | (1ull << 16) | ((address & 0x3ffff) >> 4);
}
