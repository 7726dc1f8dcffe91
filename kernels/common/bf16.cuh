// bfloat16 storage and pairs of 16-bit elements. Apart from types.cuh: the PTX that ships is made from what that one holds.
#pragma once
#include "common/types.cuh"

// The upper half of an IEEE binary32, as stored in memory; arithmetic is done in fp32. Stands for __nv_bfloat16.
struct bf16 {
    unsigned short bits;
};

// Two fp32 values rounded to nearest even, `low` at the lower address. cvt.rn.{f16x2,bf16x2}.f32 (9.7.9.21) takes the upper half first.
template <typename Element>
__device__ __forceinline__ unsigned pack2(float low, float high);
template <>
__device__ __forceinline__ unsigned pack2<bf16>(float low, float high) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
template <>
__device__ __forceinline__ unsigned pack2<f16>(float low, float high) {
    // Two conversions: f16x2 needs sm_80, and this must compile for sm_75.
    return static_cast<unsigned>(cvt_rn_f16_f32(low)) | static_cast<unsigned>(cvt_rn_f16_f32(high)) << 16;
}
