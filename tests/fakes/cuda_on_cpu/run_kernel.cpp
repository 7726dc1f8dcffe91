// Compiled with -DKERNEL_FILE="gemm/x.cu" -DKERNEL=x: a library whose run_kernel launches that kernel on the CPU.
#include "cuda_on_cpu.h"
#include KERNEL_FILE

extern "C" void run_kernel(const unsigned *grid, const unsigned *block, void **parameters) {
    on_cpu::run_grid([](void **values) { on_cpu::call(KERNEL, values); }, grid, block, parameters);
}
