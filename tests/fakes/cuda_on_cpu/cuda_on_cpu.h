/* Just enough of CUDA C++ to compile our portable kernels for the CPU and run them, one CTA after the other.
 *
 * Each thread of a CTA is a fiber; a barrier or shuffle lets all the others reach it first. What this cannot show: data races,
 * misaligned vectors, registers, speed. What it does show: indices, tails, masks and numbers.
 */
#pragma once
#include <cmath>
#include <csetjmp>
#include <cstddef>
#include <cstring>
#include <tuple>
#include <ucontext.h>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)

struct Dim3 {
    unsigned x, y, z;
};
static Dim3 threadIdx, blockIdx, blockDim, gridDim;

inline int min(int a, int b) { return a < b ? a : b; }
inline float __int_as_float(int bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

namespace on_cpu {
constexpr size_t STACK_BYTES = 64 * 1024;
struct Fiber {
    ucontext_t entry;
    jmp_buf place;
    std::vector<char> stack = std::vector<char>(STACK_BYTES);
    bool started, ended;
};
static std::vector<Fiber> fibers;
static std::vector<float> exchanged;
static jmp_buf scheduler;
static unsigned current;
static void (*body)(void **);
static void **arguments;

/* Contexts start a fiber; _setjmp and _longjmp switch between them without the system calls that swapcontext makes. */
inline void wait_for_all() {
    if (!_setjmp(fibers[current].place)) _longjmp(scheduler, 1);
}

inline void start() {
    body(arguments);
    fibers[current].ended = true;
    _longjmp(scheduler, 1);
}

inline void resume(Fiber &fiber) {
    if (_setjmp(scheduler)) return;
    if (fiber.started) _longjmp(fiber.place, 1);
    fiber.started = true;
    setcontext(&fiber.entry);
}

inline void run_cta() {
    for (Fiber &fiber : fibers) {
        fiber.started = fiber.ended = false;
        getcontext(&fiber.entry);
        fiber.entry.uc_stack.ss_sp = fiber.stack.data();
        fiber.entry.uc_stack.ss_size = fiber.stack.size();
        fiber.entry.uc_link = nullptr;
        makecontext(&fiber.entry, start, 0);
    }
    for (bool running = true; running;) {
        running = false;
        for (current = 0; current < fibers.size(); ++current) {
            if (fibers[current].ended) continue;
            threadIdx = {current % blockDim.x, current / blockDim.x % blockDim.y, current / blockDim.x / blockDim.y};
            resume(fibers[current]);
            running = running || !fibers[current].ended;
        }
    }
}

template <typename... Parameters, size_t... I>
void call(void (*kernel)(Parameters...), void **values, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_reference_t<Parameters> *>(values[I])...);
}
template <typename... Parameters>
void call(void (*kernel)(Parameters...), void **values) {
    call(kernel, values, std::index_sequence_for<Parameters...>());
}

inline void run_grid(void (*kernel)(void **), const unsigned *grid, const unsigned *block, void **values) {
    body = kernel;
    arguments = values;
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    fibers.resize(block[0] * block[1] * block[2]);
    exchanged.resize(fibers.size());
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z)
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) run_cta();
}
}  // namespace on_cpu

inline void __syncthreads() { on_cpu::wait_for_all(); }
inline void __syncwarp() { on_cpu::wait_for_all(); }

struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

inline float __shfl_xor_sync(unsigned, float value, int lane_mask) {
    const unsigned thread = on_cpu::current;
    on_cpu::exchanged[thread] = value;
    on_cpu::wait_for_all();
    const float other = on_cpu::exchanged[thread ^ static_cast<unsigned>(lane_mask)];
    on_cpu::wait_for_all();
    return other;
}
