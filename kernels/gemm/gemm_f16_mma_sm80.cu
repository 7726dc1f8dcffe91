// gemm_f16_mma_sm80: D[M,N] = A[M,K] @ B[N,K]^T. fp16 in and out, fp32 accumulation. Row-major A, D; B stored [N,K].
// One idea more than tiled: tensor cores (mma.sync), fed by ldmatrix from a ring of slices that cp.async fills meanwhile.
// Shapes:  any M; N % 8 == 0 and K % 8 == 0 (16-byte copies); bases 16-byte aligned. Tails: copies of size 0 write zeros, stores are
//          clipped.
// Tile:    GEMM_TILE_N 256: CTA 128 x 256 x 64, 8 warps of 64 x 64, 3 stages; TILE_N 64, for small problems and for GPUs with less than
//          144 KB of shared memory: CTA 128 x 64 x 64, 4 warps of 64 x 32, 4 stages. Grid cdiv(M, 128) * cdiv(N, TILE_N), in groups of
//          8 rows of tiles.
// Smem:    TILE_N 256: 3 x (128 + 256) * 64 * 2 B = 147,456 B; TILE_N 64: 4 x (128 + 64) * 64 * 2 B = 98,304 B; opt-in.
// Regs:    at most 255 a thread; 256 * 255 = 65,280 of 65,536 -> 1 CTA an SM (TILE_N 64: 128 threads).
// Intensity: tile 128*256/(128+256) = 85 FLOP/B from L2; bound by shared memory: 64 x 64 warps read 83 and copies write 31 of
//          128 B a clock and SM at the full rate of mma.sync.
#include "gemm/mma_sm80.cuh"

#ifndef GEMM_TILE_N
#define GEMM_TILE_N 256
#endif

constexpr int TILE_M = 128;
constexpr int WARP_N = GEMM_TILE_N == 256 ? 64 : 32;
constexpr int STAGES = GEMM_TILE_N == 256 ? 3 : 4;
constexpr int THREADS = GEMM_TILE_N == 256 ? 256 : 128;
constexpr int GROUP_M = 8;
using Tiling = MmaTile<f16, TILE_M, GEMM_TILE_N, 64, WARP_N>;
using Gemm = GemmMmaSm80<f16, Tiling, STAGES, GROUP_M>;
static_assert(Tiling::THREADS == THREADS, "the warps above");
static_assert(sizeof(Gemm::SharedStorage) == (GEMM_TILE_N == 256 ? 147456 : 98304), "the budget above");

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_f16_mma_sm80(const f16* __restrict__ a,  // [M, K]
                       const f16* __restrict__ b,  // [N, K]
                       f16* __restrict__ d,        // [M, N]
                       int M, int N, int K) {
    extern __shared__ Gemm::SharedStorage shared[];
    Gemm::run(shared[0], a, b, d, M, N, K);
}
