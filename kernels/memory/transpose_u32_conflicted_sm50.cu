// transpose_u32_conflicted_sm50: Y[columns, rows] = X[rows, columns]^T through a tile in shared memory with rows of 32 words.
// Lesson:  shared memory has 32 banks of one word each. Down a column of a tile whose rows are 32 words all lanes of a warp meet in
//          one bank, and the store takes 32 turns instead of one: with the read that makes 33 turns for 2, at most 16x slower.
// Shapes:  any rows and columns; rounds odd: the tile is turned over that many times, so that shared memory outweighs the rest.
// Tile:    CTA 32 x 32, four elements a thread; grid (cdiv(columns, 32), cdiv(rows, 32)).
// Smem:    32 x 32 * 4 B = 4,096 B; limit without opt-in 49,152.
// Regs:    at most 32 a thread; 8 CTAs an SM.
// Memory:  4 B read and 4 B written an element; with many rounds shared memory and barriers bound it.
#include "memory/transpose.cuh"

constexpr int THREADS = 256;
using Turn = Transpose<32>;
static_assert(sizeof(Turn::SharedStorage) == 4096, "the budget above");
static_assert(Turn::TILE * Turn::STEP == THREADS, "a warp for each row of a step");

extern "C" __global__ void __launch_bounds__(THREADS)
    transpose_u32_conflicted_sm50(const unsigned* __restrict__ x,  // [rows, columns]
                                  unsigned* __restrict__ y,        // [columns, rows]
                                  int rows, int columns, int rounds) {
    __shared__ Turn::SharedStorage shared;
    Turn::run(shared, x, y, rows, columns, rounds);
}
