// PTX of the tensor cores up to sm_80 and of what feeds them: ldmatrix, mma.sync, cp.async. One function for each instruction,
// named after it. Section numbers are those of the PTX ISA 8.x manual.
#pragma once
#include "common/bf16.cuh"

// The address of `pointer` in the shared state space, as instructions with .shared take it.
__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// ldmatrix.x4 (9.7.14.5.15, sm_75): lane i holds the address of row i % 8 of matrix i / 8; part[j] gets two neighbours of matrix j.
__device__ __forceinline__ void ldmatrix_x4(unsigned (&part)[4], unsigned address /* shared, 16-byte aligned */) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3])
                 : "r"(address)
                 : "memory");
}

// mma.m16n8k16 (9.7.14.5.8, sm_80): acc += A B^T with A [16, 16], B [8, 16], fp32 sums.
template <typename Element>
__device__ __forceinline__ void mma_m16n8k16(float (&acc)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);
template <>
__device__ __forceinline__ void mma_m16n8k16<bf16>(float (&acc)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void mma_m16n8k16<f16>(float (&acc)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// mma.m16n8k8 (same section, sm_75): acc += A B^T with A [16, 8], B [8, 8] of fp16, fp32 sums.
__device__ __forceinline__ void mma_m16n8k8_f16(float (&acc)[4], unsigned a0, unsigned a1, unsigned b0) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
                 : "r"(a0), "r"(a1), "r"(b0));
}

// cp.async.cg of 16 bytes (9.7.9.25.3.1, sm_80): past L1; zeros where `source_bytes` is 0, and then nothing is read.
__device__ __forceinline__ void cp_async_16(unsigned target /* shared */, const void* source, int source_bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(source_bytes) : "memory");
}

// cp.async.ca of 4 bytes (same section): .cg knows 16 bytes only.
__device__ __forceinline__ void cp_async_4(unsigned target /* shared */, const void* source, int source_bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(target), "l"(source), "r"(source_bytes) : "memory");
}

// cp.async.commit_group (9.7.9.25.3.2): the copies of this thread since the last one form a group.
__device__ __forceinline__ void cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// cp.async.wait_group (9.7.9.25.3.3): all but the PENDING newest groups of this thread have landed; others see it after a barrier.
template <int PENDING>
__device__ __forceinline__ void cp_async_wait_group() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
