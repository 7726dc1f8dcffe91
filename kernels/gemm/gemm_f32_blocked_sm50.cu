// gemm_f32_blocked_sm50: D[M,N] = A[M,K] @ B[N,K]^T. fp32 in and out, fp32 accumulation. Row-major A, D; B stored [N,K].
// The ideas over tiled: 16 x 8 sums a thread, operands read one step ahead, two buffers, the next slice on its way in registers, an
// order of FFMA that suits the register banks.
// Shapes:  any M and N; K % 4 == 0 (16-byte loads); bases 16-byte aligned. Tails: zeros are copied, stores are clipped, 16 bytes wide
//          only where N is a multiple of 4.
// Tile:    CTA 256 x 128 x 16, 256 threads of 16 x 8; grid cdiv(M, 256) * cdiv(N, 128), in groups of 8 rows of tiles.
// Smem:    2 x 16 * (256 + 128) * 4 B = 49,152 B; limit without opt-in 49,152.
// Regs:    at most 255 a thread; 256 * 255 = 65,280 of 65,536 -> 1 CTA an SM.
// Intensity: tile 256*128/(256+128) = 85 FLOP per element, 43 FLOP/B from L2; 128 FFMA for 6 16-byte reads of shared memory.
#include "gemm/blocked_sm50.cuh"

constexpr int TILE_M = 256;
constexpr int THREADS = 256;
constexpr int GROUP_M = 8;
using Gemm = GemmBlockedSm50<TILE_M, GROUP_M>;
static_assert(Gemm::THREADS == THREADS && sizeof(Gemm::SharedStorage) == 49152, "the budget above");

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_f32_blocked_sm50(const float* __restrict__ a,  // [M, K]
                          const float* __restrict__ b,  // [N, K]
                          float* __restrict__ d,        // [M, N]
                          int M, int N, int K) {
    __shared__ Gemm::SharedStorage shared;
    Gemm::run(shared, a, b, d, M, N, K);
}
