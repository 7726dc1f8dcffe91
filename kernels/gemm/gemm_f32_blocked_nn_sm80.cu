// gemm_f32_blocked_nn_sm80: D[M,N] = A[M,K] @ B[K,N]. fp32 in and out, fp32 accumulation. Row-major A, D; B stored [K,N].
// The ideas over tiled: 8 x 16 sums a thread, operands read one step ahead, cp.async into a ring of slices, an order of FFMA that
// suits the register banks.
// Shapes:  any M and K; N % 4 == 0 (16-byte copies of B); bases 16-byte aligned. Tails: copies of size 0 write zeros, stores are clipped, 16 bytes wide only where
//          N is a multiple of 4.
// Tile:    CTA 128 x 256 x 16, 256 threads of 8 x 16; 3 stages; grid cdiv(M, 128) * cdiv(N, 256), in groups of 8 rows of tiles.
// Smem:    3 x 16 * ((128 + 4) + (256 + 4)) * 4 B = 75,264 B; opt-in.
// Regs:    at most 255 a thread; 256 * 255 = 65,280 of 65,536 -> 1 CTA an SM.
// Intensity: tile 128*256/(128+256) = 43 FLOP/B from L2; 128 FFMA for 6 16-byte reads of shared memory.
#include "gemm/blocked_sm80.cuh"

constexpr int THREADS = 256;
constexpr int GROUP_M = 8;
struct Tuning {
    static constexpr int TILE_M = 128;
    static constexpr int BURSTS = 8;       // parts in which the copies of a slice are issued,
    static constexpr int BURST_EVERY = 1;  // so many steps along k apart
    static constexpr int PIN_EVERY = 2;    // steps along k whose FFMA stay together
    static constexpr bool B_FIRST = true;
};
using Gemm = GemmBlockedSm80<Layout::NN, Tuning, GROUP_M>;
static_assert(Gemm::THREADS == THREADS && sizeof(Gemm::SharedStorage) == 75264, "the budget above");

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_f32_blocked_nn_sm80(const float* __restrict__ a,  // [M, K]
                          const float* __restrict__ b,  // [K, N]
                          float* __restrict__ d,        // [M, N]
                          int M, int N, int K) {
    extern __shared__ Gemm::SharedStorage shared[];
    Gemm::run(shared[0], a, b, d, M, N, K);
}
