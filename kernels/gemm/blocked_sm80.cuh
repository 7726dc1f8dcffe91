// The body of the fp32 GEMM of sm_80: cp.async fills a ring of slices, a few copies at each step along k, while FFMA work on the one
// before. What Tuning holds changes nothing but the order of instructions; it was found by trying (docs/gemm_ladder.md).
#pragma once
#include "common/ptx_mma.cuh"
#include "gemm/blocked_tile.cuh"
#include "gemm/raster.cuh"

template <Layout LAYOUT, typename Tuning, int GROUP_M>
struct GemmBlockedSm80 : BlockedTile<Tuning::TILE_M> {
    using Tiling = BlockedTile<Tuning::TILE_M>;
    using Fragments = typename Tiling::Fragments;
    static constexpr int TILE_M = Tiling::TILE_M;
    static constexpr int TILE_N = Tiling::TILE_N;
    static constexpr int TILE_K = Tiling::TILE_K;
    static constexpr int THREADS = Tiling::THREADS;
    static constexpr int VEC = Tiling::VEC;
    static constexpr int STAGES = 3;
    static constexpr int PAD = 4;  // keeps rows 16-byte aligned and spreads transposed copies over the banks

    struct Slice {
        alignas(16) float a[TILE_K][TILE_M + PAD];
        alignas(16) float b[TILE_K][TILE_N + PAD];
    };
    struct SharedStorage {
        Slice stages[STAGES];
    };

    // Copies [rows, K] of K-major memory into [k][row] of a slice, 4 bytes at a time: 16 neighbouring threads take one row.
    template <int ROWS>
    struct Transposing {
        static constexpr int PASS_ROWS = THREADS / TILE_K;
        static constexpr int COPIES = ROWS / PASS_ROWS;
        const char* source;  // this thread's element of its first row
        size_t step_bytes;   // to its next row
        int rows_left;       // from its first row to the end of the matrix
        int k_left;          // from its k to the end of the row
        unsigned target;     // byte offset of its first element in the slice's matrix

        __device__ __forceinline__ Transposing(const float* matrix, int row0, int rows, int K) {
            const int k = threadIdx.x % TILE_K;
            const int row = threadIdx.x / TILE_K;
            source = reinterpret_cast<const char*>(matrix + static_cast<size_t>(row0 + row) * K + k);
            step_bytes = static_cast<size_t>(PASS_ROWS) * K * sizeof(float);
            rows_left = rows - row0 - row;
            k_left = K - k;
            target = (k * (ROWS + PAD) + row) * sizeof(float);
        }
        // Copies number `first` to `first` + `count`; zeros outside the matrix.
        __device__ __forceinline__ void issue(unsigned matrix /* shared */, int first, int count) const {
            const int left = k_left > 0 ? rows_left : 0;
#pragma unroll
            for (int i = 0; i < COPIES; ++i)
                if (i >= first && i < first + count)
                    cp_async_4(matrix + target + i * PASS_ROWS * static_cast<unsigned>(sizeof(float)), source + i * step_bytes,
                               left > i * PASS_ROWS ? 4 : 0);
        }
        __device__ __forceinline__ void next_slice() {
            source += TILE_K * sizeof(float);
            k_left -= TILE_K;
        }
    };

    // Copies [TILE_K, columns] as it lies, 16 bytes at a time; N % 4 == 0: a vector is in or out as a whole.
    template <int COLUMNS>
    struct Straight {
        static constexpr int VECS = COLUMNS / VEC;
        static constexpr int PASS_K = THREADS / VECS;
        static constexpr int COPIES = TILE_K / PASS_K;
        const char* source;
        size_t step_bytes;
        int k_left;  // not positive where the columns are outside
        unsigned target;

        __device__ __forceinline__ Straight(const float* matrix, int col0, int columns, int K) {
            const int col = threadIdx.x % VECS * VEC;
            const int k = threadIdx.x / VECS;
            source = reinterpret_cast<const char*>(matrix + static_cast<size_t>(k) * columns + col0 + col);
            step_bytes = static_cast<size_t>(PASS_K) * columns * sizeof(float);
            k_left = col0 + col < columns ? K - k : 0;
            target = (k * (COLUMNS + PAD) + col) * sizeof(float);
        }
        __device__ __forceinline__ void issue(unsigned matrix /* shared */, int first, int count) const {
#pragma unroll
            for (int i = 0; i < COPIES; ++i)
                if (i >= first && i < first + count)
                    cp_async_16(matrix + target + i * PASS_K * (COLUMNS + PAD) * static_cast<unsigned>(sizeof(float)),
                                source + i * step_bytes, k_left > i * PASS_K ? 16 : 0);
        }
        __device__ __forceinline__ void next_slice() {
            source += COPIES * step_bytes;
            k_left -= TILE_K;
        }
    };

    template <Layout L, typename Unused = void>
    struct CopiesOfB {
        using Type = Transposing<TILE_N>;
    };
    template <typename Unused>
    struct CopiesOfB<Layout::NN, Unused> {
        using Type = Straight<TILE_N>;
    };
    using CopiesA = Transposing<TILE_M>;
    using CopiesB = typename CopiesOfB<LAYOUT>::Type;

    static __device__ __forceinline__ void load_a(Fragments& fragments, const Slice& slice, int k, int row) {
#pragma unroll
        for (int run = 0; run < Tiling::MICRO_M / VEC; ++run) load_vec16(&slice.a[k][row + run * Tiling::RUN], fragments.a + run * VEC);
    }
    static __device__ __forceinline__ void load_b(Fragments& fragments, const Slice& slice, int k, int col) {
#pragma unroll
        for (int run = 0; run < Tiling::MICRO_N / VEC; ++run) load_vec16(&slice.b[k][col + run * Tiling::RUN], fragments.b + run * VEC);
    }
    static __device__ __forceinline__ void load(Fragments& fragments, const Slice& slice, int k, const typename Tiling::Place& place) {
        if (Tuning::B_FIRST) load_b(fragments, slice, k, place.col);
        load_a(fragments, slice, k, place.row);
        if (!Tuning::B_FIRST) load_b(fragments, slice, k, place.col);
    }

    static __device__ __forceinline__ void run(SharedStorage& shared, const float* __restrict__ a, const float* __restrict__ b,
                                               float* __restrict__ d, int M, int N, int K) {
        const Tile tile = tile_of<GROUP_M>(blockIdx.x, cdiv(M, TILE_M), cdiv(N, TILE_N));
        const typename Tiling::Place place;
        CopiesA copies_a(a, tile.m * TILE_M, M, K);
        CopiesB copies_b(b, tile.n * TILE_N, N, K);
#pragma unroll
        for (int stage = 0; stage < STAGES - 1; ++stage) {
            copies_a.issue(shared_address(shared.stages[stage].a), 0, CopiesA::COPIES);
            copies_b.issue(shared_address(shared.stages[stage].b), 0, CopiesB::COPIES);
            copies_a.next_slice();
            copies_b.next_slice();
            cp_async_commit_group();
        }
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();  // the first slice is there, from all threads

        constexpr int A_EACH = cdiv(CopiesA::COPIES, Tuning::BURSTS);
        constexpr int B_EACH = cdiv(CopiesB::COPIES, Tuning::BURSTS);
        typename Tiling::Accumulators acc = {};
        Fragments fragments[2];
        int read = 0;
        int write = STAGES - 1;
        load(fragments[0], shared.stages[0], 0, place);
        for (int k0 = 0; k0 < K; k0 += TILE_K) {
            const unsigned write_a = shared_address(shared.stages[write].a);
            const unsigned write_b = shared_address(shared.stages[write].b);
#pragma unroll
            for (int k = 0; k < TILE_K; ++k) {
                if (k == TILE_K - 1) read = read + 1 == STAGES ? 0 : read + 1;
                if (k % Tuning::PIN_EVERY == 0) __syncwarp();  // orders nothing: keeps the compiler from mixing steps (clashing banks)
                load(fragments[(k + 1) % 2], shared.stages[read], (k + 1) % TILE_K, place);
                if (k % Tuning::BURST_EVERY == 0 && k / Tuning::BURST_EVERY < Tuning::BURSTS) {
                    copies_a.issue(write_a, k / Tuning::BURST_EVERY * A_EACH, A_EACH);
                    copies_b.issue(write_b, k / Tuning::BURST_EVERY * B_EACH, B_EACH);
                }
                if (k == TILE_K - 2) {
                    copies_a.next_slice();
                    copies_b.next_slice();
                    cp_async_commit_group();
                    write = write + 1 == STAGES ? 0 : write + 1;
                    cp_async_wait_group<STAGES - 2>();
                    __syncthreads();  // the next slice is there; and all have read this one, so that its stage may be written
                }
                Tiling::multiply(acc, fragments[k % 2], 0);
            }
        }
        Tiling::store(d, acc, tile.m * TILE_M + place.row, tile.n * TILE_N + place.col, M, N);
    }
};
