// attn_fwd_f16_naive_sm50: O = softmax(scale * Q K^T + mask) V as three kernels. fp16 in and out, fp32 sums and scores.
// The rung that the others are held against: it works everywhere, and each line of it is the definition. Its idea is to have none.
// Row-major Q, O [batch, heads, Lq, HEAD_DIM]; K, V [batch, kv_heads, Lk, HEAD_DIM]; grouped heads share K and V.
// Masks:   keys from kv_lengths[batch] on are padding and never read; causal lets query i see keys j <= i + Lk - Lq (the last
//          query sees all keys). A query that sees no key gives 0.
// Shapes:  any Lq, Lk >= 1; HEAD_DIM 64 or 128 (macro); batch * heads <= 65,535.
// Tile:    one thread a score, row or value; 256 threads. Grids: scores (cdiv(Lk, 256), Lq, batch * heads); softmax
//          (cdiv(Lq, 256), 1, batch * heads); values (cdiv(Lq * HEAD_DIM, 256), 1, batch * heads).
// Smem:    none.
// Regs:    at most 64 a thread.
// Memory:  the scores, batch * heads * Lq * Lk * 4 B, are written and read three times over: 2 FLOP/B at HEAD_DIM 64.
#include "attention/naive.cuh"

#ifndef HEAD_DIM
#define HEAD_DIM 64
#endif
static_assert(HEAD_DIM == 64 || HEAD_DIM == 128, "as the other rungs");

constexpr int THREADS = 256;
using Attention = AttentionNaive<f16, HEAD_DIM>;

// All three take the same parameters.
#define ATTENTION_PARAMETERS \
    const f16*__restrict__ q,             /* [batch, heads, Lq, HEAD_DIM] */ \
        const f16*__restrict__ k,         /* [batch, kv_heads, Lk, HEAD_DIM] */ \
        const f16*__restrict__ v,         /* [batch, kv_heads, Lk, HEAD_DIM] */ \
        f16*__restrict__ o,               /* [batch, heads, Lq, HEAD_DIM] */ \
        const int *__restrict__ kv_lengths, /* [batch], each 0 to Lk */ \
        int heads, int kv_heads, int Lq, int Lk, float scale, int causal, float *__restrict__ scores /* [batch, heads, Lq, Lk] */

extern "C" __global__ void __launch_bounds__(THREADS) attn_fwd_f16_naive_sm50_scores(ATTENTION_PARAMETERS) {
    const int key = blockIdx.x * THREADS + threadIdx.x;
    const int query = blockIdx.y;
    const size_t head = blockIdx.z;
    const int batch = blockIdx.z / heads;
    const size_t kv_head = batch * kv_heads + (blockIdx.z - batch * heads) / (heads / kv_heads);
    if (key < Lk)
        Attention::score(q + head * Lq * HEAD_DIM, k + kv_head * Lk * HEAD_DIM, scores + head * Lq * Lk, query, key,
                         keys_seen(query, kv_lengths[batch], Lq, Lk, causal), Lk, scale);
}

extern "C" __global__ void __launch_bounds__(THREADS) attn_fwd_f16_naive_sm50_softmax(ATTENTION_PARAMETERS) {
    const int query = blockIdx.x * THREADS + threadIdx.x;
    if (query < Lq) Attention::softmax(scores + (static_cast<size_t>(blockIdx.z) * Lq + query) * Lk, Lk);
}

extern "C" __global__ void __launch_bounds__(THREADS) attn_fwd_f16_naive_sm50_values(ATTENTION_PARAMETERS) {
    const int place = blockIdx.x * THREADS + threadIdx.x;
    const int query = place / HEAD_DIM;
    const size_t head = blockIdx.z;
    const int batch = blockIdx.z / heads;
    const size_t kv_head = batch * kv_heads + (blockIdx.z - batch * heads) / (heads / kv_heads);
    if (query < Lq)
        Attention::value(scores + head * Lq * Lk, v + kv_head * Lk * HEAD_DIM, o + head * Lq * HEAD_DIM, query, place % HEAD_DIM,
                         keys_seen(query, kv_lengths[batch], Lq, Lk, causal), Lk);
}
