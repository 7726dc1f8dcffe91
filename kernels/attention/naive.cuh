// The naive attention, for every element type, as three kernels with the whole Lq x Lk matrix of scores in memory: scores, softmax in
// place, weighted sum. One thread for each score, row, output value. Sums are kept in parts of PART terms: a thousand terms one by one
// would err more than libraries do.
#pragma once
#include "common/types.cuh"

template <typename Element, int HEAD_DIM_>
struct AttentionNaive {
    static constexpr int D = HEAD_DIM_;
    static constexpr int PART = 16;

    // S = scale * Q K^T for one score; keys that the query may not see get minus infinity and are not read.
    static __device__ __forceinline__ void score(const Element* __restrict__ q,  // [Lq, D]
                                                 const Element* __restrict__ k,  // [Lk, D]
                                                 float* __restrict__ s,          // [Lq, Lk]
                                                 int query, int key, int keys_seen, int Lk, float scale) {
        float sum = 0.0f;
        for (int d0 = 0; d0 < (key < keys_seen ? D : 0); d0 += PART) {
            float part = 0.0f;
            for (int d = d0; d < d0 + PART; ++d)
                part = fmaf(to_f32(q[static_cast<size_t>(query) * D + d]), to_f32(k[static_cast<size_t>(key) * D + d]), part);
            sum += part;
        }
        s[static_cast<size_t>(query) * Lk + key] = key < keys_seen ? sum * scale : negative_infinity();
    }

    // P = softmax(S) for one row, in three passes; 0 for a query that sees no key.
    static __device__ __forceinline__ void softmax(float* __restrict__ row /* [Lk] */, int Lk) {
        float maximum = negative_infinity();
        for (int key = 0; key < Lk; ++key) maximum = fmaxf(maximum, row[key]);
        if (maximum == negative_infinity()) maximum = 0.0f;  // -inf - -inf would be NaN
        float sum = 0.0f;
        for (int key0 = 0; key0 < Lk; key0 += PART) {
            float part = 0.0f;
            for (int key = key0; key < min(key0 + PART, Lk); ++key) {
                row[key] = expf(row[key] - maximum);
                part += row[key];
            }
            sum += part;
        }
        const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
        for (int key = 0; key < Lk; ++key) row[key] *= inverse;
    }

    // O = P V for one value.
    static __device__ __forceinline__ void value(const float* __restrict__ p,    // [Lq, Lk]
                                                 const Element* __restrict__ v,  // [Lk, D]
                                                 Element* __restrict__ o,        // [Lq, D]
                                                 int query, int d, int keys_seen, int Lk) {
        float sum = 0.0f;
        for (int key0 = 0; key0 < keys_seen; key0 += PART) {
            float part = 0.0f;
            for (int key = key0; key < min(key0 + PART, keys_seen); ++key)
                part = fmaf(p[static_cast<size_t>(query) * Lk + key], to_f32(v[static_cast<size_t>(key) * D + d]), part);
            sum += part;
        }
        o[static_cast<size_t>(query) * D + d] = from_f32<Element>(sum);
    }
};

// How many keys `query` may see: the first ones, as both masks cut off the end.
__device__ __forceinline__ int keys_seen(int query, int kv_length, int Lq, int Lk, int causal) {
    return causal ? min(kv_length, query + 1 + Lk - Lq) : kv_length;
}
