/* Stands for kernels/common/ptx_mma.cuh on the CPU: what each instruction does according to the PTX ISA, for fibers in step.
 *
 * Copies land at once, so a missing wait shows nothing here; a missing barrier may.
 */
#pragma once
#include "common/bf16.cuh"

namespace on_cpu {
static char anchored;
static char *volatile anchor = &anchored; /* volatile: the compiler must not think that all memory is one byte */
struct Operands {
    unsigned address, a[4], b[2];
};
static std::vector<Operands> operands;

/* Shared addresses are distances from `anchor`, which lies in the same library as the memory of the kernel. */
inline char *pointer(unsigned address) { return anchor + static_cast<int>(address); }
inline Operands &mine() {
    if (operands.size() < fibers.size()) operands.resize(fibers.size());
    return operands[current];
}
inline unsigned first_of_warp() { return current / 32 * 32; }

template <typename Element>
float half_of(unsigned pair, int which) {
    return widened(Element{}, static_cast<unsigned short>(which ? pair >> 16 : pair));
}

/* acc += A B^T for A [16, 8 parts], parts being registers pairs of k 0-7 and, if there, 8-15. */
template <typename Element, int PARTS>
void mma(float (&acc)[4], const unsigned *a, const unsigned *b) {
    std::memcpy(mine().a, a, 2 * PARTS * sizeof *a);
    std::memcpy(mine().b, b, PARTS * sizeof *b);
    wait_for_all();
    const unsigned warp = first_of_warp(), lane = current % 32;
    for (int entry = 0; entry < 4; ++entry) {
        const unsigned row = lane / 4, column = lane % 4 * 2 + entry % 2;
        for (int part = 0; part < PARTS; ++part)
            for (unsigned k = 0; k < 8; ++k)
                acc[entry] += half_of<Element>(operands[warp + row * 4 + k / 2].a[part * 2 + entry / 2], k % 2) *
                              half_of<Element>(operands[warp + column * 4 + k / 2].b[part], k % 2);
    }
    wait_for_all();
}
}  // namespace on_cpu

inline unsigned shared_address(const void *pointer) {
    return static_cast<unsigned>(static_cast<const char *>(pointer) - on_cpu::anchor);
}

inline void ldmatrix_x4(unsigned (&part)[4], unsigned address) {
    on_cpu::mine().address = address;
    on_cpu::wait_for_all();
    const unsigned warp = on_cpu::first_of_warp(), lane = on_cpu::current % 32;
    for (unsigned matrix = 0; matrix < 4; ++matrix)
        std::memcpy(&part[matrix], on_cpu::pointer(on_cpu::operands[warp + matrix * 8 + lane / 4].address) + lane % 4 * 4, 4);
    on_cpu::wait_for_all();
}

template <typename Element>
inline void mma_m16n8k16(float (&acc)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    const unsigned b[2] = {b0, b1};
    on_cpu::mma<Element, 2>(acc, a, b);
}

inline void mma_m16n8k8_f16(float (&acc)[4], unsigned a0, unsigned a1, unsigned b0) {
    const unsigned a[2] = {a0, a1};
    on_cpu::mma<f16, 1>(acc, a, &b0);
}

inline void cp_async(unsigned target, const void *source, int source_bytes, int bytes) {
    std::memset(on_cpu::pointer(target), 0, bytes);
    if (source_bytes) std::memcpy(on_cpu::pointer(target), source, source_bytes);
}
inline void cp_async_16(unsigned target, const void *source, int source_bytes) { cp_async(target, source, source_bytes, 16); }
inline void cp_async_4(unsigned target, const void *source, int source_bytes) { cp_async(target, source, source_bytes, 4); }
inline void cp_async_commit_group() {}
template <int PENDING>
inline void cp_async_wait_group() {}
