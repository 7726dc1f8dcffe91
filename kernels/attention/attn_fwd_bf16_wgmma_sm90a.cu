// attn_fwd_bf16_wgmma_sm90a: O = softmax(scale * Q K^T + mask) V. bf16 in and out, fp32 accumulation.
// The ideas over mma.sync: operands straight from shared memory or registers (wgmma), copies by an engine (TMA), warpgroups with one job
// each, softmax of one block behind the products of the block before, persistent CTAs. For compute capability 9.0 only.
// Row-major Q, O [batch, heads, Lq, HEAD_DIM]; K, V [batch, kv_heads, Lk, HEAD_DIM]; grouped heads share K and V.
// Masks:   keys from kv_lengths[batch] on are padding and never met; causal lets query i see keys j <= i + Lk - Lq (the last
//          query sees all keys). A query that sees no key gives 0.
// Shapes:  any Lq, Lk >= 1; scale > 0; HEAD_DIM 64 or 128 (macro); bases 16-byte aligned. Tails: TMA writes zeros and clips stores.
// Tile:    HEAD_DIM 128: 128 queries x 128 keys, 2 consumer warpgroups of 64 queries; ATTENTION_BLOCK_Q 192, for long texts: 192 x 80,
//          3 consumers. HEAD_DIM 64: 192 x 128, 3 consumers. 1 producer warpgroup; 2 stages of K and V.
//          Grid min(tiles, SMs), or one CTA a tile; tiles in groups of head_group heads (1 to batch * heads), the longest first.
// Smem:    128: Q 128*128*2 + K and V 2 * 2 * 128*128*2 + O 128*128*2 + barriers, rounded up to 1,024 = 197,632 B; 192: 181,248 B.
//          64: 115,712 B; limit 232,448.
// Regs:    at most 168 a thread as launched (192 queries: 128), then 24 + 2 x 240 (32 + 3 x 160) a warpgroup: 1 CTA an SM.
// Intensity: BLOCK_Q queries share each key and value: 128 FLOP/B from L2 at 128 queries; bound by the tensor cores, at HEAD_DIM 64 by
//          exponentials as much (16 a clock and SM against 4,096 FLOP).
// Sources: FlashAttention-3, Shah et al. 2024, sections 3.1 and 3.2; lazy rescaling, FlashAttention-4.
#include "attention/wgmma_sm90a.cuh"

#ifndef HEAD_DIM
#define HEAD_DIM 64
#endif
#ifndef ATTENTION_BLOCK_Q
#define ATTENTION_BLOCK_Q (HEAD_DIM == 64 ? 192 : 128)
#endif
static_assert(HEAD_DIM == 128 || (HEAD_DIM == 64 && ATTENTION_BLOCK_Q == 192), "measured shapes only");
static_assert(ATTENTION_BLOCK_Q == 128 || ATTENTION_BLOCK_Q == 192, "two or three consumers");

constexpr int BLOCK_KV = ATTENTION_BLOCK_Q == 192 && HEAD_DIM == 128 ? 80 : 128;
constexpr int THREADS = ATTENTION_BLOCK_Q == 128 ? 384 : 512;
using Attention = AttentionWgmmaSm90a<bf16, HEAD_DIM, ATTENTION_BLOCK_Q / 64, BLOCK_KV>;
static_assert(Attention::THREADS == THREADS, "the warpgroups above");
static_assert(sizeof(Attention::SharedStorage) == (HEAD_DIM == 64 ? 115712 : ATTENTION_BLOCK_Q == 128 ? 197632 : 181248), "the budget above");

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attn_fwd_bf16_wgmma_sm90a(const __grid_constant__ TensorMap map_q,  // of [batch * heads, Lq, HEAD_DIM], boxes of 1 x BLOCK_Q x 64
                             const __grid_constant__ TensorMap map_k,  // of [batch * kv_heads, Lk, HEAD_DIM], boxes of 1 x BLOCK_KV x 64
                             const __grid_constant__ TensorMap map_v,  // the same
                             const __grid_constant__ TensorMap map_o,  // of [batch * heads, Lq, HEAD_DIM], boxes of 1 x 64 x 64
                             const int* __restrict__ kv_lengths,       // [batch], each 0 to Lk
                             int heads, int kv_heads, int Lq, int Lk, float scale, int causal, int batch, int head_group) {
    extern __shared__ Attention::SharedStorage shared[];
    Attention::run(shared[0], map_q, map_k, map_v, map_o, kv_lengths, Sizes{heads, kv_heads, Lq, Lk, causal}, batch, scale, head_group);
}
