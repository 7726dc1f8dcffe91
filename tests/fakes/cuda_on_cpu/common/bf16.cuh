/* Stands for kernels/common/bf16.cuh on the CPU: the same types, conversions in plain C++. */
#pragma once
#include "common/types.cuh"

struct bf16 {
    unsigned short bits;
};

inline unsigned short float_to_bf16(float value) {
    unsigned wide;
    std::memcpy(&wide, &value, sizeof wide);
    return static_cast<unsigned short>((wide + 0x7fffu + (wide >> 16 & 1u)) >> 16);
}
inline float widened(bf16, unsigned short bits) {
    const unsigned wide = static_cast<unsigned>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
}
inline float widened(f16, unsigned short bits) { return cvt_f32_f16(bits); }

template <typename Element>
inline unsigned pack2(float low, float high);
template <>
inline unsigned pack2<bf16>(float low, float high) {
    return float_to_bf16(low) | static_cast<unsigned>(float_to_bf16(high)) << 16;
}
template <>
inline unsigned pack2<f16>(float low, float high) {
    return cvt_rn_f16_f32(low) | static_cast<unsigned>(cvt_rn_f16_f32(high)) << 16;
}
