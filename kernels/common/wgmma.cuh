// wgmma.mma_async (PTX ISA 8.x, 9.7.15.5.2, sm_90a): acc += A B^T for a warpgroup, A [64, 16] and B [N, 16] in shared memory, both
// K-major, fp32 sums. `accumulate` 0 starts from zero. Row 16 w + l / 4 (+ 8) and column 8 j + 2 (l % 4) of lane l of warp w are
// acc[4 j] (acc[4 j + 2]); their right neighbours acc[4 j + 1] (acc[4 j + 3]).
#pragma once
#include "common/ptx_hopper.cuh"

#define ACC_4(i) "+f"(acc[i]), "+f"(acc[i + 1]), "+f"(acc[i + 2]), "+f"(acc[i + 3])
#define ACC_16(i) ACC_4(i), ACC_4(i + 4), ACC_4(i + 8), ACC_4(i + 12)
#define ACC_32(i) ACC_16(i), ACC_16(i + 16)
#define ACC_64(i) ACC_32(i), ACC_32(i + 32)
#define ACC_128(i) ACC_64(i), ACC_64(i + 64)

#define WGMMA_N128(TYPES) \
    asm volatile( \
    "{\n" \
    ".reg .pred p;\n" \
    "setp.ne.b32 p, %66, 0;\n" \
    "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPES " {" \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63" \
    "}, %64, %65, p, 1, 1, 0, 0;\n" \
    "}" \
    : ACC_64(0) \
    : "l"(a), "l"(b), "r"(accumulate))

#define WGMMA_N256(TYPES) \
    asm volatile( \
    "{\n" \
    ".reg .pred p;\n" \
    "setp.ne.b32 p, %130, 0;\n" \
    "wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPES " {" \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127" \
    "}, %128, %129, p, 1, 1, 0, 0;\n" \
    "}" \
    : ACC_128(0) \
    : "l"(a), "l"(b), "r"(accumulate))

template <typename Element, int N>
struct Wgmma;
template <>
struct Wgmma<bf16, 128> {
    static __device__ __forceinline__ void mma(float (&acc)[64], unsigned long long a, unsigned long long b, int accumulate) {
        WGMMA_N128("bf16.bf16");
    }
};
template <>
struct Wgmma<bf16, 256> {
    static __device__ __forceinline__ void mma(float (&acc)[128], unsigned long long a, unsigned long long b, int accumulate) {
        WGMMA_N256("bf16.bf16");
    }
};
template <>
struct Wgmma<f16, 128> {
    static __device__ __forceinline__ void mma(float (&acc)[64], unsigned long long a, unsigned long long b, int accumulate) {
        WGMMA_N128("f16.f16");
    }
};
template <>
struct Wgmma<f16, 256> {
    static __device__ __forceinline__ void mma(float (&acc)[128], unsigned long long a, unsigned long long b, int accumulate) {
        WGMMA_N256("f16.f16");
    }
};

#undef WGMMA_N128
#undef WGMMA_N256
#undef ACC_4
#undef ACC_16
#undef ACC_32
#undef ACC_64
#undef ACC_128
