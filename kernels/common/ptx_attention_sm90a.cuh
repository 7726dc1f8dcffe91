// What the sm_90a attention needs over the GEMM: tensor copies of three dimensions, bar.arrive, and wgmma with A in registers.
// Section numbers are those of the PTX ISA 8.x manual.
#pragma once
#include "common/ptx_attention.cuh"
#include "common/wgmma.cuh"

// cp.async.bulk.tensor.3d global to shared (9.7.9.25.5.2): the box at column x, row y, matrix z; zeros outside the tensor. The barrier
// always gets the bytes of the whole box.
__device__ __forceinline__ void tma_load_3d(unsigned target, const TensorMap& map, unsigned barrier, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
                     target),
                 "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

// cp.async.bulk.tensor.3d shared to global (same section): clipped to the tensor.
__device__ __forceinline__ void tma_store_3d(const TensorMap& map, unsigned source, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map), "r"(source), "r"(x),
                 "r"(y), "r"(z)
                 : "memory");
}

// bar.arrive (9.7.13.1): counts this thread without waiting; `threads` include those that wait in bar_sync.
__device__ __forceinline__ void bar_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

// The matrix descriptor of wgmma (9.7.15.5.1) of an MN-major tile with 128-byte swizzle: chunks of 64 columns lie `chunk_bytes` apart
// (leading offset), eight rows of k every 1024 bytes. A step of 16 along k adds 128 (units of 16 bytes).
__device__ __forceinline__ unsigned long long wgmma_descriptor_mn(unsigned address /* shared */, unsigned chunk_bytes) {
    return (1ull << 62) | (64ull << 32) | (static_cast<unsigned long long>(chunk_bytes >> 4) << 16) | ((address & 0x3ffff) >> 4);
}

// wgmma.mma_async (9.7.15.5.2): acc += A B for a warpgroup, A [64, 16] in registers (as mma.m16n8k16 has it, a warp 16 rows), B in
// shared memory: [N, 16] K-major, or [16, N] MN-major. `accumulate` 0 starts from zero. The layout of acc is that of Wgmma.
#define RS_ACC_4(i) "+f"(acc[i]), "+f"(acc[i + 1]), "+f"(acc[i + 2]), "+f"(acc[i + 3])
#define RS_ACC_8(i) RS_ACC_4(i), RS_ACC_4(i + 4)
#define RS_ACC_32(i) RS_ACC_8(i), RS_ACC_8(i + 8), RS_ACC_8(i + 16), RS_ACC_8(i + 24)
#define WGMMA_RS_N64(TYPES, TRANS) \
    asm volatile( \
        "{\n" \
        ".reg .pred p;\n" \
        "setp.ne.b32 p, %37, 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPES " {" \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31" \
        "}, {%32, %33, %34, %35}, %36, p, 1, 1, " TRANS ";\n" \
        "}" \
        : RS_ACC_32(0) \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))
#define WGMMA_RS_N80(TYPES, TRANS) \
    asm volatile( \
        "{\n" \
        ".reg .pred p;\n" \
        "setp.ne.b32 p, %45, 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n80k16.f32." TYPES " {" \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
        "%32, %33, %34, %35, %36, %37, %38, %39" \
        "}, {%40, %41, %42, %43}, %44, p, 1, 1, " TRANS ";\n" \
        "}" \
        : RS_ACC_32(0), RS_ACC_8(32) \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))
#define WGMMA_RS_N128(TYPES, TRANS) \
    asm volatile( \
        "{\n" \
        ".reg .pred p;\n" \
        "setp.ne.b32 p, %69, 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPES " {" \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63" \
        "}, {%64, %65, %66, %67}, %68, p, 1, 1, " TRANS ";\n" \
        "}" \
        : RS_ACC_32(0), RS_ACC_32(32) \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))
// A [64, 16] in shared memory: the width that the GEMM kernels do not use.
#define WGMMA_N80(TYPES) \
    asm volatile( \
        "{\n" \
        ".reg .pred p;\n" \
        "setp.ne.b32 p, %42, 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n80k16.f32." TYPES " {" \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
        "%32, %33, %34, %35, %36, %37, %38, %39" \
        "}, %40, %41, p, 1, 1, 0, 0;\n" \
        "}" \
        : RS_ACC_32(0), RS_ACC_8(32) \
        : "l"(a), "l"(b), "r"(accumulate))

template <>
struct Wgmma<bf16, 80> {
    static __device__ __forceinline__ void mma(float (&acc)[40], unsigned long long a, unsigned long long b, int accumulate) {
        WGMMA_N80("bf16.bf16");
    }
};
template <>
struct Wgmma<f16, 80> {
    static __device__ __forceinline__ void mma(float (&acc)[40], unsigned long long a, unsigned long long b, int accumulate) {
        WGMMA_N80("f16.f16");
    }
};

enum class Major { K, MN };

template <typename Element, int N, Major MAJOR>
struct WgmmaRs;
template <>
struct WgmmaRs<f16, 64, Major::K> {
    static __device__ __forceinline__ void mma(float (&acc)[32], const unsigned (&a)[4], unsigned long long b, int accumulate) {
        WGMMA_RS_N64("f16.f16", "0");
    }
};
template <>
struct WgmmaRs<f16, 64, Major::MN> {
    static __device__ __forceinline__ void mma(float (&acc)[32], const unsigned (&a)[4], unsigned long long b, int accumulate) {
        WGMMA_RS_N64("f16.f16", "1");
    }
};
template <>
struct WgmmaRs<f16, 80, Major::K> {
    static __device__ __forceinline__ void mma(float (&acc)[40], const unsigned (&a)[4], unsigned long long b, int accumulate) {
        WGMMA_RS_N80("f16.f16", "0");
    }
};
template <>
struct WgmmaRs<f16, 128, Major::K> {
    static __device__ __forceinline__ void mma(float (&acc)[64], const unsigned (&a)[4], unsigned long long b, int accumulate) {
        WGMMA_RS_N128("f16.f16", "0");
    }
};
template <>
struct WgmmaRs<f16, 128, Major::MN> {
    static __device__ __forceinline__ void mma(float (&acc)[64], const unsigned (&a)[4], unsigned long long b, int accumulate) {
        WGMMA_RS_N128("f16.f16", "1");
    }
};
template <>
struct WgmmaRs<bf16, 64, Major::K> {
    static __device__ __forceinline__ void mma(float (&acc)[32], const unsigned (&a)[4], unsigned long long b, int accumulate) {
        WGMMA_RS_N64("bf16.bf16", "0");
    }
};
template <>
struct WgmmaRs<bf16, 64, Major::MN> {
    static __device__ __forceinline__ void mma(float (&acc)[32], const unsigned (&a)[4], unsigned long long b, int accumulate) {
        WGMMA_RS_N64("bf16.bf16", "1");
    }
};
template <>
struct WgmmaRs<bf16, 80, Major::K> {
    static __device__ __forceinline__ void mma(float (&acc)[40], const unsigned (&a)[4], unsigned long long b, int accumulate) {
        WGMMA_RS_N80("bf16.bf16", "0");
    }
};
template <>
struct WgmmaRs<bf16, 128, Major::K> {
    static __device__ __forceinline__ void mma(float (&acc)[64], const unsigned (&a)[4], unsigned long long b, int accumulate) {
        WGMMA_RS_N128("bf16.bf16", "0");
    }
};
template <>
struct WgmmaRs<bf16, 128, Major::MN> {
    static __device__ __forceinline__ void mma(float (&acc)[64], const unsigned (&a)[4], unsigned long long b, int accumulate) {
        WGMMA_RS_N128("bf16.bf16", "1");
    }
};
