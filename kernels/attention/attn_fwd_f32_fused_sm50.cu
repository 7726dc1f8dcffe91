// attn_fwd_f32_fused_sm50: O = softmax(scale * Q K^T + mask) V. fp32 in and out, fp32 accumulation.
// Row-major Q, O [batch, heads, Lq, HEAD_DIM]; K, V [batch, kv_heads, Lk, HEAD_DIM]; grouped heads share K and V.
// Masks:   keys from kv_lengths[batch] on are padding and never read; causal lets query i see keys j <= i + Lk - Lq (the last
//          query sees all keys). A query that sees no key gives 0.
// Shapes:  any Lq, Lk >= 1; HEAD_DIM 64 or 128 (macro); bases 16-byte aligned. Tails: zero-filled loads, clipped stores.
// Tile:    HEAD_DIM 64: 64 queries x 32 keys, 16 x 8 threads. HEAD_DIM 128: 32 queries x 16 keys, 8 x 16 threads.
//          Grid (cdiv(Lq, BLOCK_Q), heads, batch), 128 threads.
// Smem:    64:  Q 64*68*4 + K 64*36*4 + V 32*64*4 + P 32*68*4 = 43,520 B; limit without opt-in 49,152.
//          128: Q 128*36*4 + K 128*20*4 + V 16*128*4 + P 16*36*4 = 39,168 B.
// Regs:    at most 168 a thread; 128 * 168 = 21,504 of 65,536 -> 3 CTAs an SM; shared memory allows 1 on sm_50, 5 on sm_90.
// Intensity: BLOCK_Q * BLOCK_KV * D * 4 FLOP for 2 * BLOCK_KV * D elements of K and V: 32 FLOP/B from L2 at HEAD_DIM 64.
// Sources: online softmax, Milakov and Gimelshein 2018; FlashAttention-2, Dao 2023, algorithm 1.
#include "attention/fused.cuh"

#ifndef HEAD_DIM
#define HEAD_DIM 64
#endif
static_assert(HEAD_DIM == 64 || HEAD_DIM == 128, "tiles are chosen for these two");

constexpr int BLOCK_Q = HEAD_DIM == 64 ? 64 : 32;
constexpr int BLOCK_KV = HEAD_DIM == 64 ? 32 : 16;
constexpr int THREADS = 128;
constexpr int COL_THREADS = HEAD_DIM == 64 ? 8 : 16;
using Attention = AttentionFused<float, HEAD_DIM, BLOCK_Q, BLOCK_KV, THREADS, COL_THREADS>;
static_assert(sizeof(Attention::SharedStorage) == (HEAD_DIM == 64 ? 43520 : 39168), "the budget above");
static_assert(sizeof(Attention::SharedStorage) <= 49152, "static shared memory of every architecture");

extern "C" __global__ void __launch_bounds__(THREADS, 3)
    attn_fwd_f32_fused_sm50(const float* __restrict__ q,            // [batch, heads, Lq, HEAD_DIM]
                            const float* __restrict__ k,            // [batch, kv_heads, Lk, HEAD_DIM]
                            const float* __restrict__ v,            // [batch, kv_heads, Lk, HEAD_DIM]
                            float* __restrict__ o,                  // [batch, heads, Lq, HEAD_DIM]
                            const int* __restrict__ kv_lengths,  // [batch], each 0 to Lk
                            int heads, int kv_heads, int Lq, int Lk, float scale, int causal) {
    __shared__ Attention::SharedStorage shared;
    const size_t q_head = static_cast<size_t>(blockIdx.z) * heads + blockIdx.y;
    const size_t kv_head = static_cast<size_t>(blockIdx.z) * kv_heads + blockIdx.y / (heads / kv_heads);
    Attention::run(shared, q + q_head * Lq * HEAD_DIM, k + kv_head * Lk * HEAD_DIM, v + kv_head * Lk * HEAD_DIM,
                   o + q_head * Lq * HEAD_DIM, kv_lengths[blockIdx.z], Lq, Lk, scale, causal);
}
