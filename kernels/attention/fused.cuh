// The body of fused attention forward, for every element type: online softmax over tiles of keys, no Lq x Lk intermediate.
//
// A CTA owns BLOCK_Q queries of one head. Its threads form ROW_THREADS x COL_THREADS; a thread holds the scores of ROWS queries
// x KV_COLS keys and the output of the same queries x D_COLS columns. The COL_THREADS threads of a row group are neighbouring
// lanes, so that row maxima and sums are shuffles. Names follow the FlashAttention papers: S scores, P = exp(S - m), m, l.
#pragma once
#include "common/types.cuh"

template <typename Element, int HEAD_DIM_, int BLOCK_Q_, int BLOCK_KV_, int THREADS_, int COL_THREADS_>
struct AttentionFused {
    static constexpr int D = HEAD_DIM_, BLOCK_Q = BLOCK_Q_, BLOCK_KV = BLOCK_KV_, THREADS = THREADS_, COL_THREADS = COL_THREADS_;
    static constexpr int VEC = Vec16<Element>::ELEMS;
    static constexpr int ROW_THREADS = THREADS / COL_THREADS;
    static constexpr int ROWS = 4;  // one 16-byte read of shared memory gives a thread's queries
    static constexpr int KV_COLS = BLOCK_KV / COL_THREADS;
    static constexpr int D_COLS = D / COL_THREADS;
    static constexpr int PAD = 4;  // spreads the transposed stores over the banks and keeps rows 16-byte aligned
    static_assert(ROW_THREADS * ROWS == BLOCK_Q, "every thread owns four queries");
    static_assert(COL_THREADS == 8 || COL_THREADS == 16, "a row group lies within one warp");
    static_assert(BLOCK_KV % COL_THREADS == 0 && D_COLS % 4 == 0, "keys and columns divide evenly over a row group");
    static_assert(D % VEC == 0 && BLOCK_Q * D % (THREADS * VEC) == 0 && BLOCK_KV * D % (THREADS * VEC) == 0,
                  "all threads load the same number of 16-byte vectors");

    struct SharedStorage {
        alignas(16) float q[D][BLOCK_Q + PAD];         // transposed, scaled by scale * log2(e)
        alignas(16) float k[D][BLOCK_KV + PAD];        // transposed
        alignas(16) float v[BLOCK_KV][D];              // as stored
        alignas(16) float p[BLOCK_KV][BLOCK_Q + PAD];  // transposed
    };

    // What one thread keeps between tiles.
    struct Accumulator {
        float o[ROWS][D_COLS] = {};
        float m[ROWS];       // running maximum of the scaled scores, -inf before the first valid key
        float l[ROWS] = {};  // running sum of P
        __device__ __forceinline__ Accumulator() {
#pragma unroll
            for (int r = 0; r < ROWS; ++r) m[r] = negative_infinity();
        }
    };

    // Copies rows [row0, row0 + ROWS_) x D into dest transposed and scaled; zeros at and after row `rows`.
    template <int ROWS_>
    static __device__ __forceinline__ void load_transposed(const Element* __restrict__ source,  // [rows, D]
                                                           float (*dest)[ROWS_ + PAD],          // [D][ROWS_ + PAD]
                                                           int row0, int rows, float factor) {
#pragma unroll
        for (int i = 0; i < ROWS_ * D / (THREADS * VEC); ++i) {
            const int slot = static_cast<int>(threadIdx.x) + i * THREADS;
            const int row = slot % ROWS_;
            const int col = slot / ROWS_ * VEC;
            float values[VEC] = {};
            if (row0 + row < rows) load_vec16(source + static_cast<size_t>(row0 + row) * D + col, values);
#pragma unroll
            for (int j = 0; j < VEC; ++j) dest[col + j][row] = values[j] * factor;
        }
    }

    // Copies rows [row0, row0 + BLOCK_KV) x D into dest; zeros at and after row `rows`, so that padding never meets P = 0.
    static __device__ __forceinline__ void load_rows(const Element* __restrict__ source,  // [rows, D]
                                                     float (*dest)[D],                    // [BLOCK_KV][D]
                                                     int row0, int rows) {
#pragma unroll
        for (int i = 0; i < BLOCK_KV * D / (THREADS * VEC); ++i) {
            const int slot = static_cast<int>(threadIdx.x) + i * THREADS;
            const int row = slot / (D / VEC);
            const int col = slot % (D / VEC) * VEC;
            float values[VEC] = {};
            if (row0 + row < rows) load_vec16(source + static_cast<size_t>(row0 + row) * D + col, values);
#pragma unroll
            for (int j = 0; j < VEC; ++j) dest[row][col + j] = values[j];
        }
    }

    // S = Q K^T for this thread's queries and keys.
    static __device__ __forceinline__ void scores(const SharedStorage& shared, int row, int key, float (&s)[ROWS][KV_COLS]) {
#pragma unroll 8
        for (int d = 0; d < D; ++d) {
            float q_part[ROWS];
            load_vec16(&shared.q[d][row], q_part);
#pragma unroll
            for (int c = 0; c < KV_COLS; ++c) {
                const float k_value = shared.k[d][key + c];
#pragma unroll
                for (int r = 0; r < ROWS; ++r) s[r][c] = fmaf(q_part[r], k_value, s[r][c]);
            }
        }
    }

    // Replaces S by P, rescales what was accumulated before, and publishes P. last_key[r]: the last key that query may see.
    static __device__ __forceinline__ void softmax_step(SharedStorage& shared, float (&s)[ROWS][KV_COLS], Accumulator& acc, int row,
                                                        int key, int key0, const int (&last_key)[ROWS]) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            float tile_max = negative_infinity();
#pragma unroll
            for (int c = 0; c < KV_COLS; ++c) {
                if (key0 + key + c > last_key[r]) s[r][c] = negative_infinity();
                tile_max = fmaxf(tile_max, s[r][c]);
            }
#pragma unroll
            for (int lane = COL_THREADS / 2; lane > 0; lane /= 2)
                tile_max = fmaxf(tile_max, __shfl_xor_sync(0xffffffffu, tile_max, lane));
            const float m_new = fmaxf(acc.m[r], tile_max);
            // While a query has seen no valid key, its maximum is -inf; 0 in its place avoids -inf - -inf = NaN.
            const float m_safe = m_new == negative_infinity() ? 0.0f : m_new;
            const float rescale = exp2f(acc.m[r] - m_safe);
            float tile_sum = 0.0f;
#pragma unroll
            for (int c = 0; c < KV_COLS; ++c) {
                s[r][c] = exp2f(s[r][c] - m_safe);
                tile_sum += s[r][c];
                shared.p[key + c][row + r] = s[r][c];
            }
#pragma unroll
            for (int lane = COL_THREADS / 2; lane > 0; lane /= 2) tile_sum += __shfl_xor_sync(0xffffffffu, tile_sum, lane);
            acc.m[r] = m_new;
            acc.l[r] = fmaf(acc.l[r], rescale, tile_sum);
#pragma unroll
            for (int c = 0; c < D_COLS; ++c) acc.o[r][c] *= rescale;
        }
    }

    // O += P V. A thread's columns are runs of four, COL_THREADS * 4 apart, so that neighbours read neighbouring banks.
    static __device__ __forceinline__ void accumulate(const SharedStorage& shared, int row, int col_thread, Accumulator& acc) {
#pragma unroll 4
        for (int k = 0; k < BLOCK_KV; ++k) {
            float p_part[ROWS];
            load_vec16(&shared.p[k][row], p_part);
#pragma unroll
            for (int run = 0; run < D_COLS / 4; ++run) {
                float v_part[4];
                load_vec16(&shared.v[k][(run * COL_THREADS + col_thread) * 4], v_part);
#pragma unroll
                for (int r = 0; r < ROWS; ++r)
#pragma unroll
                    for (int c = 0; c < 4; ++c) acc.o[r][run * 4 + c] = fmaf(p_part[r], v_part[c], acc.o[r][run * 4 + c]);
            }
        }
    }

    static __device__ __forceinline__ void store(Element* __restrict__ o,  // [Lq, D]
                                                 const Accumulator& acc, int query0, int col_thread, int Lq) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (query0 + r >= Lq) continue;
            const float inverse = acc.l[r] > 0.0f ? 1.0f / acc.l[r] : 0.0f;  // fully masked: 0, not 0/0
            Element* out = o + static_cast<size_t>(query0 + r) * D;
#pragma unroll
            for (int c = 0; c < D_COLS; ++c)
                out[(c / 4 * COL_THREADS + col_thread) * 4 + c % 4] = from_f32<Element>(acc.o[r][c] * inverse);
        }
    }

    // q, k, v, o point at the start of this CTA's batch entry and head.
    static __device__ __forceinline__ void run(SharedStorage& shared, const Element* __restrict__ q,  // [Lq, D]
                                               const Element* __restrict__ k,                         // [Lk, D]
                                               const Element* __restrict__ v,                         // [Lk, D]
                                               Element* __restrict__ o,                               // [Lq, D]
                                               int kv_length, int Lq, int Lk, float scale, int causal) {
        constexpr float LOG2_E = 1.4426950408889634f;  // exp(x) = exp2(x * log2(e))
        const int row = static_cast<int>(threadIdx.x) / COL_THREADS * ROWS;
        const int col_thread = static_cast<int>(threadIdx.x) % COL_THREADS;
        const int key = col_thread * KV_COLS;
        const int query0 = blockIdx.x * BLOCK_Q;
        int last_key[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) last_key[r] = causal ? min(kv_length - 1, query0 + row + r + Lk - Lq) : kv_length - 1;
        const int keys = causal ? min(kv_length, query0 + BLOCK_Q + Lk - Lq) : kv_length;  // seen by the last query of the CTA

        load_transposed<BLOCK_Q>(q, shared.q, query0, Lq, scale * LOG2_E);
        Accumulator acc;
        for (int key0 = 0; key0 < keys; key0 += BLOCK_KV) {
            load_transposed<BLOCK_KV>(k, shared.k, key0, kv_length, 1.0f);
            load_rows(v, shared.v, key0, kv_length);
            __syncthreads();  // Q (first time), K and V are complete before anyone reads them
            float s[ROWS][KV_COLS] = {};
            scores(shared, row, key, s);
            softmax_step(shared, s, acc, row, key, key0, last_key);
            __syncthreads();  // P is complete before anyone reads it
            accumulate(shared, row, col_thread, acc);
            __syncthreads();  // all have read K, V and P before the next tile overwrites them
        }
        store(o, acc, query0 + row, col_thread, Lq);
    }
};
