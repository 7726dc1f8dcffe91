// The body of the sm_90a attention. One thread of the producer warpgroup keeps two K and two V blocks in flight by TMA; each consumer
// warpgroup owns 64 queries, runs Q K^T and P V by wgmma with Q and P in registers, and works out the exponentials of one block while
// the tensor cores multiply the block before. Two consumers take turns: one computes softmax while the other multiplies (ping-pong). CTAs
// walk over tiles blockIdx.x, then gridDim.x further, every other round in reverse, so that long and short tiles even out.
#pragma once
#include "attention/online_softmax.cuh"
#include "attention/tiles.cuh"
#include "common/ptx_attention_sm90a.cuh"

constexpr int WARPGROUP = 128;
constexpr int WGMMA_M = 64;
constexpr int WGMMA_K = 16;
constexpr int CHUNK_COLS = 64;  // a row of a chunk is 128 bytes, the width of the swizzle
constexpr int ROW_BYTES = 128;
constexpr int STAGES = 2;

// Barriers of bar.sync; 0 is that of __syncthreads. The first two take the consumer's number on top.
enum NamedBarrier { CONSUMER_ALONE = 1, CONSUMER_TURN = 4, ALL_CONSUMERS = 7 };

// Tells the compiler that `values` change here, at a wait: neither side moves reads of them across it. No instruction.
template <int REGS>
__device__ __forceinline__ void registers_fence(float (&values)[REGS]) {
#pragma unroll
    for (int i = 0; i < REGS; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

template <typename Element, int HEAD_DIM_, int CONSUMERS, int BLOCK_KV_>
struct AttentionWgmmaSm90a {
    static constexpr int D = HEAD_DIM_;
    static constexpr int BLOCK_Q = CONSUMERS * WGMMA_M;
    static constexpr int BLOCK_KV = BLOCK_KV_;
    static constexpr int CHUNKS = D / CHUNK_COLS;
    static constexpr int THREADS = (CONSUMERS + 1) * WARPGROUP;
    static constexpr int PRODUCER_REGISTERS = CONSUMERS == 2 ? 24 : 32;
    static constexpr int CONSUMER_REGISTERS = CONSUMERS == 2 ? 240 : 160;
    static_assert(WARPGROUP * (PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS) <= 65536, "registers of an SM");
    static_assert(D % CHUNK_COLS == 0 && BLOCK_KV % WGMMA_K == 0, "whole chunks and whole steps of wgmma");
    static constexpr bool Q_IN_REGISTERS = CONSUMERS == 2;  // three consumers have too few; they read Q from shared memory each time
    static constexpr bool TAKE_TURNS = CONSUMERS == 2;  // three fill each other's gaps by themselves
    static constexpr int S_REGS = BLOCK_KV / 2;
    static constexpr int O_REGS = D / 2;
    static constexpr int P_STEPS = BLOCK_KV / WGMMA_K;
    static constexpr int Q_STEPS = D / WGMMA_K;
    static constexpr unsigned Q_BYTES = BLOCK_Q * D * 2;
    static constexpr unsigned KV_BYTES = BLOCK_KV * D * 2;

    struct SharedStorage {
        alignas(1024) Element q[CHUNKS][BLOCK_Q * CHUNK_COLS];            // [BLOCK_Q, 64] each, 128-byte swizzle
        alignas(1024) Element k[STAGES][CHUNKS][BLOCK_KV * CHUNK_COLS];   // [BLOCK_KV, 64] each, 128-byte swizzle
        alignas(1024) Element v[STAGES][CHUNKS][BLOCK_KV * CHUNK_COLS];   // [BLOCK_KV, 64] each, 128-byte swizzle
        alignas(1024) Element o[CONSUMERS][CHUNKS][WGMMA_M * CHUNK_COLS];  // [64, 64] each, 128-byte swizzle
        alignas(8) unsigned long long q_full;           // the queries have landed
        unsigned long long q_empty;                     // every warp is done with them
        unsigned long long k_full[STAGES], k_empty[STAGES];  // the block has landed; every warp is done with it
        unsigned long long v_full[STAGES], v_empty[STAGES];
    };

    // Stage and parity run on over all blocks of all tiles: producer and consumers walk the same sequence.
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

    // The launch as all roles see it.
    struct Work {
        Sizes sizes;
        int q_tiles;
        int all_heads;
        int head_group;
        const int* kv_lengths;
        __device__ __forceinline__ int tiles() const { return q_tiles * all_heads; }
        // The tile of this CTA in its `round`; negative after the last one.
        __device__ __forceinline__ int tile_in_round(int round) const {
            const int place = round % 2 ? static_cast<int>(gridDim.x - 1 - blockIdx.x) : static_cast<int>(blockIdx.x);
            const int index = round * static_cast<int>(gridDim.x) + place;
            return index < tiles() ? index : -1;
        }
        __device__ __forceinline__ int rounds() const { return cdiv(tiles(), static_cast<int>(gridDim.x)); }
        __device__ __forceinline__ Tile tile(int index) const {
            return tile_of<BLOCK_Q>(index, sizes, q_tiles, all_heads, head_group, kv_lengths);
        }
    };

    static __device__ __forceinline__ void load_block(const TensorMap& map, const Element (&target)[CHUNKS][BLOCK_KV * CHUNK_COLS],
                                                      unsigned full, int key0, int head) {
        mbarrier_arrive_expect_tx(full, KV_BYTES);  // always whole boxes, also where they are clipped
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk)
            tma_load_3d(shared_address(target[chunk]), map, full, chunk * CHUNK_COLS, key0, head);
    }

    // Blocks go from the last that the tile sees to the first; K runs one block ahead of V, as consumers need them.
    static __device__ __forceinline__ void produce(SharedStorage& shared, const TensorMap& map_q, const TensorMap& map_k,
                                                   const TensorMap& map_v, const Work& work) {
        Ring k_ring;
        Ring v_ring;
        unsigned q_parity = 0;
        for (int round = 0; round < work.rounds(); ++round) {
            const int index = work.tile_in_round(round);
            if (index < 0) continue;
            const Tile tile = work.tile(index);
            const int blocks = cdiv(max(tile.keys, 0), BLOCK_KV);
            for (int block = blocks - 1; block >= -1 && blocks > 0; --block) {
                if (block >= 0) {
                    // Parity 1 of a fresh barrier counts as complete: the first round finds everything empty.
                    mbarrier_wait(shared_address(&shared.k_empty[k_ring.stage]), k_ring.parity ^ 1);
                    load_block(map_k, shared.k[k_ring.stage], shared_address(&shared.k_full[k_ring.stage]), block * BLOCK_KV, tile.kv_head);
                    k_ring.advance();
                }
                if (block == blocks - 1) {
                    mbarrier_wait(shared_address(&shared.q_empty), q_parity ^ 1);
                    q_parity ^= 1;
                    const unsigned full = shared_address(&shared.q_full);
                    mbarrier_arrive_expect_tx(full, Q_BYTES);
#pragma unroll
                    for (int chunk = 0; chunk < CHUNKS; ++chunk)
                        tma_load_3d(shared_address(shared.q[chunk]), map_q, full, chunk * CHUNK_COLS, tile.query0, tile.head);
                } else {
                    mbarrier_wait(shared_address(&shared.v_empty[v_ring.stage]), v_ring.parity ^ 1);
                    load_block(map_v, shared.v[v_ring.stage], shared_address(&shared.v_full[v_ring.stage]), (block + 1) * BLOCK_KV,
                               tile.kv_head);
                    v_ring.advance();
                }
            }
        }
    }

    // A consumer warpgroup over all its tiles.
    struct Consumer {
        SharedStorage& shared;
        const Work& work;
        const TensorMap& map_o;
        const int number;
        const float scale_log2;
        const int lane = threadIdx.x % 32;
        const int warp = threadIdx.x / 32 % 4;
        Ring k_ring, v_ring;
        unsigned q_parity = 0;
        unsigned q[Q_IN_REGISTERS ? Q_STEPS : 1][4];
        float s[S_REGS];
        unsigned p[P_STEPS][4];
        float o[O_REGS];

        __device__ __forceinline__ Consumer(SharedStorage& shared_, const Work& work_, const TensorMap& map_o_, int number_, float scale_log2_)
            : shared(shared_), work(work_), map_o(map_o_), number(number_), scale_log2(scale_log2_) {}

        __device__ __forceinline__ void arrive(unsigned long long& barrier) const {
            if (lane == 0) mbarrier_arrive(shared_address(&barrier));
        }

        // This warp's 16 queries as the A operand of wgmma.
        __device__ __forceinline__ void load_queries() {
            mbarrier_wait(shared_address(&shared.q_full), q_parity);
            q_parity ^= 1;
            if constexpr (!Q_IN_REGISTERS) return;
            const int row = number * WGMMA_M + warp * 16 + lane % 16;
#pragma unroll
            for (int step = 0; step < Q_STEPS; ++step) {
                const unsigned chunk = shared_address(shared.q[step / 4]) + row * ROW_BYTES;
                ldmatrix_x4(q[Q_IN_REGISTERS ? step : 0], chunk + (((step % 4 * 2 + lane / 16) ^ (row & 7)) << 4));
            }
            __syncwarp();  // all lanes have read
            arrive(shared.q_empty);
        }

        // S = Q K^T of the block in this stage of K; runs on until the wait.
        __device__ __forceinline__ void start_scores() {
            const unsigned long long k = wgmma_descriptor(shared_address(shared.k[k_ring.stage]));
            wgmma_fence();  // S and Q are ours before the tensor cores touch them
#pragma unroll
            for (int step = 0; step < Q_STEPS; ++step) {
                const unsigned long long k_step = k + (step / 4 * (BLOCK_KV * ROW_BYTES / 16) + step % 4 * 2);
                if constexpr (Q_IN_REGISTERS) {
                    WgmmaRs<Element, BLOCK_KV, Major::K>::mma(s, q[step], k_step, step != 0);
                } else {
                    const unsigned long long rows = wgmma_descriptor(shared_address(shared.q[0] + number * WGMMA_M * CHUNK_COLS));
                    Wgmma<Element, BLOCK_KV>::mma(s, rows + (step / 4 * (BLOCK_Q * ROW_BYTES / 16) + step % 4 * 2), k_step, step != 0);
                }
            }
            wgmma_commit_group();
        }

        // O += P V of the block in this stage of V; runs on until the wait.
        __device__ __forceinline__ void start_output() {
            const unsigned long long v = wgmma_descriptor_mn(shared_address(shared.v[v_ring.stage]), BLOCK_KV * ROW_BYTES);
            wgmma_fence();  // O and P are ours before the tensor cores touch them
#pragma unroll
            for (int step = 0; step < P_STEPS; ++step) WgmmaRs<Element, D, Major::MN>::mma(o, p[step], v + step * 128, 1);
            wgmma_commit_group();
        }

        __device__ __forceinline__ void pack_weights() {
#pragma unroll
            for (int step = 0; step < P_STEPS; ++step)
#pragma unroll
                for (int i = 0; i < 4; ++i) p[step][i] = cvt_rn_pair<Element>(s[step * 8 + i * 2], s[step * 8 + i * 2 + 1]);
        }

        __device__ __forceinline__ void rescale_output(const float (&factor)[2]) {
#pragma unroll
            for (int i = 0; i < O_REGS; ++i) o[i] *= factor[i % 4 / 2];
        }

        // Values in the padding meet weights of zero, but may be NaN: they become zero in shared memory.
        __device__ __forceinline__ void clear_padding(int key0, int kv_length) {
            mbarrier_wait(shared_address(&shared.v_full[v_ring.stage]), v_ring.parity);
            const int thread = number * WARPGROUP + warp * 32 + lane;
            for (int i = thread; i < CHUNKS * BLOCK_KV * 8; i += CONSUMERS * WARPGROUP) {
                if (key0 + i / 8 % BLOCK_KV >= kv_length)  // the swizzle moves 16 bytes within a row only
                    reinterpret_cast<uint4*>(shared.v[v_ring.stage])[i] = uint4{0, 0, 0, 0};
            }
            fence_proxy_async();                               // what was written is there for wgmma
            bar_sync(ALL_CONSUMERS, CONSUMERS * WARPGROUP);  // from all consumers
        }

        __device__ __forceinline__ void attend(const Tile& tile) {
            const int blocks = cdiv(max(tile.keys, 0), BLOCK_KV);
            SoftmaxRows rows;
#pragma unroll
            for (int i = 0; i < O_REGS; ++i) o[i] = 0.0f;
            if (blocks > 0) {
                const int first_query = tile.query0 + number * WGMMA_M;
                const int row = first_query + warp * 16 + lane / 4;
                const int last[2] = {last_key(row, tile.kv_length, work.sizes), last_key(row + 8, tile.kv_length, work.sizes)};
                const int last_of_first = last_key(first_query, tile.kv_length, work.sizes);  // blocks up to here need no mask
                const int col = lane % 4 * 2;
                int key0 = (blocks - 1) * BLOCK_KV;
                float maxima[2];
                float factor[2];
                load_queries();
                mbarrier_wait(shared_address(&shared.k_full[k_ring.stage]), k_ring.parity);
                start_scores();
                wgmma_wait_group<0>();  // S is there, K has been read
                registers_fence(s);
                arrive(shared.k_empty[k_ring.stage]);
                k_ring.advance();
                mask_scores(s, key0 + col, last);
                SoftmaxRows::row_maxima(s, maxima);
                rows.raise(maxima, scale_log2, factor);
                rows.exponentiate(s, scale_log2);
                pack_weights();
                if (key0 + BLOCK_KV > tile.kv_length && tile.kv_length < work.sizes.Lk) clear_padding(key0, tile.kv_length);
                if (blocks > 1) mbarrier_wait(shared_address(&shared.k_full[k_ring.stage]), k_ring.parity);
                for (int block = blocks - 2; block >= 0; --block) {
                    key0 = block * BLOCK_KV;
                    if (TAKE_TURNS) bar_sync(CONSUMER_TURN + number, 2 * WARPGROUP);  // our turn at the tensor cores
                    start_scores();
                    mbarrier_wait(shared_address(&shared.v_full[v_ring.stage]), v_ring.parity);
                    start_output();
                    if (TAKE_TURNS) bar_arrive(CONSUMER_TURN + (number + 1) % CONSUMERS, 2 * WARPGROUP);  // the next one's turn
                    wgmma_wait_group<1>();  // S is there, K has been read
                    registers_fence(s);
                    arrive(shared.k_empty[k_ring.stage]);
                    k_ring.advance();
                    if (key0 + BLOCK_KV - 1 > last_of_first) mask_scores(s, key0 + col, last);
                    SoftmaxRows::row_maxima(s, maxima);
                    const bool rescale = rows.raise(maxima, scale_log2, factor);
                    rows.exponentiate(s, scale_log2);
                    registers_fence(s);
                    // This loop is also what keeps ptxas from moving the exponentials behind the wait for P V.
                    if (block > 0) mbarrier_wait(shared_address(&shared.k_full[k_ring.stage]), k_ring.parity);
                    wgmma_wait_group<0>();  // O is there, V has been read
                    registers_fence(o);
                    arrive(shared.v_empty[v_ring.stage]);
                    v_ring.advance();
                    if (rescale) rescale_output(factor);
                    pack_weights();
                }
                if constexpr (!Q_IN_REGISTERS) arrive(shared.q_empty);
                mbarrier_wait(shared_address(&shared.v_full[v_ring.stage]), v_ring.parity);
                start_output();
                wgmma_wait_group<0>();  // O is there, V has been read
                registers_fence(o);
                arrive(shared.v_empty[v_ring.stage]);
                v_ring.advance();
            }
            const float inverse[2] = {rows.inverse_sum(0), rows.inverse_sum(1)};
            rescale_output(inverse);
            store(tile);
        }

        // Sends this warpgroup's [64, D] out through its own staging memory.
        __device__ __forceinline__ void store(const Tile& tile) {
            const bool leader = threadIdx.x % WARPGROUP == 0;
            if (leader) bulk_wait_group_read<0>();            // the store of the tile before has read it
            bar_sync(CONSUMER_ALONE + number, WARPGROUP);     // and everyone knows
            const int row = warp * 16 + lane % 16;
#pragma unroll
            for (int pair = 0; pair < D / 16; ++pair) {
                const float* from = o + pair * 8;
                const unsigned to = shared_address(shared.o[number][pair / 4]) + row * ROW_BYTES;
                stmatrix_x4(to + (((pair % 4 * 2 + lane / 16) ^ (row & 7)) << 4), cvt_rn_pair<Element>(from[0], from[1]),
                            cvt_rn_pair<Element>(from[2], from[3]), cvt_rn_pair<Element>(from[4], from[5]),
                            cvt_rn_pair<Element>(from[6], from[7]));
            }
            fence_proxy_async();                           // what was written is there for the copy engine
            bar_sync(CONSUMER_ALONE + number, WARPGROUP);  // from all threads
            if (leader) {
#pragma unroll
                for (int chunk = 0; chunk < CHUNKS; ++chunk)
                    tma_store_3d(map_o, shared_address(shared.o[number][chunk]), chunk * CHUNK_COLS, tile.query0 + number * WGMMA_M, tile.head);
                bulk_commit_group();
            }
        }

        __device__ __forceinline__ void run() {
            if (TAKE_TURNS && number == CONSUMERS - 1) bar_arrive(CONSUMER_TURN, 2 * WARPGROUP);  // the first turn is consumer 0's
            for (int round = 0; round < work.rounds(); ++round) {
                const int index = work.tile_in_round(round);
                if (index >= 0) attend(work.tile(index));
            }
            if (threadIdx.x % WARPGROUP == 0) bulk_wait_group_read<0>();  // shared memory stays until the last store has read it
        }
    };

    static __device__ __forceinline__ void run(SharedStorage& shared, const TensorMap& map_q, const TensorMap& map_k, const TensorMap& map_v,
                                               const TensorMap& map_o, const int* __restrict__ kv_lengths, const Sizes& sizes,
                                               int batch, float scale, int head_group) {
        const Work work = {sizes, cdiv(sizes.Lq, BLOCK_Q), batch * sizes.heads, head_group, kv_lengths};
        if (threadIdx.x == 0) {
            if (shared_address(&shared) % 1024) asm volatile("trap;");  // the swizzle counts from multiples of 1024
            prefetch_tensormap(map_q);
            prefetch_tensormap(map_k);
            prefetch_tensormap(map_v);
            prefetch_tensormap(map_o);
            mbarrier_init(shared_address(&shared.q_full), 1);
            mbarrier_init(shared_address(&shared.q_empty), CONSUMERS * 4);
            for (int stage = 0; stage < STAGES; ++stage) {
                mbarrier_init(shared_address(&shared.k_full[stage]), 1);
                mbarrier_init(shared_address(&shared.v_full[stage]), 1);
                mbarrier_init(shared_address(&shared.k_empty[stage]), CONSUMERS * 4);
                mbarrier_init(shared_address(&shared.v_empty[stage]), CONSUMERS * 4);
            }
            fence_mbarrier_init();
        }
        __syncthreads();  // the barriers are there before anyone uses them
        const int warpgroup = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / WARPGROUP), 0);  // uniform, and ptxas sees it
        if (warpgroup == CONSUMERS) {
            setmaxnreg_dec<PRODUCER_REGISTERS>();
            if (threadIdx.x == CONSUMERS * WARPGROUP) produce(shared, map_q, map_k, map_v, work);
        } else {
            setmaxnreg_inc<CONSUMER_REGISTERS>();
            Consumer consumer(shared, work, map_o, warpgroup, scale * LOG2_E);
            consumer.run();
        }
    }
};
