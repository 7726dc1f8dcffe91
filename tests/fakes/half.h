/* IEEE binary16 in plain C and C++, rounded to nearest even, for the stand-ins of the GPU. */
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float half_to_float(uint16_t bits) {
    uint32_t exponent = bits >> 10 & 31, mantissa = bits & 1023, sign = (uint32_t)(bits & 0x8000) << 16, wide;
    float value;
    if (exponent == 0) {
        value = (float)mantissa * 0x1p-24f;
        return sign ? -value : value;
    }
    wide = sign | (exponent == 31 ? 255u : exponent + 112u) << 23 | mantissa << 13;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static inline uint16_t float_to_half(float value) {
    uint32_t wide, size;
    memcpy(&wide, &value, sizeof wide);
    uint16_t sign = (uint16_t)(wide >> 16 & 0x8000);
    size = wide & 0x7fffffffu;
    if (size > 0x7f800000u) return 0x7fff;                        /* NaN */
    if (size >= 0x477ff000u) return (uint16_t)(sign | 0x7c00);    /* 65,520 and more round to infinity */
    if (size < 0x38800000u)                                       /* subnormal: multiples of 2^-24 */
        return (uint16_t)(sign | (uint16_t)nearbyintf(fabsf(value) * 0x1p24f));
    size += 0xfffu + (size >> 13 & 1u);                           /* half of the last place kept, ties to even */
    return (uint16_t)(sign | (uint16_t)((size - 0x38000000u) >> 13));
}
