// The body of the sm_90a GEMM. One warp of the producer warpgroup keeps a ring of slices full by TMA; each consumer warpgroup runs
// wgmma over them for its TILE_M / CONSUMERS rows of the tile, then sends its result out by TMA while the next tile begins. CTAs are
// persistent: each works on tiles blockIdx.x, blockIdx.x + gridDim.x, ...
#pragma once
#include "common/wgmma.cuh"
#include "gemm/raster.cuh"

constexpr int SLICE_K = 64;  // a row of a slice is 128 bytes, the width of the swizzle
constexpr int ROW_BYTES = SLICE_K * 2;
constexpr int WGMMA_K = 16;
constexpr int WGMMA_M = 64;
constexpr int WARPGROUP = 128;
constexpr int STORE_N = 64;  // columns of one store: a box of the map of D is 64 x 64
constexpr int STORE_BUFFERS = 2;

// Barriers of bar.sync; 0 is that of __syncthreads.
enum NamedBarrier { FIRST_CONSUMER = 1 };

template <typename Element, int TILE_N, int CONSUMERS, int STAGES, int GROUP_M>
struct GemmWgmmaSm90a {
    static constexpr int TILE_M = CONSUMERS * WGMMA_M;
    static constexpr int THREADS = (CONSUMERS + 1) * WARPGROUP;
    static constexpr int PRODUCER_REGISTERS = 24;
    static constexpr int CONSUMER_REGISTERS = 240;
    static_assert(WARPGROUP * (PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS) <= 65536, "registers of an SM");
    using Accumulators = float[TILE_N / 2];

    struct Slice {
        alignas(1024) Element a[TILE_M * SLICE_K];  // [TILE_M, 64], 128-byte swizzle
        alignas(1024) Element b[TILE_N * SLICE_K];  // [TILE_N, 64], 128-byte swizzle
    };
    struct SharedStorage {
        Slice stages[STAGES];
        alignas(1024) Element results[CONSUMERS][STORE_BUFFERS][WGMMA_M * STORE_N];  // [64, 64] each, 128-byte swizzle
        alignas(8) unsigned long long full[STAGES];   // the slice has landed
        alignas(8) unsigned long long empty[STAGES];  // every consumer has read it
    };

    // Stage and parity run on over all tiles: producer and consumers walk the same sequence of slices.
    struct Ring {
        int stage = 0;
        unsigned parity = 0;
        __device__ __forceinline__ void advance() {
            if (++stage == STAGES) {
                stage = 0;
                parity ^= 1;
            }
        }
    };

    // The kernel's view of the work.
    struct Problem {
        int tiles_m;
        int tiles_n;
        int slices;
        __device__ __forceinline__ Problem(int M, int N, int K)
            : tiles_m(cdiv(M, TILE_M)), tiles_n(cdiv(N, TILE_N)), slices(cdiv(K, SLICE_K)) {}
    };

    static __device__ __forceinline__ void produce(SharedStorage& shared, const TensorMap& map_a, const TensorMap& map_b,
                                                   const Problem& problem) {
        Ring ring;
        for (int index = blockIdx.x; index < problem.tiles_m * problem.tiles_n; index += gridDim.x) {
            const Tile tile = tile_of<GROUP_M>(index, problem.tiles_m, problem.tiles_n);
            for (int slice = 0; slice < problem.slices; ++slice) {
                // Parity 1 of a fresh barrier counts as complete: the first round finds all stages empty.
                mbarrier_wait(shared_address(&shared.empty[ring.stage]), ring.parity ^ 1);
                const unsigned full = shared_address(&shared.full[ring.stage]);
                mbarrier_arrive_expect_tx(full, sizeof(Slice));  // always whole boxes, also where they are clipped
                tma_load_2d(shared_address(shared.stages[ring.stage].a), map_a, full, slice * SLICE_K, tile.m * TILE_M);
                tma_load_2d(shared_address(shared.stages[ring.stage].b), map_b, full, slice * SLICE_K, tile.n * TILE_N);
                ring.advance();
            }
        }
    }

    // Queues the products of this warpgroup's rows of A with all rows of B of one slice; the first slice of a tile starts from zero.
    template <bool FIRST>
    static __device__ __forceinline__ void multiply_slice(Accumulators& acc, SharedStorage& shared, const Ring& ring, int consumer) {
        mbarrier_wait(shared_address(&shared.full[ring.stage]), ring.parity);
        const unsigned long long a = wgmma_descriptor(shared_address(shared.stages[ring.stage].a + consumer * WGMMA_M * SLICE_K));
        const unsigned long long b = wgmma_descriptor(shared_address(shared.stages[ring.stage].b));
        wgmma_fence();  // the accumulators are ours before the tensor cores write them
#pragma unroll
        for (int step = 0; step < SLICE_K / WGMMA_K; ++step)
            Wgmma<Element, TILE_N>::mma(acc, a + step * 2, b + step * 2, FIRST && step == 0 ? 0 : 1);
        wgmma_commit_group();
    }

    // acc = this warpgroup's rows of A times all rows of B, over all slices of the tile.
    static __device__ __forceinline__ void multiply(Accumulators& acc, SharedStorage& shared, Ring& ring, int consumer, int slices) {
        const bool leader = threadIdx.x % WARPGROUP == 0;
        multiply_slice<true>(acc, shared, ring, consumer);
        unsigned read = shared_address(&shared.empty[ring.stage]);
        ring.advance();
        for (int slice = 1; slice < slices; ++slice) {
            multiply_slice<false>(acc, shared, ring, consumer);
            wgmma_wait_group<1>();  // the slice before this one has been read
            if (leader) mbarrier_arrive(read);
            read = shared_address(&shared.empty[ring.stage]);
            ring.advance();
        }
        wgmma_wait_group<0>();  // the sums are final, the last slice has been read
        if (leader) mbarrier_arrive(read);
    }

    // Sends this warpgroup's [64, TILE_N] out in boxes of 64 columns through two buffers.
    static __device__ __forceinline__ void store(const Accumulators& acc, SharedStorage& shared, const TensorMap& map_d, int consumer,
                                                 int row0, int col0) {
        const int lane = threadIdx.x % 32;
        const int warp = threadIdx.x / 32 % 4;
        const bool leader = threadIdx.x % WARPGROUP == 0;
        // This lane's row of the four 8 x 8 matrices of a stmatrix: rows 0-7 and 8-15 of two neighbouring 16-byte chunks.
        const int row = warp * 16 + lane % 16;
        const int first_chunk = lane / 16;
#pragma unroll
        for (int box = 0; box < TILE_N / STORE_N; ++box) {
            Element* buffer = shared.results[consumer][box % STORE_BUFFERS];
            if (leader) bulk_wait_group_read<STORE_BUFFERS - 1>();  // the store that used this buffer has read it
            bar_sync(FIRST_CONSUMER + consumer, WARPGROUP);         // and everyone knows
            const unsigned row_address = shared_address(buffer) + row * ROW_BYTES;
#pragma unroll
            for (int pair = 0; pair < 4; ++pair) {
                const float* from = acc + box * (STORE_N / 2) + pair * 8;
                stmatrix_x4(row_address + (((pair * 2 + first_chunk) ^ (row & 7)) << 4), pack2<Element>(from[0], from[1]),
                            pack2<Element>(from[2], from[3]), pack2<Element>(from[4], from[5]), pack2<Element>(from[6], from[7]));
            }
            fence_proxy_async();                             // what was written is there for the copy engine
            bar_sync(FIRST_CONSUMER + consumer, WARPGROUP);  // from all threads
            if (leader) {
                tma_store_2d(map_d, shared_address(buffer), col0 + box * STORE_N, row0);
                bulk_commit_group();
            }
        }
    }

    static __device__ __forceinline__ void consume(SharedStorage& shared, const TensorMap& map_d, const Problem& problem, int consumer) {
        Ring ring;
        for (int index = blockIdx.x; index < problem.tiles_m * problem.tiles_n; index += gridDim.x) {
            const Tile tile = tile_of<GROUP_M>(index, problem.tiles_m, problem.tiles_n);
            Accumulators acc;
            multiply(acc, shared, ring, consumer, problem.slices);
            store(acc, shared, map_d, consumer, tile.m * TILE_M + consumer * WGMMA_M, tile.n * TILE_N);
        }
        if (threadIdx.x % WARPGROUP == 0) bulk_wait_group_read<0>();  // shared memory stays until the last store has read it
    }

    static __device__ __forceinline__ void run(SharedStorage& shared, const TensorMap& map_a, const TensorMap& map_b,
                                               const TensorMap& map_d, int M, int N, int K) {
        const Problem problem(M, N, K);
        if (threadIdx.x == 0) {
            if (shared_address(&shared) % 1024) asm volatile("trap;");  // the swizzle counts from multiples of 1024
            prefetch_tensormap(map_a);
            prefetch_tensormap(map_b);
            prefetch_tensormap(map_d);
            for (int stage = 0; stage < STAGES; ++stage) {
                mbarrier_init(shared_address(&shared.full[stage]), 1);
                mbarrier_init(shared_address(&shared.empty[stage]), CONSUMERS);
            }
            fence_mbarrier_init();
        }
        __syncthreads();  // the barriers are there before anyone uses them
        const int warpgroup = threadIdx.x / WARPGROUP;
        if (warpgroup == CONSUMERS) {
            setmaxnreg_dec<PRODUCER_REGISTERS>();
            if (threadIdx.x == CONSUMERS * WARPGROUP) produce(shared, map_a, map_b, problem);
        } else {
            setmaxnreg_inc<CONSUMER_REGISTERS>();
            consume(shared, map_d, problem, warpgroup);
        }
    }
};
