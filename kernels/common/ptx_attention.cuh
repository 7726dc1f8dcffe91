// What attention needs over the GEMM kernels: transposing ldmatrix, and the approximations of the special function unit. One
// function for each instruction, named after it. Section numbers are those of the PTX ISA 8.x manual.
#pragma once
#include "common/ptx_mma.cuh"

// ldmatrix.x4.trans (9.7.14.5.15, sm_75): as ldmatrix_x4, each 8 x 8 matrix transposed on the way.
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&part)[4], unsigned address /* shared, 16-byte aligned */) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3])
                 : "r"(address)
                 : "memory");
}

// ex2.approx.ftz.f32 (9.7.3.21): 2^x within 2^-22 relative; -inf gives +0.
__device__ __forceinline__ float ex2_approx(float x) {
    float value;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
    return value;
}

// rcp.approx.ftz.f32 (9.7.3.13): 1 / x within 1 ulp.
__device__ __forceinline__ float rcp_approx(float x) {
    float value;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
    return value;
}

// cvt.rn.{f16x2,bf16x2}.f32 (9.7.9.21, sm_80): one instruction for a pair, `low` at the lower address.
template <typename Element>
__device__ __forceinline__ unsigned cvt_rn_pair(float low, float high);
template <>
__device__ __forceinline__ unsigned cvt_rn_pair<bf16>(float low, float high) {
    return pack2<bf16>(low, high);
}
template <>
__device__ __forceinline__ unsigned cvt_rn_pair<f16>(float low, float high) {
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
