// gemm_f32_tiled_sm50: D[M,N] = A[M,K] @ B[N,K]^T. fp32 in and out, fp32 accumulation. Row-major A, D; B stored [N,K].
// One idea more than naive: slices of A and B are staged in shared memory with 16-byte loads and reused from registers.
// Shapes:  any M, N, K >= 1; bases 16-byte aligned. Tails: rows and k outside are zero-filled, stores are clipped; 16-byte
//          loads only where K is a multiple of 4, else element by element.
// Tile:    CTA 128 x 128 x 16; 16 x 16 threads of 8 x 8 outputs; grid (cdiv(N, 128), cdiv(M, 128)).
// Smem:    2 x 16 * (128 + 4) * 4 B = 16,896 B; limit without opt-in 49,152.
// Regs:    at most 128 a thread; 256 * 128 = 32,768 of 65,536 -> 2 CTAs an SM.
// Intensity: tile 128*128/(128+128) = 64 FLOP per element, 16 FLOP/B from L2.
#include "gemm/tiled.cuh"

constexpr int TILE_M = 128;
constexpr int TILE_N = 128;
constexpr int TILE_K = 16;
constexpr int THREADS = 256;
using Gemm = GemmTiled<float, TILE_M, TILE_N, TILE_K, THREADS>;
static_assert(sizeof(Gemm::SharedStorage) == 16896, "the budget above");
static_assert(sizeof(Gemm::SharedStorage) <= 49152, "static shared memory of every architecture");

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    gemm_f32_tiled_sm50(const float* __restrict__ a,  // [M, K]
                        const float* __restrict__ b,  // [N, K]
                        float* __restrict__ d,        // [M, N]
                        int M, int N, int K) {
    __shared__ Gemm::SharedStorage shared;
    Gemm::run(shared, a, b, d, M, N, K);
}
