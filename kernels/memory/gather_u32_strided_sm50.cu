// gather_u32_strided_sm50: y[i] = x[i % rows * stride + i / rows] with rows = elems / stride: a transpose without a tile.
// Lesson:  memory moves sectors of 32 bytes. Neighbouring threads that read neighbouring words (stride 1) use all of each; from a
//          stride of 8 words on, each word costs a sector of its own, 36 bytes moved for every 8 that are asked for: at most
//          8/36 = 22% of the speed at stride 1.
// Shapes:  elems a multiple of stride >= 1. Every element is read once and written once, whatever the stride.
// Tile:    CTA 256 elements; grid (cdiv(elems, 256)).
// Smem:    none.
// Regs:    at most 32 a thread; 8 CTAs an SM.
// Memory:  4 B read and 4 B written an element, no arithmetic: memory bound.
#include "common/types.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    gather_u32_strided_sm50(const unsigned* __restrict__ x,  // [elems]
                            unsigned* __restrict__ y,        // [elems]
                            int elems, int stride) {
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= static_cast<unsigned>(elems)) return;
    const unsigned rows = static_cast<unsigned>(elems) / static_cast<unsigned>(stride);
    y[i] = x[i % rows * static_cast<unsigned>(stride) + i / rows];
}
