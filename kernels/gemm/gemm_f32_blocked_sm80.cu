// gemm_f32_blocked_sm80: D[M,N] = A[M,K] @ B[N,K]^T. fp32 in and out, fp32 accumulation. Row-major A, D; B stored [N,K].
// The ideas over tiled: 8 x 16 sums a thread, operands read one step ahead, cp.async into a ring of slices, an order of FFMA that
// suits the register banks.
// Shapes:  any M, N, K >= 1; bases 16-byte aligned. Tails: copies of size 0 write zeros, stores are clipped, 16 bytes wide only where
//          N is a multiple of 4.
// Tile:    CTA 256 x 128 x 16, 256 threads of 16 x 8; 3 stages; grid cdiv(M, 256) * cdiv(N, 128), in groups of 8 rows of tiles.
// Smem:    3 x 16 * ((256 + 4) + (128 + 4)) * 4 B = 75,264 B; opt-in.
// Regs:    at most 255 a thread; 256 * 255 = 65,280 of 65,536 -> 1 CTA an SM. For 10.0 and newer it would spill 60 to 140 bytes (ptxas
//          13.0 and 13.5): there gemm_f32_blocked_sm50 takes its place.
// Intensity: tile 256*128/(256+128) = 43 FLOP/B from L2; 128 FFMA for 6 16-byte reads of shared memory.
#include "gemm/blocked_sm80.cuh"

constexpr int THREADS = 256;
constexpr int GROUP_M = 8;
struct Tuning {
    static constexpr int TILE_M = 256;
    static constexpr int BURSTS = 6;       // parts in which the copies of a slice are issued,
    static constexpr int BURST_EVERY = 2;  // so many steps along k apart
    static constexpr int PIN_EVERY = 1;    // steps along k whose FFMA stay together
    static constexpr bool B_FIRST = false;
};
using Gemm = GemmBlockedSm80<Layout::NT, Tuning, GROUP_M>;
static_assert(Gemm::THREADS == THREADS && sizeof(Gemm::SharedStorage) == 75264, "the budget above");

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_f32_blocked_sm80(const float* __restrict__ a,  // [M, K]
                          const float* __restrict__ b,  // [N, K]
                          float* __restrict__ d,        // [M, N]
                          int M, int N, int K) {
    extern __shared__ Gemm::SharedStorage shared[];
    Gemm::run(shared[0], a, b, d, M, N, K);
}
