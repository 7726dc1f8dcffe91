// The body of the fp32 GEMM for every architecture: the next slice comes from memory as float4, waits in registers for some steps along
// k, and goes, transposed, to the other of two buffers, while FFMA work on this one.
#pragma once
#include "gemm/blocked_tile.cuh"
#include "gemm/raster.cuh"

template <int TILE_M_, int GROUP_M>
struct GemmBlockedSm50 : BlockedTile<TILE_M_> {
    using Tiling = BlockedTile<TILE_M_>;
    using Fragments = typename Tiling::Fragments;
    static constexpr int TILE_M = Tiling::TILE_M;
    static constexpr int TILE_N = Tiling::TILE_N;
    static constexpr int TILE_K = Tiling::TILE_K;
    static constexpr int THREADS = Tiling::THREADS;
    static constexpr int VEC = Tiling::VEC;
    static constexpr int QUADS = TILE_K / VEC;
    static constexpr int PASS_ROWS = THREADS / QUADS;  // rows that all threads read at once
    static_assert(PASS_ROWS == Tiling::RUN, "a pass keeps the swizzle of its rows");

    struct Slice {
        alignas(16) float a[TILE_K][TILE_M];  // swizzled
        alignas(16) float b[TILE_K][TILE_N];  // swizzled
    };
    struct SharedStorage {
        Slice buffers[2];
    };

    // Where row (or column) `index` lies in line k of a slice: groups of 8 change places from one four of k to the next, so that the
    // transposed stores of a warp meet 32 banks.
    static __device__ __forceinline__ int swizzled(int index, int k) { return index ^ k / VEC * 8; }

    // A [rows, K] matrix on its way into [k][row]: this thread's float4 along k of rows row, row + PASS_ROWS, ...; K % 4 == 0.
    template <int ROWS>
    struct Copies {
        static constexpr int PASSES = ROWS / PASS_ROWS;
        const float* source;
        size_t step;
        int rows_left;
        int k_left;
        int k;
        int place;

        __device__ __forceinline__ Copies(const float* matrix, int row0, int rows, int K) {
            k = threadIdx.x % QUADS * VEC;
            const int row = threadIdx.x / QUADS;
            source = matrix + static_cast<size_t>(row0 + row) * K + k;
            step = static_cast<size_t>(PASS_ROWS) * K;
            rows_left = rows - row0 - row;
            k_left = K - k;
            place = swizzled(row, k);
        }
        __device__ __forceinline__ float4 fetch(int pass) const {
            float4 value = float4{0.0f, 0.0f, 0.0f, 0.0f};
            if (k_left > 0 && rows_left > pass * PASS_ROWS) value = *reinterpret_cast<const float4*>(source + pass * step);
            return value;
        }
        __device__ __forceinline__ void put(float (*lines)[ROWS], int pass, const float4& value) const {
            float* to = &lines[k][place + pass * PASS_ROWS];
            to[0 * ROWS] = value.x;
            to[1 * ROWS] = value.y;
            to[2 * ROWS] = value.z;
            to[3 * ROWS] = value.w;
        }
        __device__ __forceinline__ void next_slice() {
            source += TILE_K;
            k_left -= TILE_K;
        }
    };
    using CopiesA = Copies<TILE_M>;
    using CopiesB = Copies<TILE_N>;

    // A slice passes through registers in three groups of two float4, one after the other, each with four steps to arrive.
    static constexpr int PASSES = CopiesA::PASSES + CopiesB::PASSES;
    static constexpr int GROUPS = 3;
    static constexpr int GROUP_PASSES = PASSES / GROUPS;
    static constexpr int GROUP_STEPS = (TILE_K - 1) / GROUPS;
    static constexpr int PIN_EVERY = 2;
    static_assert(GROUP_PASSES * GROUPS == PASSES, "groups of the same size");

    static __device__ __forceinline__ float4 fetch(const CopiesA& a, const CopiesB& b, int pass) {
        return pass < CopiesA::PASSES ? a.fetch(pass) : b.fetch(pass - CopiesA::PASSES);
    }
    static __device__ __forceinline__ void put(const CopiesA& a, const CopiesB& b, Slice& slice, int pass, const float4& value) {
        if (pass < CopiesA::PASSES) a.put(slice.a, pass, value);
        else b.put(slice.b, pass - CopiesA::PASSES, value);
    }

    static __device__ __forceinline__ void load(Fragments& fragments, const Slice& slice, int k, const typename Tiling::Place& place) {
#pragma unroll
        for (int run = 0; run < Tiling::MICRO_N / VEC; ++run)
            load_vec16(&slice.b[k][swizzled(place.col, k) + run * Tiling::RUN], fragments.b + run * VEC);
#pragma unroll
        for (int run = 0; run < Tiling::MICRO_M / VEC; ++run)
            load_vec16(&slice.a[k][swizzled(place.row, k) + run * Tiling::RUN], fragments.a + run * VEC);
    }

    static __device__ __forceinline__ void run(SharedStorage& shared, const float* __restrict__ a, const float* __restrict__ b,
                                               float* __restrict__ d, int M, int N, int K) {
        const Tile tile = tile_of<GROUP_M>(blockIdx.x, cdiv(M, TILE_M), cdiv(N, TILE_N));
        const typename Tiling::Place place;
        CopiesA copies_a(a, tile.m * TILE_M, M, K);
        CopiesB copies_b(b, tile.n * TILE_N, N, K);
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) put(copies_a, copies_b, shared.buffers[0], pass, fetch(copies_a, copies_b, pass));
        __syncthreads();  // the first slice is there, from all threads

        typename Tiling::Accumulators acc = {};
        Fragments fragments[2];
        int read = 0;
        load(fragments[0], shared.buffers[0], 0, place);
        for (int k0 = 0; k0 < K; k0 += TILE_K) {
            copies_a.next_slice();
            copies_b.next_slice();
            Slice& next = shared.buffers[read ^ 1];
            float4 waiting[GROUP_PASSES];
#pragma unroll
            for (int k = 0; k < TILE_K; ++k) {
                if (k == TILE_K - 1) read ^= 1;
                if (k % PIN_EVERY == 0) __syncwarp();  // orders nothing: keeps the compiler from mixing steps (clashing banks)
                load(fragments[(k + 1) % 2], shared.buffers[read], (k + 1) % TILE_K, place);
                const int group = k / GROUP_STEPS;
                if (group < GROUPS && k % GROUP_STEPS == 0) {
#pragma unroll
                    for (int i = 0; i < GROUP_PASSES; ++i) waiting[i] = fetch(copies_a, copies_b, group * GROUP_PASSES + i);
                }
                if (group < GROUPS && k % GROUP_STEPS == GROUP_STEPS - 1) {
#pragma unroll
                    for (int i = 0; i < GROUP_PASSES; ++i) put(copies_a, copies_b, next, group * GROUP_PASSES + i, waiting[i]);
                }
                if (k == TILE_K - 2) __syncthreads();  // the next slice is there; and all have read this one
                Tiling::multiply(acc, fragments[k % 2], 1);
            }
        }
        Tiling::store(d, acc, tile.m * TILE_M + place.row, tile.n * TILE_N + place.col, M, N);
    }
};
