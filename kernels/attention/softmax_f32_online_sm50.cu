// softmax_f32_online_sm50: Y = softmax(X) over each row of X [rows, columns]. fp32 in and out. The step that makes attention one kernel:
// maximum and sum in one pass, the sum rescaled whenever the maximum grows; partial results of threads merge by the same rule.
// Shapes:  any rows, columns >= 1; row-major. A row of -inf alone gives 0.
// Tile:    one row a CTA of 256 threads; grid (rows).
// Smem:    8 warps * 2 * 4 B = 64 B.
// Regs:    at most 40 a thread.
// Memory:  X is read twice, the second time from the L2 where a row fits, Y is written once: 12 B an element. Memory bound.
// Sources: online softmax, Milakov and Gimelshein 2018, algorithm 3.
#include "common/types.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;

// Maximum and sum of exp(x - maximum) over some elements.
struct Partial {
    float maximum;
    float sum;
};

// What stands for no element; its maximum is finite, so that no difference of two infinities arises.
__device__ __forceinline__ Partial nothing() { return Partial{-3.0e38f, 0.0f}; }

__device__ __forceinline__ Partial merged(const Partial& a, const Partial& b) {
    const float maximum = fmaxf(a.maximum, b.maximum);
    return Partial{maximum, a.sum * expf(a.maximum - maximum) + b.sum * expf(b.maximum - maximum)};
}

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax_f32_online_sm50(const float* __restrict__ x,  // [rows, columns]
                            float* __restrict__ y,        // [rows, columns]
                            int rows, int columns) {
    __shared__ Partial warps[WARPS];
    const float* row = x + static_cast<size_t>(blockIdx.x) * columns;
    float* out = y + static_cast<size_t>(blockIdx.x) * columns;
    Partial part = nothing();
    for (int column = threadIdx.x; column < columns; column += THREADS) {
        const float value = row[column];
        if (value > negative_infinity()) part = merged(part, Partial{value, 1.0f});
    }
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2)
        part = merged(part, Partial{__shfl_xor_sync(0xffffffffu, part.maximum, lane), __shfl_xor_sync(0xffffffffu, part.sum, lane)});
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = part;
    __syncthreads();  // every warp's part is there
    Partial whole = nothing();
    for (int warp = 0; warp < WARPS; ++warp) whole = merged(whole, warps[warp]);  // the same order in every thread
    const float inverse = whole.sum > 0.0f ? 1.0f / whole.sum : 0.0f;
    for (int column = threadIdx.x; column < columns; column += THREADS) out[column] = expf(row[column] - whole.maximum) * inverse;
}
