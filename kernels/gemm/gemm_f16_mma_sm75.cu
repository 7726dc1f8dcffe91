// gemm_f16_mma_sm75: D[M,N] = A[M,K] @ B[N,K]^T. fp16 in and out, fp32 accumulation. Row-major A, D; B stored [N,K].
// The tensor cores of Turing: m16n8k8 instead of m16n8k16, and slices that pass through registers, as there is no cp.async.
// Shapes:  any M; N % 8 == 0 and K % 8 == 0 (16-byte copies); bases 16-byte aligned. Tails: zeros are copied, stores are clipped.
// Tile:    CTA 128 x 128 x 64, 8 warps of 64 x 32; grid cdiv(M, 128) * cdiv(N, 128), in groups of 8 rows of tiles.
// Smem:    one slice (128 + 128) * 64 * 2 B = 32,768 B, and the staged result 8 * 64 * (32 + 8) * 2 B = 40,960 B in the same place
//          -> 40,960 B; limit without opt-in 49,152.
// Regs:    at most 192 a thread; 256 * 192 = 49,152 of 65,536 -> 1 CTA an SM.
// Intensity: tile 128*128/(128+128) = 64 FLOP/B from L2.
#include "gemm/mma_sm75.cuh"

constexpr int TILE_M = 128;
constexpr int TILE_N = 128;
constexpr int THREADS = 256;
constexpr int GROUP_M = 8;
using Tiling = MmaTile<f16, TILE_M, TILE_N, 64, 32>;
using Gemm = GemmMmaSm75<Tiling, GROUP_M>;
static_assert(Tiling::THREADS == THREADS, "the warps above");
static_assert(sizeof(Gemm::SharedStorage) == 40960, "the budget above");

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_f16_mma_sm75(const f16* __restrict__ a,  // [M, K]
                      const f16* __restrict__ b,  // [N, K]
                      f16* __restrict__ d,        // [M, N]
                      int M, int N, int K) {
    __shared__ Gemm::SharedStorage shared;
    Gemm::run(shared, a, b, d, M, N, K);
}
