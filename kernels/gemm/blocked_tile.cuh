// What the register-blocked fp32 kernels share: which part of the tile a thread holds, the order of its FFMA, the way results leave.
#pragma once
#include "common/types.cuh"

enum class Layout { NT, NN };  // B stored [N, K] or [K, N]

// A tile of TILE_M x (384 - TILE_M), 16 x 16 threads of 8 x 16 or 16 x 8: 24 operands, in runs of float4, for 128 FFMA.
template <int TILE_M_>
struct BlockedTile {
    static constexpr int TILE_M = TILE_M_;
    static constexpr int TILE_N = 384 - TILE_M;
    static constexpr int TILE_K = 16;
    static constexpr int THREADS = 256;
    static constexpr int VEC = 4;                // floats in 16 bytes
    static constexpr int RUN = 64;               // from one run of a thread to its next
    static constexpr int MICRO_M = TILE_M / 16;  // rows of D of one thread
    static constexpr int MICRO_N = TILE_N / 16;
    static_assert(MICRO_M * MICRO_N == 128, "registers");

    struct Fragments {
        float a[MICRO_M];
        float b[MICRO_N];
    };
    using Accumulators = float[MICRO_M][MICRO_N];

    // A warp covers 4 x 8 of the 16 x 16 threads, neighbours below each other: half a warp reads 128 bytes of B at once.
    struct Place {
        int row;
        int col;
        __device__ __forceinline__ Place() {
            const int lane = threadIdx.x % 32;
            const int warp = threadIdx.x / 32;
            row = (warp / 2 * 4 + lane / 16 * 2 + lane % 2) * VEC;
            col = (warp % 2 * 8 + lane / 2 % 8) * VEC;
        }
    };

    // Serpentine along the shorter side: one operand stays in the reuse cache, the other two alternate between register banks.
    static __device__ __forceinline__ void multiply(Accumulators& acc, const Fragments& fragments, int odd) {
        constexpr int SHORT = MICRO_M < MICRO_N ? MICRO_M : MICRO_N;
        constexpr int LONG = MICRO_M < MICRO_N ? MICRO_N : MICRO_M;
#pragma unroll
        for (int i = 0; i < LONG; ++i)
#pragma unroll
            for (int j = 0; j < SHORT; ++j) {
                const int turn = i % 2 == odd ? SHORT - 1 - j : j;
                const int m = MICRO_M < MICRO_N ? turn : i;
                const int n = MICRO_M < MICRO_N ? i : turn;
                acc[m][n] = fmaf(fragments.a[m], fragments.b[n], acc[m][n]);
            }
    }

    // Writes this thread's sums; 16 bytes at once where rows of D are whole vectors.
    static __device__ __forceinline__ void store(float* __restrict__ d /* [M, N] */, const Accumulators& acc, int row0, int col0, int M,
                                                 int N) {
        // A factor of 1 that the compiler does not know, as M is positive: it frees the accumulators from the aligned groups of
        // registers that 16-byte stores want, and the FFMA from clashes of register banks.
        const float one = __int_as_float(0x3f800000 | (M >> 31));
        const bool vectors = N % VEC == 0;
#pragma unroll
        for (int m = 0; m < MICRO_M; ++m) {
            const int row = row0 + m / VEC * RUN + m % VEC;
            if (row >= M) continue;
#pragma unroll
            for (int run = 0; run < MICRO_N / VEC; ++run) {
                const int col = col0 + run * RUN;
                float* to = d + static_cast<size_t>(row) * N + col;
                const float* from = acc[m] + run * VEC;
                if (vectors) {
                    if (col < N) *reinterpret_cast<float4*>(to) = float4{one * from[0], one * from[1], one * from[2], one * from[3]};
                } else {
#pragma unroll
                    for (int j = 0; j < VEC; ++j)
                        if (col + j < N) to[j] = one * from[j];
                }
            }
        }
    }
};
