// copy_u32_vectors_sm50: Y = X, 16 bytes a load: what the memory of this GPU can move.
// Lesson:  memory is kept busy by many wide requests in flight. A warp asks for 512 B in one instruction, a thread for four
//          such pieces before it stores the first, so latency is paid once for 64 B a thread.
// Shapes:  any vectors >= 1 (16 bytes each); bases 16-byte aligned.
// Tile:    CTA 1,024 vectors, 16 KB; grid (cdiv(vectors, 1024)).
// Smem:    none.
// Regs:    at most 32 a thread; 8 CTAs an SM.
// Memory:  16 B read and 16 B written a vector, no arithmetic: memory bound, 85 to 90% of the rated bandwidth on an H200.
#include "common/types.cuh"

constexpr int THREADS = 256;
constexpr int PIECES = 4;  // vectors of a thread, all asked for before the first is stored

extern "C" __global__ void __launch_bounds__(THREADS)
    copy_u32_vectors_sm50(const uint4* __restrict__ x,  // [vectors]
                          uint4* __restrict__ y,        // [vectors]
                          int vectors) {
    const int first = static_cast<int>(blockIdx.x) * (THREADS * PIECES) + static_cast<int>(threadIdx.x);
    uint4 piece[PIECES];
#pragma unroll
    for (int i = 0; i < PIECES; ++i)
        if (first + i * THREADS < vectors) piece[i] = x[first + i * THREADS];
#pragma unroll
    for (int i = 0; i < PIECES; ++i)
        if (first + i * THREADS < vectors) y[first + i * THREADS] = piece[i];
}
