// The body of the sm_80 attention: mma.sync fed by ldmatrix from tiles that cp.async fills. A CTA owns BLOCK_Q queries, a warp
// WARP_Q of them: with 32, each fragment of K and V feeds two mma. K and V have one buffer each: V arrives during Q K^T, the next K
// during softmax and P V; two CTAs on an SM fill each other's waits.
#pragma once
#include "attention/online_softmax.cuh"
#include "attention/tiles.cuh"

constexpr int CHUNK_ELEMS = 8;  // 16 bytes: one copy, one row of an ldmatrix matrix
constexpr int MMA_ROWS = 16;
constexpr int MMA_K = 16;

template <typename Element, int HEAD_DIM_, int WARPS, int WARP_Q, int BLOCK_KV_>
struct AttentionMmaSm80 {
    static constexpr int D = HEAD_DIM_;
    static constexpr int BLOCK_Q = WARPS * WARP_Q;
    static constexpr int BLOCK_KV = BLOCK_KV_;
    static constexpr int THREADS = WARPS * 32;
    static constexpr int ROW_BYTES = D * 2;
    static constexpr int CHUNKS = D / CHUNK_ELEMS;
    static constexpr int ROWS_A_PASS = THREADS / CHUNKS;
    static constexpr int TILES_Q = WARP_Q / MMA_ROWS;
    static constexpr int S_REGS = BLOCK_KV / 2;
    static constexpr int O_REGS = D / 2;
    static_assert(BLOCK_KV % 16 == 0 && D % 16 == 0 && BLOCK_Q % ROWS_A_PASS == 0 && ROWS_A_PASS % 8 == 0,
                  "whole fragments, and a thread's chunk has the same swizzle in each pass");

    struct SharedStorage {
        alignas(1024) Element q[BLOCK_Q * D];   // [BLOCK_Q, D], swizzled; at the end O
        alignas(1024) Element k[BLOCK_KV * D];  // [BLOCK_KV, D], swizzled
        alignas(1024) Element v[BLOCK_KV * D];  // [BLOCK_KV, D], swizzled
    };

    // Byte offset of chunk `chunk` of row `row`: XOR with the row spreads a column of chunks over all banks.
    static __device__ __forceinline__ int swizzled(int row, int chunk) { return row * ROW_BYTES + ((chunk ^ (row & 7)) << 4); }

    // Starts copying rows [row0, row0 + ROWS) of `source`; zeros at and after row `rows`, which are never read.
    template <int ROWS>
    static __device__ __forceinline__ void copy_rows(const Element* __restrict__ source /* [rows, D] */, unsigned target /* shared */,
                                                     int row0, int rows) {
        const int chunk = threadIdx.x % CHUNKS;
        const int row = threadIdx.x / CHUNKS;
        const Element* from = source + static_cast<size_t>(row0 + row) * D + chunk * CHUNK_ELEMS;
        const unsigned to = target + swizzled(row, chunk);
#pragma unroll
        for (int pass = 0; pass < (ROWS + ROWS_A_PASS - 1) / ROWS_A_PASS; ++pass) {
            if (ROWS % ROWS_A_PASS && row + pass * ROWS_A_PASS >= ROWS) continue;
            const bool inside = row0 + row + pass * ROWS_A_PASS < rows;
            cp_async_16(to + pass * ROWS_A_PASS * ROW_BYTES, from + pass * ROWS_A_PASS * D, inside ? 16 : 0);
        }
    }

    // S = Q K^T for this warp's queries.
    static __device__ __forceinline__ void scores(float (&s)[TILES_Q][S_REGS], unsigned q /* shared */, unsigned k /* shared */, int q_lane,
                                                  int k_lane) {
#pragma unroll
        for (int t = 0; t < TILES_Q; ++t)
#pragma unroll
            for (int i = 0; i < S_REGS; ++i) s[t][i] = 0.0f;
#pragma unroll
        for (int step = 0; step < D / MMA_K; ++step) {
            unsigned q_part[TILES_Q][4];
#pragma unroll
            for (int t = 0; t < TILES_Q; ++t) ldmatrix_x4(q_part[t], q + t * MMA_ROWS * ROW_BYTES + static_cast<unsigned>(q_lane ^ step * 32));
#pragma unroll
            for (int n = 0; n < BLOCK_KV / 16; ++n) {
                unsigned k_part[4];
                ldmatrix_x4(k_part, k + n * 16 * ROW_BYTES + static_cast<unsigned>(k_lane ^ step * 32));
#pragma unroll
                for (int t = 0; t < TILES_Q; ++t)
#pragma unroll
                    for (int half = 0; half < 2; ++half)
                        mma_m16n8k16<Element>(reinterpret_cast<float(&)[4]>(s[t][n * 8 + half * 4]), q_part[t], k_part[half * 2],
                                              k_part[half * 2 + 1]);
            }
        }
    }

    // O += P V for this warp's queries; P is packed pair by pair.
    static __device__ __forceinline__ void output(float (&o)[TILES_Q][O_REGS], const unsigned (&p)[TILES_Q][S_REGS / 2], unsigned v /* shared */,
                                                  int v_lane) {
#pragma unroll
        for (int step = 0; step < BLOCK_KV / MMA_K; ++step)
#pragma unroll
            for (int n = 0; n < D / 16; ++n) {
                unsigned v_part[4];
                ldmatrix_x4_trans(v_part, v + step * MMA_K * ROW_BYTES + static_cast<unsigned>(v_lane ^ n * 32));
#pragma unroll
                for (int t = 0; t < TILES_Q; ++t)
#pragma unroll
                    for (int half = 0; half < 2; ++half)
                        mma_m16n8k16<Element>(reinterpret_cast<float(&)[4]>(o[t][n * 8 + half * 4]),
                                              reinterpret_cast<const unsigned(&)[4]>(p[t][step * 4]), v_part[half * 2], v_part[half * 2 + 1]);
            }
    }

    // Writes this warp's queries through its part of Q's memory in 16-byte pieces.
    static __device__ __forceinline__ void store(float (&o)[TILES_Q][O_REGS], const SoftmaxRows (&rows)[TILES_Q], Element* staged /* shared */,
                                                 Element* __restrict__ out /* [Lq, D] */, int query0, int Lq) {
        const int lane = threadIdx.x % 32;
        char* part = reinterpret_cast<char*>(staged);
#pragma unroll
        for (int t = 0; t < TILES_Q; ++t) {
            const float inverse[2] = {rows[t].inverse_sum(0), rows[t].inverse_sum(1)};
#pragma unroll
            for (int i = 0; i < O_REGS; i += 2) {
                const int r = i % 4 / 2;
                const int row = t * MMA_ROWS + r * 8 + lane / 4;
                *reinterpret_cast<unsigned*>(part + swizzled(row, i / 4) + lane % 4 * 4) =
                    cvt_rn_pair<Element>(o[t][i] * inverse[r], o[t][i + 1] * inverse[r]);
            }
        }
        __syncwarp();  // the warp's part is complete
#pragma unroll
        for (int i = 0; i < WARP_Q * CHUNKS / 32; ++i) {
            const int row = (i * 32 + lane) / CHUNKS;
            const int chunk = lane % CHUNKS;
            if (query0 + row < Lq)
                *reinterpret_cast<uint4*>(out + static_cast<size_t>(query0 + row) * D + chunk * CHUNK_ELEMS) =
                    *reinterpret_cast<const uint4*>(part + swizzled(row, chunk));
        }
    }

    static __device__ __forceinline__ void run(SharedStorage& shared, const Element* __restrict__ q, const Element* __restrict__ k,
                                               const Element* __restrict__ v, Element* __restrict__ o, const int* __restrict__ kv_lengths,
                                               const Sizes& sizes, int batch, float scale) {
        const int all_heads = batch * sizes.heads;
        const Tile tile = tile_of<BLOCK_Q>(blockIdx.x, sizes, cdiv(sizes.Lq, BLOCK_Q), all_heads, all_heads, kv_lengths);
        q += static_cast<size_t>(tile.head) * sizes.Lq * D;
        o += static_cast<size_t>(tile.head) * sizes.Lq * D;
        k += static_cast<size_t>(tile.kv_head) * sizes.Lk * D;
        v += static_cast<size_t>(tile.kv_head) * sizes.Lk * D;
        const float scale_log2 = scale * LOG2_E;
        const int lane = threadIdx.x % 32;
        const int warp = threadIdx.x / 32;
        const unsigned k_shared = shared_address(shared.k);
        const unsigned v_shared = shared_address(shared.v);
        const unsigned q_warp = shared_address(shared.q) + warp * WARP_Q * ROW_BYTES;
        const int q_lane = swizzled(lane % 16, lane / 16);                           // matrices: rows 0-7, 8-15, then the next chunk
        const int k_lane = swizzled(lane / 16 * 8 + lane % 8, lane / 8 % 2);         // keys 0-7 with both chunks, then 8-15
        const int v_lane = swizzled(lane % 16, lane / 16);                           // keys 0-7, 8-15 of one chunk, then the next
        const int query0 = tile.query0 + warp * WARP_Q;
        const int last_of_first = last_key(tile.query0, tile.kv_length, sizes);  // blocks up to here need no mask
        const int blocks = cdiv(max(tile.keys, 0), BLOCK_KV);

        SoftmaxRows rows[TILES_Q];
        float acc[TILES_Q][O_REGS] = {};
        if (blocks > 0) {
            copy_rows<BLOCK_Q>(q, shared_address(shared.q), tile.query0, sizes.Lq);
            copy_rows<BLOCK_KV>(k, k_shared, (blocks - 1) * BLOCK_KV, tile.kv_length);
            cp_async_commit_group();
        }
#pragma unroll 1
        for (int block = blocks - 1; block >= 0; --block) {
            const int key0 = block * BLOCK_KV;
            float s[TILES_Q][S_REGS];
            cp_async_wait_group<0>();
            __syncthreads();  // K (the first time Q) is there, from all threads; and all have read V
            copy_rows<BLOCK_KV>(v, v_shared, key0, tile.kv_length);
            cp_async_commit_group();
            scores(s, q_warp, k_shared, q_lane, k_lane);
            cp_async_wait_group<0>();
            __syncthreads();  // V is there, from all threads; and all have read K
            if (block > 0) copy_rows<BLOCK_KV>(k, k_shared, key0 - BLOCK_KV, tile.kv_length);
            cp_async_commit_group();
            unsigned p[TILES_Q][S_REGS / 2];
#pragma unroll
            for (int t = 0; t < TILES_Q; ++t) {
                if (key0 + BLOCK_KV - 1 > last_of_first) {
                    const int row = query0 + t * MMA_ROWS + lane / 4;
                    const int last[2] = {last_key(row, tile.kv_length, sizes), last_key(row + 8, tile.kv_length, sizes)};
                    mask_scores(s[t], key0 + lane % 4 * 2, last);
                }
                float maxima[2];
                float factor[2];
                SoftmaxRows::row_maxima(s[t], maxima);
                if (rows[t].raise(maxima, scale_log2, factor)) {
#pragma unroll
                    for (int i = 0; i < O_REGS; ++i) acc[t][i] *= factor[i % 4 / 2];
                }
                rows[t].exponentiate(s[t], scale_log2);
#pragma unroll
                for (int i = 0; i < S_REGS / 2; ++i) p[t][i] = cvt_rn_pair<Element>(s[t][2 * i], s[t][2 * i + 1]);
            }
            output(acc, p, v_shared, v_lane);
        }
        __syncthreads();  // nobody reads Q any more
        store(acc, rows, shared.q + warp * WARP_Q * D, o, query0, sizes.Lq);
    }
};
