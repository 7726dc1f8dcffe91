// gemm_f16_naive_sm50: D[M,N] = A[M,K] @ B[N,K]^T. fp16 in and out, fp32 accumulation. Row-major A, D; B stored [N,K].
// The oracle of the ladder: nothing but the definition, so that it works everywhere.
// Shapes:  any M, N, K >= 1; any alignment. Tails: threads outside D return at once.
// Tile:    16 x 16 threads, one output each; grid (cdiv(N, 16), cdiv(M, 16)).
// Smem:    none.
// Regs:    at most 64 a thread; 256 * 64 = 16,384 of 65,536 -> 4 CTAs an SM.
// Intensity: 2 FLOP for 2 loads of 2 bytes from cache: bound by L1.
#include "gemm/naive.cuh"

constexpr int TILE_M = 16;
constexpr int TILE_N = 16;
constexpr int THREADS = 256;
static_assert(TILE_M * TILE_N == THREADS, "one thread computes one output");

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    gemm_f16_naive_sm50(const f16* __restrict__ a,  // [M, K]
                        const f16* __restrict__ b,  // [N, K]
                        f16* __restrict__ d,        // [M, N]
                        int M, int N, int K) {
    gemm_naive<f16>(a, b, d, M, N, K);
}
