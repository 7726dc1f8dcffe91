// One inline function for each PTX instruction used, named after it. Section numbers are those of the PTX ISA 8.x manual.
// Nothing here needs a header of the CUDA toolkit, so that libnvrtc alone compiles every kernel.
#pragma once

// cvt.f32.f16 (9.7.9.21, Data Movement and Conversion: cvt): exact.
__device__ __forceinline__ float cvt_f32_f16(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

// cvt.rn.f16.f32 (same section): round to nearest even; beyond 65,504 gives infinity.
__device__ __forceinline__ unsigned short cvt_rn_f16_f32(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
