// One step of the online softmax on scores that lie in registers as mma leaves them: a thread holds two rows (lane / 4 and 8 below)
// of every 16, in each 8 columns two neighbours (2 * (lane % 4)). Names follow the FlashAttention papers: S scores, P = exp(S - m),
// m, l. Four neighbouring lanes share a row.
#pragma once
#include "common/ptx_attention.cuh"

constexpr float LOG2_E = 1.4426950408889634f;  // exp(x) = exp2(x * log2(e))
constexpr float NO_MAXIMUM = -1e30f;           // below every score; finite, so that m - m is 0 and a masked row gives P = 0
constexpr float MAX_GROWTH = 8.0f;             // P stays below 2^8 while m lags behind the true maximum: exact in fp16 and bf16

// The two rows of one 16-row tile that a thread works on, over all blocks of keys.
struct SoftmaxRows {
    float m[2] = {NO_MAXIMUM, NO_MAXIMUM};  // what P is relative to: not scaled
    float l[2] = {0.0f, 0.0f};              // this thread's part of the sum of P

    // The maximum of each row of `s`, known to all four lanes.
    template <int REGS>
    static __device__ __forceinline__ void row_maxima(const float (&s)[REGS] /* [BLOCK_KV / 8][2][2] */, float (&maxima)[2]) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float first = fmaxf(s[2 * r], s[2 * r + 1]);
            float second = fmaxf(s[4 + 2 * r], s[4 + 2 * r + 1]);  // two chains are twice as fast
#pragma unroll
            for (int i = 8; i < REGS; i += 8) {
                first = fmaxf(first, fmaxf(s[i + 2 * r], s[i + 2 * r + 1]));
                if (i + 4 < REGS) second = fmaxf(second, fmaxf(s[i + 4 + 2 * r], s[i + 4 + 2 * r + 1]));
            }
            float maximum = fmaxf(first, second);
            maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, 1));
            maxima[r] = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, 2));
        }
    }

    // Takes a block's maxima in. True if what was accumulated must be multiplied by factor[r]: only where some maximum of the warp
    // grew so much that P could grow large, which is rare after the first blocks.
    __device__ __forceinline__ bool raise(const float (&maxima)[2], float scale_log2, float (&factor)[2]) {
        const bool grew = (maxima[0] - m[0]) * scale_log2 > MAX_GROWTH || (maxima[1] - m[1]) * scale_log2 > MAX_GROWTH;
        const bool rescale = __any_sync(0xffffffffu, grew);
        factor[0] = factor[1] = 1.0f;
        if (rescale) {
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const float raised = fmaxf(m[r], maxima[r]);
                factor[r] = ex2_approx((m[r] - raised) * scale_log2);
                m[r] = raised;
                l[r] *= factor[r];
            }
        }
        return rescale;
    }

    // Replaces S by P and adds P to l.
    template <int REGS>
    __device__ __forceinline__ void exponentiate(float (&s)[REGS] /* [BLOCK_KV / 8][2][2] */, float scale_log2) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const float shift = -m[r] * scale_log2;
#pragma unroll
            for (int i = 2 * r; i < REGS; i += 4) {
                s[i] = ex2_approx(fmaf(s[i], scale_log2, shift));
                s[i + 1] = ex2_approx(fmaf(s[i + 1], scale_log2, shift));
            }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float even = 0.0f;
            float odd = 0.0f;
#pragma unroll
            for (int i = 2 * r; i < REGS; i += 4) {
                even += s[i];
                odd += s[i + 1];
            }
            l[r] += even + odd;
        }
    }

    // 1 / l of row r over all four lanes; 0 for a query that saw no key.
    __device__ __forceinline__ float inverse_sum(int r) const {
        float sum = l[r];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        return sum > 0.0f ? rcp_approx(sum) : 0.0f;
    }
};

// Minus infinity for keys after the last one that each of the two rows may see. key0: the first key of this thread's columns.
template <int REGS>
__device__ __forceinline__ void mask_scores(float (&s)[REGS] /* [BLOCK_KV / 8][2][2] */, int key0, const int (&last)[2]) {
#pragma unroll
    for (int i = 0; i < REGS; ++i) {
        const int key = key0 + i / 4 * 8 + i % 2;
        if (key > last[i % 4 / 2]) s[i] = negative_infinity();
    }
}
