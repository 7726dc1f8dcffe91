// attn_fwd_bf16_mma_sm80: O = softmax(scale * Q K^T + mask) V. bf16 in and out, fp32 accumulation.
// The ideas over fused: tensor cores (mma.sync) with S, P and O in registers, copies that run on by themselves (cp.async).
// Row-major Q, O [batch, heads, Lq, HEAD_DIM]; K, V [batch, kv_heads, Lk, HEAD_DIM]; grouped heads share K and V.
// Masks:   keys from kv_lengths[batch] on are padding and never read; causal lets query i see keys j <= i + Lk - Lq (the last
//          query sees all keys). A query that sees no key gives 0.
// Shapes:  any Lq, Lk >= 1; scale > 0; HEAD_DIM 64 or 128 (macro); bases 16-byte aligned. Tails: copies of size 0 write zeros, stores are
//          clipped.
// Tile:    128 queries x 64 keys (HEAD_DIM 64: x 128), 4 warps of 32 queries. Grid cdiv(Lq, 128) * heads * batch in one dimension, the
//          longest tiles first.
// Smem:    128: Q 128*128*2 + K 64*128*2 + V 64*128*2 = 65,536 B; 64: Q 128*64*2 + 2 * 128*64*2 = 49,152 B; opt-in.
// Regs:    at most 255 a thread; 2 * 128 * 255 = 65,280 of 65,536 -> 2 CTAs an SM. HEAD_DIM 128 spills at most 48 B on sm_80 to sm_121;
//          it pays: 48 keys a tile fit without, and are 0 to 7% slower (kernels/RESULTS_attention.md). NVRTC 13.2 and 13.5 spill 8 B at 64.
// Intensity: 128 queries share each key and value: 128 FLOP/B from L2; bound by mma.sync, whose K and V fragments feed two products.
// Sources: FlashAttention-2, Dao 2023, section 3; lazy rescaling, FlashAttention-4.
#include "attention/mma_sm80.cuh"

#ifndef HEAD_DIM
#define HEAD_DIM 64
#endif
static_assert(HEAD_DIM == 64 || HEAD_DIM == 128, "tiles are chosen for these two");

constexpr int WARPS = 4;
constexpr int WARP_Q = 32;
constexpr int BLOCK_KV = HEAD_DIM == 128 ? 64 : 128;
constexpr int THREADS = 128;
using Attention = AttentionMmaSm80<bf16, HEAD_DIM, WARPS, WARP_Q, BLOCK_KV>;
static_assert(Attention::THREADS == THREADS && Attention::BLOCK_Q == 128, "the warps above");
static_assert(sizeof(Attention::SharedStorage) == (HEAD_DIM == 128 ? 65536 : 49152), "the budget above");

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    attn_fwd_bf16_mma_sm80(const bf16* __restrict__ q,           // [batch, heads, Lq, HEAD_DIM]
                          const bf16* __restrict__ k,           // [batch, kv_heads, Lk, HEAD_DIM]
                          const bf16* __restrict__ v,           // [batch, kv_heads, Lk, HEAD_DIM]
                          bf16* __restrict__ o,                 // [batch, heads, Lq, HEAD_DIM]
                          const int* __restrict__ kv_lengths,  // [batch], each 0 to Lk
                          int heads, int kv_heads, int Lq, int Lk, float scale, int causal, int batch) {
    extern __shared__ Attention::SharedStorage shared[];
    Attention::run(shared[0], q, k, v, o, kv_lengths, Sizes{heads, kv_heads, Lq, Lk, causal}, batch, scale);
}
