// rotary_f32_halves_sm50: rotary positional encoding: Y = X with each pair (x[i], x[i + D/2]) turned by its position's angle. fp32.
// X, Y [rows, columns] with columns = D even and position row % length (heads of one text follow each other); cosines and sines
// [length, D/2] are tables, so that positions of any scheme and precision fit.
// Shapes:  any rows >= 1, length >= 1, columns even. Halves of whole, aligned 16 bytes go by four.
// Tile:    256 quads of pairs a CTA of 256 threads; grid (cdiv(rows * cdiv(columns / 2, 4), 256)).
// Smem:    none.
// Regs:    at most 40 a thread.
// Memory:  X read and Y written once, tables from the L2: 16 B a pair for 6 FLOP. Memory bound.
// Sources: RoFormer, Su et al. 2021, section 3.4.2; pairs in halves as GPT-NeoX and Llama store them.
#include "common/types.cuh"

constexpr int THREADS = 256;
constexpr int QUAD = Vec16<float>::ELEMS;

struct Pair {
    float first;
    float second;
};

__device__ __forceinline__ Pair turned(float first, float second, float cosine, float sine) {
    return Pair{fmaf(first, cosine, -second * sine), fmaf(second, cosine, first * sine)};
}

extern "C" __global__ void __launch_bounds__(THREADS)
    rotary_f32_halves_sm50(const float* __restrict__ x,        // [rows, columns]
                           const float* __restrict__ cosines,  // [length, columns / 2]
                           const float* __restrict__ sines,    // [length, columns / 2]
                           float* __restrict__ y,              // [rows, columns]
                           int rows, int columns, int length) {
    using Vec = Vec16<float>;
    const int half = columns / 2;
    const unsigned quads = cdiv(half, QUAD);  // of a row
    const size_t first_quad = static_cast<size_t>(blockIdx.x) * THREADS;
    const size_t first_row = first_quad / quads;  // the CTA's; what follows needs no division of 64 bits
    const unsigned quad = static_cast<unsigned>(first_quad - first_row * quads) + threadIdx.x;
    const size_t row = first_row + quad / quads;
    if (row >= static_cast<size_t>(rows)) return;
    const int i = quad % quads * QUAD;
    const size_t angle = static_cast<size_t>(static_cast<unsigned>(row) % length) * half + i;
    const size_t first = row * columns + i;
    const size_t addresses = reinterpret_cast<size_t>(x) | reinterpret_cast<size_t>(y) | reinterpret_cast<size_t>(cosines) |
                             reinterpret_cast<size_t>(sines);
    if (half % QUAD == 0 && addresses % 16 == 0) {
        Vec a = *reinterpret_cast<const Vec*>(x + first);
        Vec b = *reinterpret_cast<const Vec*>(x + first + half);
        const Vec cosine = *reinterpret_cast<const Vec*>(cosines + angle);
        const Vec sine = *reinterpret_cast<const Vec*>(sines + angle);
#pragma unroll
        for (int j = 0; j < QUAD; ++j) {
            const Pair pair = turned(a.elems[j], b.elems[j], cosine.elems[j], sine.elems[j]);
            a.elems[j] = pair.first;
            b.elems[j] = pair.second;
        }
        *reinterpret_cast<Vec*>(y + first) = a;
        *reinterpret_cast<Vec*>(y + first + half) = b;
    } else {
        for (int j = 0; j < min(QUAD, half - i); ++j) {
            const Pair pair = turned(x[first + j], x[first + half + j], cosines[angle + j], sines[angle + j]);
            y[first + j] = pair.first;
            y[first + half + j] = pair.second;
        }
    }
}
