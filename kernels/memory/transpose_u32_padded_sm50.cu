// transpose_u32_padded_sm50: Y[columns, rows] = X[rows, columns]^T through a tile in shared memory with rows of 33 words.
// Lesson:  one word of padding a row puts the 32 lanes that write a column into 32 different banks: one turn instead of the 32 of
//          transpose_u32_conflicted_sm50, for 3% more shared memory.
// Shapes:  any rows and columns; rounds odd: the tile is turned over that many times, so that shared memory outweighs the rest.
// Tile:    CTA 32 x 32, four elements a thread; grid (cdiv(columns, 32), cdiv(rows, 32)).
// Smem:    32 x 33 * 4 B = 4,224 B; limit without opt-in 49,152.
// Regs:    at most 32 a thread; 8 CTAs an SM.
// Memory:  4 B read and 4 B written an element; with many rounds shared memory and barriers bound it.
#include "memory/transpose.cuh"

constexpr int THREADS = 256;
using Turn = Transpose<33>;
static_assert(sizeof(Turn::SharedStorage) == 4224, "the budget above");
static_assert(Turn::TILE * Turn::STEP == THREADS, "a warp for each row of a step");

extern "C" __global__ void __launch_bounds__(THREADS)
    transpose_u32_padded_sm50(const unsigned* __restrict__ x,  // [rows, columns]
                              unsigned* __restrict__ y,        // [columns, rows]
                              int rows, int columns, int rounds) {
    __shared__ Turn::SharedStorage shared;
    Turn::run(shared, x, y, rows, columns, rounds);
}
