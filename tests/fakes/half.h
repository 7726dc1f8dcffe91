/* IEEE binary16 in plain C and C++, rounded to nearest even, for the stand-ins of the GPU. */
#pragma once
#include <math.h>
#include <stdint.h>

static float half_to_float(uint16_t bits) {
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    float size = exponent == 31 ? (mantissa ? NAN : INFINITY)
               : exponent ? ldexpf((float)(1024 + mantissa), exponent - 25) : ldexpf((float)mantissa, -24);
    return bits & 0x8000 ? -size : size;
}

static uint16_t float_to_half(float value) {
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    float size = fabsf(value);
    if (isnan(value)) return 0x7fff;
    if (size == 0) return sign;
    if (size >= 65520.0f) return (uint16_t)(sign | 0x7c00);
    int exponent;
    frexpf(size, &exponent);
    int shift = exponent < -13 ? -24 : exponent - 11; /* the last bit of the result is worth 2^shift */
    float units = nearbyintf(ldexpf(size, -shift));   /* to nearest, ties to even */
    if (shift == -24) return (uint16_t)(sign | (uint16_t)units);
    return (uint16_t)(sign + ((shift + 24) << 10) + (uint16_t)units);
}
