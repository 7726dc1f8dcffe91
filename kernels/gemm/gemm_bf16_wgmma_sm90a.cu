// gemm_bf16_wgmma_sm90a: D[M,N] = A[M,K] @ B[N,K]^T. bf16 in and out, fp32 accumulation. Row-major A, D; B stored [N,K].
// The ideas over mma.sync: operands straight from shared memory (wgmma), copies by an engine (TMA), warps with one job each,
// persistent CTAs whose results leave while the next tile is computed.
// Shapes:  any M; N % 8 == 0 and K % 8 == 0 (rows of tensor maps are multiples of 16 B). Tails: TMA writes zeros and clips stores.
// Tile:    GEMM_TILE_N 256: CTA 128 x 256 x 64, 2 consumer warpgroups of 64 x 256, 4 stages; GEMM_TILE_N 128, for small problems: CTA
//          64 x 128 x 64, 1 consumer warpgroup, 6 stages. 1 producer warpgroup; grid min(tiles, SMs), tiles in groups of 16 (8) rows.
// Smem:    GEMM_TILE_N 256: 4 x (128 + 256) * 64 * 2 B = 196,608 + results 2 * 2 * 64 * 64 * 2 B = 32,768 + barriers, rounded up to
//          1,024 -> 230,400 B; GEMM_TILE_N 128: 6 x 24,576 + 16,384 + barriers -> 164,864 B; limit 232,448.
// Regs:    GEMM_TILE_N 256: at most 168 a thread as launched; then 128 * (24 + 2 * 240) = 64,512 of 65,536 -> 1 CTA an SM, 384 threads;
//          GEMM_TILE_N 128: at most 240 a thread as launched, 256 threads.
// Intensity: tile 128*256/(128+256) = 85 FLOP/B from L2; whole 8192^3 problem 2,731 FLOP/B from HBM: compute bound.
#include "gemm/wgmma_sm90a.cuh"

#ifndef GEMM_TILE_N
#define GEMM_TILE_N 256
#endif

constexpr int CONSUMERS = GEMM_TILE_N == 256 ? 2 : 1;
constexpr int STAGES = GEMM_TILE_N == 256 ? 4 : 6;
constexpr int THREADS = GEMM_TILE_N == 256 ? 384 : 256;
constexpr int GROUP_M = GEMM_TILE_N == 256 ? 16 : 8;
using Gemm = GemmWgmmaSm90a<bf16, GEMM_TILE_N, CONSUMERS, STAGES, GROUP_M>;
static_assert(Gemm::THREADS == THREADS, "the warpgroups above");
static_assert(sizeof(Gemm::SharedStorage) == (GEMM_TILE_N == 256 ? 230400 : 164864), "the budget above");

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_bf16_wgmma_sm90a(const __grid_constant__ TensorMap map_a,  // of [M, K], boxes of 128 x 64
                          const __grid_constant__ TensorMap map_b,  // of [N, K], boxes of GEMM_TILE_N x 64
                          const __grid_constant__ TensorMap map_d,  // of [M, N], boxes of 64 x 64
                          int M, int N, int K) {
    extern __shared__ Gemm::SharedStorage shared[];
    Gemm::run(shared[0], map_a, map_b, map_d, M, N, K);
}
