// gather_u32_strided_sm50: Y takes every stride-th element of X, then the next of each, and so on: a transpose without a tile.
// Lesson:  memory moves sectors of 32 bytes. Neighbouring threads that read neighbouring words (stride 1) use all of each; from a
//          stride of 8 words on, each word costs a sector of its own, 36 bytes moved for every 8 that are asked for. On an H200
//          strides of 16 and more cost about twice that again, as if its memory handed out two sectors at a time.
// Shapes:  elems a multiple of stride, stride 1 to 65,535. Every element is read once and written once, whatever the stride.
// Tile:    CTA 256 elements of one pass; grid (cdiv(elems / stride, 256), stride).
// Smem:    none.
// Regs:    at most 32 a thread; 8 CTAs an SM.
// Memory:  4 B read and 4 B written an element, no arithmetic: memory bound.
#include "common/types.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    gather_u32_strided_sm50(const unsigned* __restrict__ x,  // [elems]
                            unsigned* __restrict__ y,        // [elems]
                            int elems, int stride) {
    const int rows = elems / stride;
    const int row = static_cast<int>(blockIdx.x) * THREADS + static_cast<int>(threadIdx.x);
    const int pass = static_cast<int>(blockIdx.y);
    if (row < rows) y[static_cast<size_t>(pass) * rows + row] = x[static_cast<size_t>(row) * stride + pass];
}
