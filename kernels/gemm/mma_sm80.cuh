// The body of the sm_80 GEMM: cp.async copies slices into a ring of stages while mma.sync works on the one before.
#pragma once
#include "gemm/mma_tile.cuh"
#include "gemm/raster.cuh"

template <typename Element, typename Tiling, int STAGES, int GROUP_M>
struct GemmMmaSm80 {
    using Slice = typename Tiling::Slice;
    using Fragments = typename Tiling::Fragments;
    static constexpr int THREADS = Tiling::THREADS;
    static constexpr int ROWS_A_PASS = THREADS / CHUNKS;  // rows that all threads copy at once, one chunk each
    static constexpr int COPIES_A = Tiling::TILE_M / ROWS_A_PASS;
    static constexpr int COPIES_B = Tiling::TILE_N / ROWS_A_PASS;
    static constexpr int COPIES = COPIES_A + COPIES_B;
    static constexpr int COPIES_A_STEP = cdiv(COPIES, STEPS - 1);  // spread over all steps but the last, which waits
    static_assert(ROWS_A_PASS % 8 == 0, "the swizzle of a thread's chunk is the same in each pass");
    static_assert(COPIES <= 32, "one bit a row");

    union SharedStorage {
        Slice stages[STAGES];
        typename Tiling::Staged staged;  // after the last slice
    };

    // This thread's share of the copies: rows row, row + ROWS_A_PASS, ... of both matrices, always the same chunk.
    struct Copies {
        const Element* a;   // its first row's chunk in the slice to copy next
        const Element* b;
        size_t step_bytes;  // from one of its rows to the next
        unsigned rows;      // bit i: row i is inside its matrix
        int elems_left;     // from its chunk to the end of the row
        int target;         // byte offset of its first chunk in Slice::a and Slice::b

        __device__ __forceinline__ Copies(const Element* a_matrix, const Element* b_matrix, int row0, int col0, int M, int N, int K) {
            const int chunk = threadIdx.x % CHUNKS;
            const int row = threadIdx.x / CHUNKS;
            a = a_matrix + static_cast<size_t>(row0 + row) * K + chunk * CHUNK;
            b = b_matrix + static_cast<size_t>(col0 + row) * K + chunk * CHUNK;
            step_bytes = static_cast<size_t>(ROWS_A_PASS) * K * sizeof(Element);
            rows = 0;
#pragma unroll
            for (int i = 0; i < COPIES_A; ++i) rows |= (row0 + row + i * ROWS_A_PASS < M ? 1u : 0u) << i;
#pragma unroll
            for (int i = 0; i < COPIES_B; ++i) rows |= (col0 + row + i * ROWS_A_PASS < N ? 1u : 0u) << (COPIES_A + i);
            elems_left = K - chunk * CHUNK;
            target = swizzled(row, chunk);
        }

        // Copies number FIRST to FIRST + COUNT of the slice; zeros outside the matrices. K % 8 == 0: a chunk is in or out as a whole.
        template <int FIRST, int COUNT>
        __device__ __forceinline__ void issue(unsigned slice) const {
            const unsigned mask = elems_left > 0 ? rows : 0u;
#pragma unroll
            for (int i = FIRST; i < FIRST + COUNT && i < COPIES; ++i) {
                const bool is_a = i < COPIES_A;
                const int pass = is_a ? i : i - COPIES_A;
                const char* source = reinterpret_cast<const char*>(is_a ? a : b) + pass * step_bytes;
                const unsigned to = slice + (is_a ? 0 : sizeof(Slice::a)) + target + pass * ROWS_A_PASS * ROW_BYTES;
                cp_async_16(to, source, (mask >> i & 1u) * 16);
            }
        }

        __device__ __forceinline__ void next_slice() {
            a += SLICE_K;
            b += SLICE_K;
            elems_left -= SLICE_K;
        }
    };

    static __device__ __forceinline__ void multiply(typename Tiling::Accumulators& acc, const Fragments& fragments) {
#pragma unroll
        for (int m = 0; m < Tiling::MMAS_M; ++m)
#pragma unroll
            for (int n = 0; n < Tiling::MMAS_N; ++n) {
                const int turn = m % 2 ? Tiling::MMAS_N - 1 - n : n;  // serpentine: neighbours share an operand
                mma_m16n8k16<Element>(acc[m][turn], fragments.a[m], fragments.b[turn / 2][turn % 2 * 2],
                                      fragments.b[turn / 2][turn % 2 * 2 + 1]);
            }
    }

    static __device__ __forceinline__ void run(SharedStorage& shared, const Element* __restrict__ a, const Element* __restrict__ b,
                                               Element* __restrict__ d, int M, int N, int K) {
        const Tile tile = tile_of<GROUP_M>(blockIdx.x, cdiv(M, Tiling::TILE_M), cdiv(N, Tiling::TILE_N));
        const int row0 = tile.m * Tiling::TILE_M;
        const int col0 = tile.n * Tiling::TILE_N;
        const unsigned ring = shared_address(shared.stages);
        const unsigned ring_end = ring + STAGES * sizeof(Slice);
        const typename Tiling::Lanes lanes;
        Copies copies(a, b, row0, col0, M, N, K);
#pragma unroll
        for (int stage = 0; stage < STAGES - 1; ++stage) {
            copies.template issue<0, COPIES>(ring + stage * sizeof(Slice));
            copies.next_slice();
            cp_async_commit_group();
        }
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();  // the first slice is there, from all threads

        typename Tiling::Accumulators acc = {};
        Fragments fragments[2];
        unsigned read = ring;
        unsigned write = ring + (STAGES - 1) * sizeof(Slice);
        Tiling::load(fragments[0], read, lanes, 0);
        for (int k0 = 0; k0 < K; k0 += SLICE_K) {
#pragma unroll
            for (int step = 0; step < STEPS; ++step) {
                if (step == STEPS - 1) {
                    cp_async_wait_group<STAGES - 2>();
                    __syncthreads();  // the next slice is there; and all have read this one, so that its stage may be written
                    read = read + sizeof(Slice) == ring_end ? ring : read + static_cast<unsigned>(sizeof(Slice));
                }
                Tiling::load(fragments[(step + 1) % 2], read, lanes, (step + 1) % STEPS);
                if (step == 0) copies.template issue<0, COPIES_A_STEP>(write);
                if (step == 1) copies.template issue<COPIES_A_STEP, COPIES_A_STEP>(write);
                if (step == 2) {
                    copies.template issue<2 * COPIES_A_STEP, COPIES_A_STEP>(write);
                    copies.next_slice();
                    cp_async_commit_group();
                    write = write + sizeof(Slice) == ring_end ? ring : write + static_cast<unsigned>(sizeof(Slice));
                }
                multiply(acc, fragments[step % 2]);
            }
        }
        cp_async_wait_group<0>();
        __syncthreads();  // nobody reads slices any more, no copy is under way: their memory is free
        Tiling::store(shared.staged, acc, d, row0, col0, M, N);
    }
};
