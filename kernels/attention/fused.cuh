// The body of fused attention forward, for every element type: online softmax over tiles of keys, no Lq x Lk intermediate.
//
// A CTA owns BLOCK_Q queries of one head. Its threads form ROW_THREADS x COL_THREADS; a thread holds the scores of ROWS queries x
// KV_COLS keys and the output of the same queries x D_COLS columns, so that eight 16-byte reads of shared memory feed 128 products.
// Q and K pass through shared memory in chunks of DEPTH columns, V in chunks of DEPTH_V keys; while one chunk is multiplied, the
// next is on its way through registers into the other buffer. Names follow the FlashAttention papers: S scores, P = exp(S - m), m, l.
#pragma once
#include "common/types.cuh"

template <typename Element, int HEAD_DIM_>
struct AttentionFused {
    static constexpr int D = HEAD_DIM_, BLOCK_Q = 64, BLOCK_KV = 128, THREADS = 128;
    static constexpr int VEC = Vec16<Element>::ELEMS;
    static constexpr int COL_THREADS = 16, ROW_THREADS = THREADS / COL_THREADS;
    static constexpr int ROWS = BLOCK_Q / ROW_THREADS;
    static constexpr int KV_COLS = BLOCK_KV / COL_THREADS;
    static constexpr int D_COLS = D / COL_THREADS;
    static constexpr int DEPTH = sizeof(Element) == 2 ? 32 : 16;  // what a thread's registers hold on the way
    static constexpr int DEPTH_V = 2048 / D;                      // 8 KB
    static constexpr int CHUNKS = D / DEPTH;
    static constexpr int CHUNKS_V = BLOCK_KV / DEPTH_V;
    static constexpr int VECS_Q = BLOCK_Q * DEPTH / (THREADS * VEC);  // 16-byte vectors of a thread in a chunk
    static constexpr int VECS_K = BLOCK_KV * DEPTH / (THREADS * VEC);
    static constexpr int VECS_V = DEPTH_V * D / (THREADS * VEC);
    static_assert(ROWS == 8 && KV_COLS == 8 && D_COLS % 4 == 0, "rows are read as two vectors, columns as runs of four");
    static_assert(DEPTH % VEC == 0 && VECS_Q * THREADS * VEC == BLOCK_Q * DEPTH && VECS_V * THREADS * VEC == DEPTH_V * D,
                  "all threads load the same number of 16-byte vectors");

    // Transposed; where neighbouring lanes write different vectors of a row, these go to different banks: rows swap places in eights.
    struct Chunk {
        alignas(16) float q[DEPTH][BLOCK_Q];   // scaled by scale * log2(e)
        alignas(16) float k[DEPTH][BLOCK_KV];
    };
    static constexpr int VECS_A_ROW = DEPTH / VEC;
    static_assert(VECS_A_ROW == 4, "four lanes read 64 bytes of a row; eights of rows swap places within 32");
    struct Weights {
        alignas(16) float p[BLOCK_Q][BLOCK_KV];  // in every other group of ROWS queries, neighbouring fours of keys swap places
        alignas(16) float v[2][DEPTH_V][D];
    };
    union SharedStorage {
        Chunk chunks[2];
        Weights weights;  // once the scores are there
    };

    // What one thread keeps between tiles.
    struct Accumulator {
        float o[ROWS][D_COLS] = {};
        float m[ROWS];       // running maximum of the scaled scores, -inf before the first valid key
        float l[ROWS] = {};  // this thread's part of the running sum of P
        __device__ __forceinline__ Accumulator() {
#pragma unroll
            for (int r = 0; r < ROWS; ++r) m[r] = negative_infinity();
        }
    };

    // Where this thread stands in the tile.
    struct Place {
        int row;  // its first query
        int col;  // its first key or column; four in a row, then COL_THREADS * 4 further
        __device__ __forceinline__ Place()
            : row(static_cast<int>(threadIdx.x) / COL_THREADS * ROWS), col(static_cast<int>(threadIdx.x) % COL_THREADS * 4) {}
    };
    static __device__ __forceinline__ constexpr int column(int c) { return c / 4 * COL_THREADS * 4 + c % 4; }

    // Reads this thread's vectors of columns [col0, col0 + DEPTH) of ROWS_ rows; zeros at and after row `rows`.
    template <int VECS>
    static __device__ __forceinline__ void fetch_columns(const Element* __restrict__ source /* [rows, D] */, Vec16<Element> (&vecs)[VECS],
                                                         int row0, int rows, int col0) {
        const int vec = static_cast<int>(threadIdx.x) % VECS_A_ROW;
#pragma unroll
        for (int i = 0; i < VECS; ++i) {
            const int row = row0 + static_cast<int>(threadIdx.x) / VECS_A_ROW + i * (THREADS / VECS_A_ROW);
            vecs[i] = Vec16<Element>{};
            if (row < rows) vecs[i] = load_vec(source + static_cast<size_t>(row) * D + col0 + vec * VEC);
        }
    }

    // Writes what fetch_columns read, transposed.
    template <int ROWS_, int VECS>
    static __device__ __forceinline__ void put_columns(const Vec16<Element> (&vecs)[VECS], float (*dest)[ROWS_] /* [DEPTH][ROWS_] */,
                                                       float factor) {
        const int vec = static_cast<int>(threadIdx.x) % VECS_A_ROW;
#pragma unroll
        for (int i = 0; i < VECS; ++i) {
            const int row = static_cast<int>(threadIdx.x) / VECS_A_ROW + i * (THREADS / VECS_A_ROW);
#pragma unroll
            for (int j = 0; j < VEC; ++j) dest[vec * VEC + j][row ^ vec * 8] = to_f32(vecs[i].elems[j]) * factor;
        }
    }

    // Reads this thread's vectors of rows [row0, row0 + DEPTH_V); zeros at and after row `rows`, so that padding never meets P = 0.
    static __device__ __forceinline__ void fetch_rows(const Element* __restrict__ source /* [rows, D] */, Vec16<Element> (&vecs)[VECS_V],
                                                      int row0, int rows) {
#pragma unroll
        for (int i = 0; i < VECS_V; ++i) {
            const int slot = static_cast<int>(threadIdx.x) + i * THREADS;
            const int row = row0 + slot / (D / VEC);
            vecs[i] = Vec16<Element>{};
            if (row < rows) vecs[i] = load_vec(source + static_cast<size_t>(row) * D + slot % (D / VEC) * VEC);
        }
    }

    static __device__ __forceinline__ void put_rows(const Vec16<Element> (&vecs)[VECS_V], float (*dest)[D] /* [DEPTH_V][D] */) {
#pragma unroll
        for (int i = 0; i < VECS_V; ++i) {
            const int slot = static_cast<int>(threadIdx.x) + i * THREADS;
#pragma unroll
            for (int j = 0; j < VEC; ++j) dest[slot / (D / VEC)][slot % (D / VEC) * VEC + j] = to_f32(vecs[i].elems[j]);
        }
    }

    static __device__ __forceinline__ Vec16<Element> load_vec(const Element* __restrict__ source /* 16-byte aligned */) {
        return *reinterpret_cast<const Vec16<Element>*>(source);
    }

    // Place `i` of a walk that turns back in every other column: one operand stays in the reuse cache, the others alternate banks.
    static __device__ __forceinline__ constexpr int serpentine(int i, int column, int count) { return column % 2 ? count - 1 - i : i; }

    // S += Q K^T over one chunk of columns, for this thread's queries and keys.
    static __device__ __forceinline__ void multiply_chunk(const Chunk& chunk, const Place& place, float (&s)[ROWS][KV_COLS]) {
#pragma unroll 1
        for (int vec = 0; vec < VECS_A_ROW; ++vec) {
            const float* q_row = &chunk.q[vec * VEC][place.row ^ vec * 8];
            const float* k_row = &chunk.k[vec * VEC][place.col ^ vec * 8];
// On 10.x and later nvcc 13.0 spills 8 bytes where it unrolls all four steps of fp32.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#pragma unroll 2
#else
#pragma unroll
#endif
            for (int d = 0; d < VEC; ++d) {
                float q_part[ROWS];
                float k_part[KV_COLS];
#pragma unroll
                for (int i = 0; i < ROWS; i += 4) load_vec16(q_row + d * BLOCK_Q + i, q_part + i);
#pragma unroll
                for (int i = 0; i < KV_COLS; i += 4) load_vec16(k_row + d * BLOCK_KV + column(i), k_part + i);
#pragma unroll
                for (int c = 0; c < KV_COLS; ++c)
#pragma unroll
                    for (int i = 0; i < ROWS; ++i) {
                        const int r = serpentine(i, c, ROWS);
                        s[r][c] = fmaf(q_part[r], k_part[c], s[r][c]);
                    }
            }
        }
    }

    // S = Q K^T for this thread's queries and keys. Nobody reads shared memory any more when it begins.
    static __device__ __forceinline__ void scores(SharedStorage& shared, const Element* __restrict__ q, const Element* __restrict__ k,
                                                  const Place& place, int query0, int Lq, int key0, int kv_length, float factor,
                                                  float (&s)[ROWS][KV_COLS]) {
        Vec16<Element> q_vecs[VECS_Q];
        Vec16<Element> k_vecs[VECS_K];
#pragma unroll 1
        for (int chunk = -1; chunk < CHUNKS; ++chunk) {
            if (chunk + 1 < CHUNKS) {
                fetch_columns(q, q_vecs, query0, Lq, (chunk + 1) * DEPTH);
                fetch_columns(k, k_vecs, key0, kv_length, (chunk + 1) * DEPTH);
            }
            if (chunk >= 0) {
                __syncthreads();  // this chunk is complete, and nobody reads the one before
                multiply_chunk(shared.chunks[chunk % 2], place, s);
            }
            if (chunk + 1 < CHUNKS) {
                Chunk& next = shared.chunks[(chunk + 1) % 2];
                put_columns<BLOCK_Q>(q_vecs, next.q, factor);
                put_columns<BLOCK_KV>(k_vecs, next.k, 1.0f);
            }
        }
    }

    // Replaces S by P and rescales what was accumulated before.
    static __device__ __forceinline__ void softmax_step(float (&s)[ROWS][KV_COLS], Accumulator& acc) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            float tile_max = negative_infinity();
#pragma unroll
            for (int c = 0; c < KV_COLS; ++c) tile_max = fmaxf(tile_max, s[r][c]);
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
            }
            acc.m[r] = m_new;
            acc.l[r] = fmaf(acc.l[r], rescale, tile_sum);
#pragma unroll
            for (int c = 0; c < D_COLS; ++c) acc.o[r][c] *= rescale;
        }
    }

    // Minus infinity for keys that a query may not see.
    static __device__ __forceinline__ void mask(float (&s)[ROWS][KV_COLS], int key, int query, int kv_length, int shift, int causal) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int last_key = causal ? min(kv_length - 1, query + r + shift) : kv_length - 1;
#pragma unroll
            for (int c = 0; c < KV_COLS; ++c)
                if (key + column(c) > last_key) s[r][c] = negative_infinity();
        }
    }

    // Which place in a row of P the four keys from `key` on have: two groups of rows in a warp read different banks.
    static __device__ __forceinline__ int swapped(int key, int row) { return key ^ (row / ROWS % 2 * 4); }

    // O += P V over one chunk of keys.
    static __device__ __forceinline__ void accumulate_chunk(const Weights& weights, const float (*v)[D] /* [DEPTH_V][D] */, int key0,
                                                            const Place& place, Accumulator& acc) {
#pragma unroll 1
        for (int k = 0; k < DEPTH_V; k += 4) {
            float p_part[ROWS][4];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) load_vec16(&weights.p[place.row + r][swapped(key0 + k, place.row)], p_part[r]);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float v_part[D_COLS];
#pragma unroll
                for (int c = 0; c < D_COLS; c += 4) load_vec16(&v[k + i][place.col + column(c)], v_part + c);
#pragma unroll
                for (int c = 0; c < D_COLS; ++c)
#pragma unroll
                    for (int j = 0; j < ROWS; ++j) {
                        const int r = serpentine(j, c, ROWS);
                        acc.o[r][c] = fmaf(p_part[r][i], v_part[c], acc.o[r][c]);
                    }
            }
        }
    }

    // O += P V. Nobody reads chunks of Q and K any more when it begins.
    static __device__ __forceinline__ void accumulate(Weights& weights, const Element* __restrict__ v, const float (&s)[ROWS][KV_COLS],
                                                      const Place& place, int key0, int kv_length, Accumulator& acc) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
            for (int c = 0; c < KV_COLS; c += 4) {
                Vec16<float> four;
#pragma unroll
                for (int i = 0; i < 4; ++i) four.elems[i] = s[r][c + i];
                *reinterpret_cast<Vec16<float>*>(&weights.p[place.row + r][swapped(place.col + column(c), place.row)]) = four;
            }
        Vec16<Element> vecs[VECS_V];
        fetch_rows(v, vecs, key0, kv_length);
        put_rows(vecs, weights.v[0]);
#pragma unroll 1
        for (int chunk = 0; chunk < CHUNKS_V; ++chunk) {
            if (chunk + 1 < CHUNKS_V) fetch_rows(v, vecs, key0 + (chunk + 1) * DEPTH_V, kv_length);
            __syncthreads();  // P and this chunk are complete, and nobody reads the one before
            accumulate_chunk(weights, weights.v[chunk % 2], chunk * DEPTH_V, place, acc);
            if (chunk + 1 < CHUNKS_V) put_rows(vecs, weights.v[(chunk + 1) % 2]);
        }
    }

    static __device__ __forceinline__ void store(Element* __restrict__ o,  // [Lq, D]
                                                 const Accumulator& acc, const Place& place, int query0, int Lq) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            float sum = acc.l[r];
#pragma unroll
            for (int lane = COL_THREADS / 2; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
            if (query0 + place.row + r >= Lq) continue;
            const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;  // fully masked: 0, not 0/0
            Element* out = o + static_cast<size_t>(query0 + place.row + r) * D + place.col;
#pragma unroll
            for (int c = 0; c < D_COLS; ++c) out[column(c)] = from_f32<Element>(acc.o[r][c] * inverse);
        }
    }

    // q, k, v, o point at the start of this CTA's batch entry and head.
    static __device__ __forceinline__ void run(SharedStorage& shared, const Element* __restrict__ q,  // [Lq, D]
                                               const Element* __restrict__ k,                         // [Lk, D]
                                               const Element* __restrict__ v,                         // [Lk, D]
                                               Element* __restrict__ o,                               // [Lq, D]
                                               int kv_length, int query0, int Lq, int Lk, float scale, int causal) {
        constexpr float LOG2_E = 1.4426950408889634f;  // exp(x) = exp2(x * log2(e))
        const Place place;
        const int keys = causal ? min(kv_length, query0 + BLOCK_Q + Lk - Lq) : kv_length;  // seen by the last query of the CTA
        const int seen_by_all = causal ? min(kv_length, query0 + 1 + Lk - Lq) : kv_length;

        Accumulator acc;
#pragma unroll 1
        for (int key0 = 0; key0 < keys; key0 += BLOCK_KV) {
            float s[ROWS][KV_COLS] = {};
            scores(shared, q, k, place, query0, Lq, key0, kv_length, scale * LOG2_E, s);
            if (key0 + BLOCK_KV > seen_by_all) mask(s, key0 + place.col, query0 + place.row, kv_length, Lk - Lq, causal);
            softmax_step(s, acc);
            __syncthreads();  // nobody reads Q and K any more: P and V may take their place
            accumulate(shared.weights, v, s, place, key0, kv_length, acc);
            __syncthreads();  // nobody reads P and V any more
        }
        store(o, acc, place, query0, Lq);
    }
};
