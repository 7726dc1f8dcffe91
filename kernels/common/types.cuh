// Element types and 16-byte vectors shared by all kernels. Nothing with state.
#pragma once
#include "common/ptx.cuh"

// IEEE binary16 as stored in memory; arithmetic is done in fp32. Stands for __half without cuda_fp16.h.
struct f16 {
    unsigned short bits;
};

__device__ __forceinline__ float to_f32(float value) { return value; }
__device__ __forceinline__ float to_f32(f16 value) { return cvt_f32_f16(value.bits); }

template <typename Element>
__device__ __forceinline__ Element from_f32(float value);
template <>
__device__ __forceinline__ float from_f32<float>(float value) { return value; }
template <>
__device__ __forceinline__ f16 from_f32<f16>(float value) {
    f16 result;
    result.bits = cvt_rn_f16_f32(value);
    return result;
}

// 16 bytes of elements: the widest load and store of one thread.
template <typename Element>
struct alignas(16) Vec16 {
    static constexpr int ELEMS = 16 / sizeof(Element);
    Element elems[ELEMS];
};

// Reads 16 bytes with one instruction and widens them to fp32.
template <typename Element>
__device__ __forceinline__ void load_vec16(const Element* source /* 16-byte aligned */, float* out /* [Vec16::ELEMS] */) {
    const Vec16<Element> vec = *reinterpret_cast<const Vec16<Element>*>(source);
#pragma unroll
    for (int i = 0; i < Vec16<Element>::ELEMS; ++i) out[i] = to_f32(vec.elems[i]);
}

__host__ __device__ constexpr int cdiv(int a, int b) { return (a + b - 1) / b; }

__device__ __forceinline__ float negative_infinity() { return __int_as_float(0xff800000); }
