// clock_u32_window_sm50: cycles of one SM and nanoseconds that passed meanwhile: the clock that the GPU really runs at.
// Lesson:  what a tool reports as the SM clock is what was asked for or an average; under the tensor cores' load power sets it lower.
//          Launched beside another kernel, on a stream of its own, this one reads it in the midst of that load.
// Shapes:  one thread; it waits until `nanoseconds` have passed.
// Tile:    one CTA of one warp; grid (1).
// Smem:    none.
// Regs:    at most 32 a thread: it fits beside a persistent kernel.
// Compute: two counters in a loop. The timer may tick as coarsely as once a microsecond, so let it run for some hundred of them.
#include "common/ptx_clock.cuh"

constexpr int THREADS = 32;

extern "C" __global__ void __launch_bounds__(THREADS)
    clock_u32_window_sm50(unsigned* out,  // [2]: cycles, nanoseconds
                          int nanoseconds) {
    if (threadIdx.x != 0) return;
    const unsigned long long start = globaltimer();
    const unsigned long long first = clock64();
    unsigned long long passed = 0;
    while (passed < static_cast<unsigned long long>(nanoseconds)) passed = globaltimer() - start;
    out[0] = static_cast<unsigned>(clock64() - first);
    out[1] = static_cast<unsigned>(passed);
}
