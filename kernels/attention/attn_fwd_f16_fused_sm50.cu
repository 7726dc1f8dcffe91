// attn_fwd_f16_fused_sm50: O = softmax(scale * Q K^T + mask) V. fp16 in and out, fp32 accumulation.
// The idea over naive: online softmax over tiles of keys, so that no score ever leaves the SM.
// Row-major Q, O [batch, heads, Lq, HEAD_DIM]; K, V [batch, kv_heads, Lk, HEAD_DIM]; grouped heads share K and V.
// Masks:   keys from kv_lengths[batch] on are padding and never read; causal lets query i see keys j <= i + Lk - Lq (the last
//          query sees all keys). A query that sees no key gives 0.
// Shapes:  any Lq, Lk >= 1; HEAD_DIM 64 or 128 (macro); bases 16-byte aligned. Tails: zero-filled loads, clipped stores.
// Tile:    64 queries x 128 keys, 8 x 16 threads of 8 x 8 scores; Q and K in chunks of 32 columns, V in chunks of 8 KB, two buffers each.
//          Grid (cdiv(Lq, 64), heads, batch), 128 threads.
// Smem:    P 64*128*4 + V 2 * 2048*4 = 49,152 B, before that 2 chunks of (64 + 128)*32*4 B; limit without opt-in 49,152.
// Regs:    at most 255 a thread; 128 * 255 = 32,640 of 65,536 -> 2 CTAs an SM; shared memory allows 1 on sm_50, 4 on sm_90.
// Intensity: four 16-byte reads of shared memory feed 64 FFMA; 64 queries share each key and value. Bound by FFMA and its register banks.
// Sources: online softmax, Milakov and Gimelshein 2018; FlashAttention-2, Dao 2023, algorithm 1.
#include "attention/fused.cuh"

#ifndef HEAD_DIM
#define HEAD_DIM 64
#endif
static_assert(HEAD_DIM == 64 || HEAD_DIM == 128, "tiles are chosen for these two");

constexpr int THREADS = 128;
using Attention = AttentionFused<f16, HEAD_DIM>;
static_assert(Attention::THREADS == THREADS && Attention::BLOCK_Q == 64, "the tile above");
static_assert(sizeof(Attention::SharedStorage) == 49152, "the budget above: static shared memory of every architecture");

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    attn_fwd_f16_fused_sm50(const f16* __restrict__ q,            // [batch, heads, Lq, HEAD_DIM]
                            const f16* __restrict__ k,            // [batch, kv_heads, Lk, HEAD_DIM]
                            const f16* __restrict__ v,            // [batch, kv_heads, Lk, HEAD_DIM]
                            f16* __restrict__ o,                  // [batch, heads, Lq, HEAD_DIM]
                            const int* __restrict__ kv_lengths,  // [batch], each 0 to Lk
                            int heads, int kv_heads, int Lq, int Lk, float scale, int causal) {
    __shared__ Attention::SharedStorage shared;
    // CTAs start in the order of their index: the longest tiles of all heads come first, so that short ones fill the end.
    const int all_heads = gridDim.y * gridDim.z;
    const int index = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const int turn = index / all_heads;
    const size_t head = index - turn * all_heads;
    const int batch = static_cast<int>(head) / heads;
    const size_t kv_head = batch * kv_heads + (static_cast<int>(head) - batch * heads) / (heads / kv_heads);
    Attention::run(shared, q + head * Lq * HEAD_DIM, k + kv_head * Lk * HEAD_DIM, v + kv_head * Lk * HEAD_DIM, o + head * Lq * HEAD_DIM,
                   kv_lengths[batch], (gridDim.x - 1 - turn) * Attention::BLOCK_Q, Lq, Lk, scale, causal);
}
