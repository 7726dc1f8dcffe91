// The body of the sm_75 GEMM: no cp.async, so the next slice waits in registers while mma.sync works on the one in shared memory.
#pragma once
#include "gemm/mma_tile.cuh"
#include "gemm/raster.cuh"

template <typename Tiling, int GROUP_M>
struct GemmMmaSm75 {
    using Slice = typename Tiling::Slice;
    using Fragments = typename Tiling::Fragments;
    static constexpr int THREADS = Tiling::THREADS;
    static constexpr int ROWS_A_PASS = THREADS / CHUNKS;
    static constexpr int COPIES_A = Tiling::TILE_M / ROWS_A_PASS;
    static constexpr int COPIES_B = Tiling::TILE_N / ROWS_A_PASS;
    static_assert(ROWS_A_PASS % 8 == 0, "the swizzle of a thread's chunk is the same in each pass");

    union SharedStorage {
        Slice slice;
        typename Tiling::Staged staged;  // after the last slice
    };

    // This thread's chunks of one matrix: rows row, row + ROWS_A_PASS, ..., on their way from memory to the slice.
    template <int COPIES>
    struct Copies {
        const f16* source;  // its first row's chunk in the slice to read next
        size_t step;        // elements from one of its rows to the next
        int rows_left;      // from its first row to the end of the matrix
        int elems_left;     // from its chunk to the end of the row
        uint4 chunks[COPIES];

        __device__ __forceinline__ Copies(const f16* matrix, int row0, int rows, int K) {
            const int row = row0 + static_cast<int>(threadIdx.x) / CHUNKS;
            const int chunk = threadIdx.x % CHUNKS;
            source = matrix + static_cast<size_t>(row) * K + chunk * CHUNK;
            step = static_cast<size_t>(ROWS_A_PASS) * K;
            rows_left = rows - row;
            elems_left = K - chunk * CHUNK;
        }

        // Reads the next slice; zeros outside the matrix. K % 8 == 0: a chunk is in or out as a whole.
        __device__ __forceinline__ void fetch() {
#pragma unroll
            for (int i = 0; i < COPIES; ++i) {
                chunks[i] = uint4{0, 0, 0, 0};
                if (i * ROWS_A_PASS < rows_left && elems_left > 0) chunks[i] = *reinterpret_cast<const uint4*>(source + i * step);
            }
            source += SLICE_K;
            elems_left -= SLICE_K;
        }

        __device__ __forceinline__ void put(f16* target /* [rows, 64], swizzled */) const {
            char* to = reinterpret_cast<char*>(target) + swizzled(threadIdx.x / CHUNKS, threadIdx.x % CHUNKS);
#pragma unroll
            for (int i = 0; i < COPIES; ++i) *reinterpret_cast<uint4*>(to + i * ROWS_A_PASS * ROW_BYTES) = chunks[i];
        }
    };

    static __device__ __forceinline__ void multiply(typename Tiling::Accumulators& acc, const Fragments& fragments) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int m = 0; m < Tiling::MMAS_M; ++m)
#pragma unroll
                for (int n = 0; n < Tiling::MMAS_N; ++n)
                    mma_m16n8k8_f16(acc[m][n], fragments.a[m][half * 2], fragments.a[m][half * 2 + 1],
                                    fragments.b[n / 2][n % 2 * 2 + half]);
    }

    static __device__ __forceinline__ void run(SharedStorage& shared, const f16* __restrict__ a, const f16* __restrict__ b,
                                               f16* __restrict__ d, int M, int N, int K) {
        const Tile tile = tile_of<GROUP_M>(blockIdx.x, cdiv(M, Tiling::TILE_M), cdiv(N, Tiling::TILE_N));
        const int row0 = tile.m * Tiling::TILE_M;
        const int col0 = tile.n * Tiling::TILE_N;
        const typename Tiling::Lanes lanes;
        const unsigned slice = shared_address(&shared.slice);
        Copies<COPIES_A> copies_a(a, row0, M, K);
        Copies<COPIES_B> copies_b(b, col0, N, K);
        copies_a.fetch();
        copies_b.fetch();
        typename Tiling::Accumulators acc = {};
        for (int k0 = 0; k0 < K; k0 += SLICE_K) {
            copies_a.put(shared.slice.a);
            copies_b.put(shared.slice.b);
            __syncthreads();  // the slice is complete before anyone reads it
            if (k0 + SLICE_K < K) {
                copies_a.fetch();
                copies_b.fetch();
            }
#pragma unroll
            for (int step = 0; step < STEPS; ++step) {
                Fragments fragments;
                Tiling::load(fragments, slice, lanes, step);
                multiply(acc, fragments);
            }
            __syncthreads();  // all have read the slice before the next one, or the result, overwrites it
        }
        Tiling::store(shared.staged, acc, d, row0, col0, M, N);
    }
};
