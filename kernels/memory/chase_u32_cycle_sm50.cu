// chase_u32_cycle_sm50: follows `steps` links of one cycle through a table: each load needs the one before. Two launches: _fill, _walk.
// Lesson:  a load from memory takes some 350 ns on an H200, and a thread that waits for each gets nothing else done. Latency is hidden
//          by other warps: twice as many on an SM, nearly twice as many loads a second, until the memory is full (there at 16 warps).
// Shapes:  elems a power of two; any CTAs; lanes 1 to 32. next[i] = i * FACTOR + SUMMAND (mod elems) is a single cycle through all
//          (Hull and Dobell 1962: FACTOR = 1 mod 4, SUMMAND odd) in no order that a cache or TLB could guess.
// Tile:    _fill 32 entries a CTA; _walk one warp a CTA, a chain a lane; threads beyond `lanes` end at once.
// Smem:    none.
// Regs:    at most 32 a thread; 32 CTAs an SM.
// Memory:  a sector of 32 B for each 4 B link: latency bound with few warps, memory bound with many.
#include "common/types.cuh"

constexpr int THREADS = 32;
constexpr unsigned FACTOR = 1664525u;
constexpr unsigned SUMMAND = 1013904223u;
constexpr unsigned SCATTER = 2654435769u;  // odd: different threads begin at different links

extern "C" __global__ void __launch_bounds__(THREADS)
    chase_u32_cycle_sm50_fill(unsigned* next,  // [elems]
                              unsigned*,       // [CTAs * 32]
                              int elems, int, int) {
    const unsigned stride = gridDim.x * THREADS;
    for (unsigned i = blockIdx.x * THREADS + threadIdx.x; i < static_cast<unsigned>(elems); i += stride)
        next[i] = (i * FACTOR + SUMMAND) & static_cast<unsigned>(elems - 1);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    chase_u32_cycle_sm50_walk(const unsigned* next,  // [elems]
                              unsigned* ends,        // [CTAs * 32]
                              int elems, int steps, int lanes) {
    if (static_cast<int>(threadIdx.x) >= lanes) return;
    const unsigned thread = blockIdx.x * THREADS + threadIdx.x;
    unsigned place = thread * SCATTER & static_cast<unsigned>(elems - 1);
    for (int step = 0; step < steps; ++step) place = next[place];
    ends[thread] = place;
}
