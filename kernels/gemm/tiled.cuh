// The body of the tiled GEMM, for every element type: a CTA computes a TILE_M x TILE_N tile of D from slices of A and B in
// shared memory; each thread keeps an 8 x 8 part of it in registers.
#pragma once
#include "common/types.cuh"

template <typename Element, int TILE_M, int TILE_N, int TILE_K, int THREADS>
struct GemmTiled {
    static constexpr int VEC = Vec16<Element>::ELEMS;
    static constexpr int MICRO = 8;          // rows and columns of D held by one thread, as two runs of HALF
    static constexpr int HALF = MICRO / 2;   // four floats: one 16-byte read of shared memory
    static constexpr int PAD = 4;            // spreads the transposed stores over the banks and keeps rows 16-byte aligned
    static constexpr int THREADS_N = TILE_N / MICRO;
    static constexpr int THREADS_M = TILE_M / MICRO;
    static_assert(THREADS_M * THREADS_N == THREADS, "every thread owns one 8 x 8 part of the tile");
    static_assert(TILE_K % VEC == 0, "rows of a slice are read in 16-byte vectors");
    static_assert(TILE_M * TILE_K % (THREADS * VEC) == 0 && TILE_N * TILE_K % (THREADS * VEC) == 0,
                  "all threads load the same number of vectors");

    struct SharedStorage {
        alignas(16) float a[TILE_K][TILE_M + PAD];  // transposed, fp32
        alignas(16) float b[TILE_K][TILE_N + PAD];  // transposed, fp32
    };

    // Copies source[row0 .. row0+ROWS, k0 .. k0+TILE_K] into dest transposed; zeros outside [rows, K].
    template <int ROWS>
    static __device__ __forceinline__ void load_slice(const Element* __restrict__ source,  // [rows, K]
                                                      float (*dest)[ROWS + PAD],           // [TILE_K][ROWS + PAD]
                                                      int row0, int k0, int rows, int K, bool vectors) {
        constexpr int VECS_PER_ROW = TILE_K / VEC;
#pragma unroll
        for (int i = 0; i < ROWS * TILE_K / (THREADS * VEC); ++i) {
            const int slot = static_cast<int>(threadIdx.x) + i * THREADS;
            const int row = slot / VECS_PER_ROW;
            const int k = slot % VECS_PER_ROW * VEC;
            const Element* from = source + static_cast<size_t>(row0 + row) * K + k0 + k;
            float values[VEC];
            if (vectors && row0 + row < rows && k0 + k < K) {
                load_vec16(from, values);
            } else {
#pragma unroll
                for (int j = 0; j < VEC; ++j) values[j] = row0 + row < rows && k0 + k + j < K ? to_f32(from[j]) : 0.0f;
            }
#pragma unroll
            for (int j = 0; j < VEC; ++j) dest[k + j][row] = values[j];
        }
    }

    // acc += a-column x b-row for each k of the slice.
    static __device__ __forceinline__ void multiply(const SharedStorage& shared, int row, int col, float (&acc)[MICRO][MICRO]) {
#pragma unroll
        for (int k = 0; k < TILE_K; ++k) {
            float a_part[MICRO];
            float b_part[MICRO];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                load_vec16(&shared.a[k][row + half * TILE_M / 2], a_part + half * HALF);
                load_vec16(&shared.b[k][col + half * TILE_N / 2], b_part + half * HALF);
            }
#pragma unroll
            for (int m = 0; m < MICRO; ++m)
#pragma unroll
                for (int n = 0; n < MICRO; ++n) acc[m][n] = fmaf(a_part[m], b_part[n], acc[m][n]);
        }
    }

    static __device__ __forceinline__ void store(Element* __restrict__ d,  // [M, N]
                                                 const float (&acc)[MICRO][MICRO], int row0, int col0, int M, int N) {
#pragma unroll
        for (int m = 0; m < MICRO; ++m) {
            const int row = row0 + m / HALF * (TILE_M / 2) + m % HALF;
            if (row >= M) continue;
#pragma unroll
            for (int n = 0; n < MICRO; ++n) {
                const int col = col0 + n / HALF * (TILE_N / 2) + n % HALF;
                if (col < N) d[static_cast<size_t>(row) * N + col] = from_f32<Element>(acc[m][n]);
            }
        }
    }

    static __device__ __forceinline__ void run(SharedStorage& shared, const Element* __restrict__ a, const Element* __restrict__ b,
                                               Element* __restrict__ d, int M, int N, int K) {
        const int tile_row = blockIdx.y * TILE_M;
        const int tile_col = blockIdx.x * TILE_N;
        const int row = static_cast<int>(threadIdx.x) / THREADS_N * HALF;
        const int col = static_cast<int>(threadIdx.x) % THREADS_N * HALF;
        // Rows start on 16-byte boundaries only if K is a multiple of the vector; the bases come from cuMemAlloc (256 bytes).
        const bool vectors = K % VEC == 0;
        float acc[MICRO][MICRO] = {};
        for (int k0 = 0; k0 < K; k0 += TILE_K) {
            load_slice<TILE_M>(a, shared.a, tile_row, k0, M, K, vectors);
            load_slice<TILE_N>(b, shared.b, tile_col, k0, N, K, vectors);
            __syncthreads();  // the slice is complete before anyone reads it
            multiply(shared, row, col, acc);
            __syncthreads();  // all have read the slice before the next one overwrites it
        }
        store(d, acc, tile_row + row, tile_col + col, M, N);
    }
};
