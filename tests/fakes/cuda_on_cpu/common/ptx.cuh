// Stands in for kernels/common/ptx.cuh when a kernel is compiled for the CPU.
#pragma once
#include "half.h"

inline float cvt_f32_f16(unsigned short bits) { return half_to_float(bits); }
inline unsigned short cvt_rn_f16_f32(float value) { return float_to_half(value); }
