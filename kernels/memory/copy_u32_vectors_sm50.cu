// copy_u32_vectors_sm50: Y = X, 16 bytes a load: what the memory of this GPU can move.
// Lesson:  memory is kept busy by many wide requests in flight. Each warp asks for 512 B in one instruction, and an SM full of warps
//          has 32 KB on the way. Two, four or eight pieces a thread were 3 to 5% slower on an H200: warps enough do the same.
// Shapes:  any vectors >= 1 (16 bytes each); bases 16-byte aligned.
// Tile:    CTA 256 vectors, 4 KB; grid (cdiv(vectors, 256)).
// Smem:    none.
// Regs:    at most 32 a thread; 8 CTAs an SM.
// Memory:  16 B read and 16 B written a vector, no arithmetic: memory bound, 88% of the rated bandwidth on an H200.
#include "common/types.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    copy_u32_vectors_sm50(const uint4* __restrict__ x,  // [vectors]
                          uint4* __restrict__ y,        // [vectors]
                          int vectors) {
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    if (i < static_cast<unsigned>(vectors)) y[i] = x[i];
}
