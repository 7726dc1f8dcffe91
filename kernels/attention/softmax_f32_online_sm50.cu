// softmax_f32_online_sm50: Y = softmax(X) over each row of X [rows, columns]. fp32 in and out. The step that makes attention one kernel:
// maximum and sum in one pass, the sum rescaled whenever the maximum grows; partial results of threads merge by the same rule.
// Shapes:  any rows, columns >= 1; row-major. Rows of whole, aligned 16 bytes are read by four. A row of -inf alone gives 0.
// Tile:    one row a CTA of 256 threads; grid (rows).
// Smem:    8 warps * 2 * 4 B = 64 B.
// Regs:    at most 48 a thread.
// Memory:  X is read twice, the second time from the L2 where a row fits, Y is written once: 8 B an element of device memory, 12 B
//          beyond that, for two exponentials. Memory bound on rows of thousands; short ones by the reduction over the CTA.
// Sources: online softmax, Milakov and Gimelshein 2018, algorithm 3.
#include "common/types.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int VEC = Vec16<float>::ELEMS;

// Maximum and sum of exp(x - maximum) over some elements.
struct Partial {
    float maximum;
    float sum;
};

// What stands for no element: its maximum is the smallest finite one, so that no difference of two infinities arises.
__device__ __forceinline__ Partial nothing() { return Partial{-3.402823466e38f, 0.0f}; }

// The sum of `part` relative to a larger maximum: sums of the same maximum add up.
__device__ __forceinline__ float rescaled(const Partial& part, float maximum) { return part.sum * expf(part.maximum - maximum); }

// Takes `values` in: one rescaling for all of them, and only where they hold a new maximum.
template <int COUNT>
__device__ __forceinline__ void take(Partial& part, const float (&values)[COUNT]) {
    float maximum = part.maximum;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) maximum = fmaxf(maximum, values[i]);
    if (maximum > part.maximum) part = Partial{maximum, rescaled(part, maximum)};
#pragma unroll
    for (int i = 0; i < COUNT; ++i) part.sum += expf(values[i] - part.maximum);
}

__device__ __forceinline__ Partial over_the_warp(const Partial& part) {
    float maximum = part.maximum;
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, lane));
    float sum = rescaled(part, maximum);
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    return Partial{maximum, sum};
}

__device__ __forceinline__ Partial over_the_cta(const Partial& part, Partial (&warps)[WARPS]) {
    const Partial own = over_the_warp(part);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = own;
    __syncthreads();  // every warp's part is there
    Partial whole = nothing();
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) whole.maximum = fmaxf(whole.maximum, warps[warp].maximum);
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) whole.sum += rescaled(warps[warp], whole.maximum);  // the same order in every thread
    return whole;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax_f32_online_sm50(const float* __restrict__ x,  // [rows, columns]
                            float* __restrict__ y,        // [rows, columns]
                            int rows, int columns) {
    __shared__ Partial warps[WARPS];
    const size_t start = static_cast<size_t>(blockIdx.x) * columns;
    const float* row = x + start;
    float* out = y + start;
    const bool by_four = columns % VEC == 0 && (reinterpret_cast<size_t>(x) | reinterpret_cast<size_t>(y)) % 16 == 0;
    const int vecs = by_four ? columns / VEC : 0;
    Partial part = nothing();
    for (int vec = threadIdx.x; vec < vecs; vec += THREADS) {
        float values[VEC];
        load_vec16(row + vec * VEC, values);
        take(part, values);
    }
    for (int column = vecs * VEC + threadIdx.x; column < columns; column += THREADS) take(part, {row[column]});
    const Partial whole = over_the_cta(part, warps);
    const float inverse = whole.sum > 0.0f ? 1.0f / whole.sum : 0.0f;
    for (int vec = threadIdx.x; vec < vecs; vec += THREADS) {
        Vec16<float> weights = reinterpret_cast<const Vec16<float>*>(row)[vec];
#pragma unroll
        for (int i = 0; i < VEC; ++i) weights.elems[i] = expf(weights.elems[i] - whole.maximum) * inverse;
        reinterpret_cast<Vec16<float>*>(out)[vec] = weights;
    }
    for (int column = vecs * VEC + threadIdx.x; column < columns; column += THREADS)
        out[column] = expf(row[column] - whole.maximum) * inverse;
}
