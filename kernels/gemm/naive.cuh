// The body of the naive GEMM, for every element type: one thread computes one output.
#pragma once
#include "common/types.cuh"

template <typename Element>
__device__ __forceinline__ void gemm_naive(const Element* __restrict__ a,  // [M, K]
                                           const Element* __restrict__ b,  // [N, K]
                                           Element* __restrict__ d,        // [M, N]
                                           int M, int N, int K) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N) return;
    const Element* a_row = a + static_cast<size_t>(row) * K;
    const Element* b_row = b + static_cast<size_t>(col) * K;
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) sum = fmaf(to_f32(a_row[k]), to_f32(b_row[k]), sum);
    d[static_cast<size_t>(row) * N + col] = from_f32<Element>(sum);
}
