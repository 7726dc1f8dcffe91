// rotary_f32_halves_sm50: rotary positional encoding: Y = X with each pair (x[i], x[i + D/2]) turned by its position's angle. fp32.
// X, Y [rows, columns] with columns = D even and position row % length (heads of one text follow each other); cosines and sines
// [length, D/2] are tables, so that positions of any scheme and precision fit.
// Shapes:  any rows >= 1, length >= 1, columns even.
// Tile:    256 pairs a CTA of 256 threads; grid (cdiv(rows * columns / 2, 256)).
// Smem:    none.
// Regs:    at most 32 a thread.
// Memory:  X read and Y written once, tables from the L2: 16 B a pair for 6 FLOP. Memory bound.
// Sources: RoFormer, Su et al. 2021, section 3.4.2; pairs in halves as GPT-NeoX and Llama store them.
#include "common/types.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    rotary_f32_halves_sm50(const float* __restrict__ x,        // [rows, columns]
                           const float* __restrict__ cosines,  // [length, columns / 2]
                           const float* __restrict__ sines,    // [length, columns / 2]
                           float* __restrict__ y,              // [rows, columns]
                           int rows, int columns, int length) {
    const int half = columns / 2;
    const size_t pair = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x;
    const size_t row = pair / half;
    if (row >= static_cast<size_t>(rows)) return;
    const size_t i = pair - row * half;
    const size_t angle = row % length * half + i;
    const size_t first = row * columns + i;
    const float a = x[first];
    const float b = x[first + half];
    y[first] = fmaf(a, cosines[angle], -b * sines[angle]);
    y[first + half] = fmaf(b, cosines[angle], a * sines[angle]);
}
