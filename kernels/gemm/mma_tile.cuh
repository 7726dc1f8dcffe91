// What the mma.sync kernels share: tiles of shared memory, fragments read by ldmatrix, the way results leave. A CTA computes a
// TILE_M x TILE_N tile of D, a warp WARP_M x WARP_N of it, in slices of 64 along k.
#pragma once
#include "common/ptx_mma.cuh"

constexpr int SLICE_K = 64;                     // a row of a slice is 128 bytes: all banks once
constexpr int CHUNK = 8;                        // elements in 16 bytes: one copy, one row of an ldmatrix matrix
constexpr int CHUNKS = SLICE_K / CHUNK;
constexpr int ROW_BYTES = SLICE_K * 2;
constexpr int MMA_K = 16;
constexpr int STEPS = SLICE_K / MMA_K;

// Byte offset of chunk `chunk` of row `row` in a slice: XOR with the row spreads a column of chunks over all banks.
__device__ __forceinline__ int swizzled(int row, int chunk) { return row * ROW_BYTES + ((chunk ^ (row & 7)) << 4); }

template <typename Element, int TILE_M_, int TILE_N_, int WARP_M_, int WARP_N_>
struct MmaTile {
    static constexpr int TILE_M = TILE_M_;
    static constexpr int TILE_N = TILE_N_;
    static constexpr int WARP_M = WARP_M_;
    static constexpr int WARP_N = WARP_N_;
    static constexpr int WARPS_N = TILE_N / WARP_N;
    static constexpr int THREADS = TILE_M / WARP_M * WARPS_N * 32;
    static constexpr int MMAS_M = WARP_M / 16;
    static constexpr int MMAS_N = WARP_N / 8;
    static constexpr int PAD = 8;  // elements: rows of the staged result start 4 banks apart
    static constexpr int STAGED_ROW = WARP_N + PAD;
    static_assert(WARP_M % 16 == 0 && WARP_N % 16 == 0, "one ldmatrix.x4 reads 16 rows");

    struct Slice {
        alignas(1024) Element a[TILE_M * SLICE_K];  // [TILE_M, 64], swizzled
        alignas(1024) Element b[TILE_N * SLICE_K];  // [TILE_N, 64], swizzled
    };
    struct Staged {
        alignas(16) Element warps[THREADS / 32][WARP_M * STAGED_ROW];  // [WARP_M, WARP_N + PAD] each
    };

    struct Fragments {
        unsigned a[MMAS_M][4];
        unsigned b[MMAS_N / 2][4];  // two n8 columns of MMAs each: k 0-7 and 8-15 of the first, then of the second
    };

    // Where this lane's addresses for ldmatrix start in a slice; a step along k is an XOR, as the offsets fill whole rows.
    struct Lanes {
        int a;
        int b;
        __device__ __forceinline__ Lanes() {
            const int lane = threadIdx.x % 32;
            const int warp = threadIdx.x / 32;
            a = swizzled(warp / WARPS_N * WARP_M + lane % 16, lane / 16);
            b = swizzled(warp % WARPS_N * WARP_N + lane / 16 * 8 + lane % 8, lane / 8 % 2);
        }
    };

    static __device__ __forceinline__ void load(Fragments& fragments, unsigned slice /* shared */, const Lanes& lanes, int step) {
        const unsigned a = slice + static_cast<unsigned>(lanes.a ^ step * 32);
        const unsigned b = slice + sizeof(Slice::a) + static_cast<unsigned>(lanes.b ^ step * 32);
#pragma unroll
        for (int m = 0; m < MMAS_M; ++m) ldmatrix_x4(fragments.a[m], a + m * 16 * ROW_BYTES);
#pragma unroll
        for (int n = 0; n < MMAS_N / 2; ++n) ldmatrix_x4(fragments.b[n], b + n * 16 * ROW_BYTES);
    }

    using Accumulators = float[MMAS_M][MMAS_N][4];

    // Writes the CTA's tile through shared memory in 16-byte pieces, each warp its own part; N % 8 == 0. All reads of slices and all
    // copies into them are done.
    static __device__ __forceinline__ void store(Staged& staged, const Accumulators& acc, Element* __restrict__ d /* [M, N] */, int row0,
                                                 int col0, int M, int N) {
        const int lane = threadIdx.x % 32;
        const int warp = threadIdx.x / 32;
        Element* part = staged.warps[warp];
#pragma unroll
        for (int m = 0; m < MMAS_M; ++m)
#pragma unroll
            for (int n = 0; n < MMAS_N; ++n)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    Element* to = part + (m * 16 + half * 8 + lane / 4) * STAGED_ROW + n * 8 + lane % 4 * 2;
                    *reinterpret_cast<unsigned*>(to) = pack2<Element>(acc[m][n][half * 2], acc[m][n][half * 2 + 1]);
                }
        __syncwarp();  // the warp's part is complete
        constexpr int LANES_PER_ROW = WARP_N / CHUNK;
        const int col = lane % LANES_PER_ROW * CHUNK;
        const int d_col = col0 + warp % WARPS_N * WARP_N + col;
        if (d_col >= N) return;
#pragma unroll
        for (int row = lane / LANES_PER_ROW; row < WARP_M; row += 32 / LANES_PER_ROW) {
            const int d_row = row0 + warp / WARPS_N * WARP_M + row;
            if (d_row < M)
                *reinterpret_cast<uint4*>(d + static_cast<size_t>(d_row) * N + d_col) =
                    *reinterpret_cast<const uint4*>(part + row * STAGED_ROW + col);
        }
    }
};
