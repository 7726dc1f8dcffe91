// The body of the fp32 GEMM whose inner loop is nothing but FFMA: a thread holds 8 x 16 sums, reads 24 operands as float4 for each k,
// one step ahead, while cp.async fills a ring of slices.
#pragma once
#include "common/ptx_mma.cuh"
#include "gemm/raster.cuh"

enum class Layout { NT, NN };  // B stored [N, K] or [K, N]

template <Layout LAYOUT, int GROUP_M>
struct GemmBlockedSm80 {
    static constexpr int TILE_M = 128;
    static constexpr int TILE_N = 256;
    static constexpr int TILE_K = 16;
    static constexpr int THREADS = 256;
    static constexpr int STAGES = 3;
    static constexpr int VEC = 4;          // floats in 16 bytes
    static constexpr int MICRO_M = 8;      // rows of D of one thread, in runs of VEC, TILE_M / 2 apart
    static constexpr int MICRO_N = 16;     // columns, in runs of VEC, TILE_N / 4 apart
    static constexpr int RUNS_M = MICRO_M / VEC;
    static constexpr int RUNS_N = MICRO_N / VEC;
    static constexpr int PAD = 4;          // keeps rows 16-byte aligned and spreads transposed copies over the banks
    static constexpr int BURSTS = LAYOUT == Layout::NT ? 4 : 4;  // the copies of a slice are spread over these parts of the loop
    static constexpr int BURST_EVERY = 3;  // steps along k

    struct Slice {
        alignas(16) float a[TILE_K][TILE_M + PAD];
        alignas(16) float b[TILE_K][TILE_N + PAD];
    };
    struct SharedStorage {
        Slice stages[STAGES];
    };

    // Copies [rows, K] of K-major memory into [k][row] of a slice, 4 bytes at a time: 16 neighbouring threads take one row.
    template <int ROWS, int ROW_FLOATS>
    struct Transposing {
        static constexpr int PASS_ROWS = THREADS / TILE_K;
        static constexpr int COPIES = ROWS / PASS_ROWS;
        const char* source;
        size_t step_bytes;
        unsigned rows;  // bit i: row i of this thread is inside the matrix
        int k_left;
        unsigned target;

        __device__ __forceinline__ Transposing(const float* matrix, int row0, int row_count, int K) {
            const int k = threadIdx.x % TILE_K;
            const int row = threadIdx.x / TILE_K;
            source = reinterpret_cast<const char*>(matrix + static_cast<size_t>(row0 + row) * K + k);
            step_bytes = static_cast<size_t>(PASS_ROWS) * K * sizeof(float);
            rows = 0;
#pragma unroll
            for (int i = 0; i < COPIES; ++i) rows |= (row0 + row + i * PASS_ROWS < row_count ? 1u : 0u) << i;
            k_left = K - k;
            target = (k * ROW_FLOATS + row) * sizeof(float);
        }
        __device__ __forceinline__ void issue(unsigned matrix /* shared */, int first, int count) const {
            const unsigned mask = k_left > 0 ? rows : 0u;
#pragma unroll
            for (int i = 0; i < COPIES; ++i)
                if (i >= first && i < first + count)
                    cp_async_4(matrix + target + i * PASS_ROWS * static_cast<unsigned>(sizeof(float)), source + i * step_bytes,
                               (mask >> i & 1u) * 4);
        }
        __device__ __forceinline__ void next_slice(int) {
            source += TILE_K * sizeof(float);
            k_left -= TILE_K;
        }
    };

    // Copies [TILE_K, columns] as it lies, 16 bytes at a time; N % 4 == 0: a vector is in or out as a whole.
    template <int COLUMNS, int ROW_FLOATS>
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
            target = (k * ROW_FLOATS + col) * sizeof(float);
        }
        __device__ __forceinline__ void issue(unsigned matrix /* shared */, int first, int count) const {
#pragma unroll
            for (int i = 0; i < COPIES; ++i)
                if (i >= first && i < first + count)
                    cp_async_16(matrix + target + i * PASS_K * ROW_FLOATS * static_cast<unsigned>(sizeof(float)), source + i * step_bytes,
                                k_left > i * PASS_K ? 16 : 0);
        }
        __device__ __forceinline__ void next_slice(int) {
            source += COPIES * step_bytes;
            k_left -= TILE_K;
        }
    };

    template <Layout L, typename Unused = void>
    struct CopiesOfB {
        using Type = Transposing<TILE_N, TILE_N + PAD>;
    };
    template <typename Unused>
    struct CopiesOfB<Layout::NN, Unused> {
        using Type = Straight<TILE_N, TILE_N + PAD>;
    };
    using CopiesA = Transposing<TILE_M, TILE_M + PAD>;
    using CopiesB = typename CopiesOfB<LAYOUT>::Type;

    struct Fragments {
        float a[MICRO_M];
        float b[MICRO_N];
    };

    static __device__ __forceinline__ void load(Fragments& fragments, const Slice& slice, int k, int row, int col) {
#pragma unroll
        for (int run = 0; run < RUNS_M; ++run) load_vec16(&slice.a[k][row + run * (TILE_M / RUNS_M)], fragments.a + run * VEC);
#pragma unroll
        for (int run = 0; run < RUNS_N; ++run) load_vec16(&slice.b[k][col + run * (TILE_N / RUNS_N)], fragments.b + run * VEC);
    }

    // Serpentine along the rows: one operand stays in the reuse cache, the other two alternate between register banks.
    static __device__ __forceinline__ void multiply(float (&acc)[MICRO_M][MICRO_N], const Fragments& fragments) {
#pragma unroll
        for (int n = 0; n < MICRO_N; ++n)
#pragma unroll
            for (int i = 0; i < MICRO_M; ++i) {
                const int m = n % 2 ? MICRO_M - 1 - i : i;
                acc[m][n] = fmaf(fragments.a[m], fragments.b[n], acc[m][n]);
            }
    }

    // `one` is 1: a factor that the compiler does not know frees the accumulators from the register groups of 16-byte stores.
    static __device__ __forceinline__ void store(float* __restrict__ d /* [M, N] */, const float (&acc)[MICRO_M][MICRO_N], int row0,
                                                 int col0, int M, int N, float one) {
        const bool vectors = N % VEC == 0;
#pragma unroll
        for (int m = 0; m < MICRO_M; ++m) {
            const int row = row0 + m / VEC * (TILE_M / RUNS_M) + m % VEC;
            if (row >= M) continue;
#pragma unroll
            for (int run = 0; run < RUNS_N; ++run) {
                const int col = col0 + run * (TILE_N / RUNS_N);
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

    static __device__ __forceinline__ void run(SharedStorage& shared, const float* __restrict__ a, const float* __restrict__ b,
                                               float* __restrict__ d, int M, int N, int K) {
        const Tile tile = tile_of<GROUP_M>(blockIdx.x, cdiv(M, TILE_M), cdiv(N, TILE_N));
        // A warp covers 4 x 8 of the 16 x 16 threads: its reads of a fragment touch as few banks twice as possible.
        const int lane = threadIdx.x % 32;
        const int warp = threadIdx.x / 32;
        const int row = (warp / 2 * 4 + lane / 8) * VEC;
        const int col = (warp % 2 * 8 + lane % 8) * VEC;
        CopiesA copies_a(a, tile.m * TILE_M, M, K);
        CopiesB copies_b(b, tile.n * TILE_N, N, K);
#pragma unroll
        for (int stage = 0; stage < STAGES - 1; ++stage) {
            copies_a.issue(shared_address(shared.stages[stage].a), 0, CopiesA::COPIES);
            copies_b.issue(shared_address(shared.stages[stage].b), 0, CopiesB::COPIES);
            copies_a.next_slice(0);
            copies_b.next_slice(0);
            cp_async_commit_group();
        }
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();  // the first slice is there, from all threads

        float acc[MICRO_M][MICRO_N] = {};
        Fragments fragments[2];
        int read = 0;
        int write = STAGES - 1;
        load(fragments[0], shared.stages[0], 0, row, col);
        for (int k0 = 0; k0 < K; k0 += TILE_K) {
            const unsigned write_a = shared_address(shared.stages[write].a);
            const unsigned write_b = shared_address(shared.stages[write].b);
#pragma unroll
            for (int k = 0; k < TILE_K; ++k) {
                if (k == TILE_K - 1) read = read + 1 == STAGES ? 0 : read + 1;
                load(fragments[(k + 1) % 2], shared.stages[read], (k + 1) % TILE_K, row, col);
                if (k % BURST_EVERY == 0 && k / BURST_EVERY < BURSTS) {
                    constexpr int A_EACH = cdiv(CopiesA::COPIES, BURSTS);
                    constexpr int B_EACH = cdiv(CopiesB::COPIES, BURSTS);
                    copies_a.issue(write_a, k / BURST_EVERY * A_EACH, A_EACH);
                    copies_b.issue(write_b, k / BURST_EVERY * B_EACH, B_EACH);
                }
                if (k == TILE_K - 2) {
                    copies_a.next_slice(0);
                    copies_b.next_slice(0);
                    cp_async_commit_group();
                    write = write + 1 == STAGES ? 0 : write + 1;
                    cp_async_wait_group<STAGES - 2>();
                    __syncthreads();  // the next slice is there; and all have read this one, so that its stage may be written
                }
                multiply(acc, fragments[k % 2]);
            }
        }
        const float one = __int_as_float(0x3f800000 | (M >> 31));  // M is positive
        store(d, acc, tile.m * TILE_M + row, tile.n * TILE_N + col, M, N, one);
    }
};
