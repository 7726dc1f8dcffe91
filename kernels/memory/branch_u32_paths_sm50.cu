// branch_u32_paths_sm50: y[i] = x[i] after `steps` steps of one of four linear congruences; `group` threads in a row take the same.
// Lesson:  a warp has one instruction at a time. Where its lanes take four branches (group 1) it runs all four, one after the
//          other, with a quarter of the lanes each: four times the time of a warp whose lanes agree (group 32).
// Shapes:  any elems >= 1, group >= 1.
// Tile:    CTA 256 elements; grid (cdiv(elems, 256)).
// Smem:    none.
// Regs:    at most 32 a thread; 8 CTAs an SM.
// Compute: one 32-bit multiply-add a step; with a thousand steps an element, memory does not matter.
// Sources: the four congruences are those of Numerical Recipes, Borland C++, ANSI C and Turbo Pascal.
#include "common/types.cuh"

constexpr int THREADS = 256;

template <unsigned FACTOR, unsigned SUMMAND>
__device__ __forceinline__ unsigned walk(unsigned value, int steps) {
#pragma unroll 1  // unrolled, the compiler makes one step of four
    for (int step = 0; step < steps; ++step) value = value * FACTOR + SUMMAND;
    return value;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    branch_u32_paths_sm50(const unsigned* __restrict__ x,  // [elems]
                          unsigned* __restrict__ y,        // [elems]
                          int elems, int group, int steps) {
    const int i = static_cast<int>(blockIdx.x) * THREADS + static_cast<int>(threadIdx.x);
    if (i >= elems) return;
    unsigned value = x[i];
    switch (i / group % 4) {
        case 0: value = walk<1664525u, 1013904223u>(value, steps); break;
        case 1: value = walk<22695477u, 1u>(value, steps); break;
        case 2: value = walk<1103515245u, 12345u>(value, steps); break;
        default: value = walk<134775813u, 1u>(value, steps); break;
    }
    y[i] = value;
}
