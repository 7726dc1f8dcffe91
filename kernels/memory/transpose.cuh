// The body of both transposes: a CTA turns a 32 x 32 tile over in shared memory, as often as asked, between one read and one write
// of global memory. PITCH is the distance of the tile's rows in words.
#pragma once
#include "common/types.cuh"

template <int PITCH>
struct Transpose {
    static constexpr int TILE = 32;
    static constexpr int STEP = 8;              // rows of the tile that a CTA's 8 warps cover at once
    static constexpr int PARTS = TILE / STEP;   // elements of a thread

    struct SharedStorage {
        unsigned tile[TILE][PITCH];
    };

    static __device__ __forceinline__ void run(SharedStorage& shared,
                                               const unsigned* __restrict__ x,  // [rows, columns]
                                               unsigned* __restrict__ y,        // [columns, rows]
                                               int rows, int columns, int rounds) {
        const int lane = static_cast<int>(threadIdx.x) % TILE;
        const int warp = static_cast<int>(threadIdx.x) / TILE;
        const int row0 = static_cast<int>(blockIdx.y) * TILE;
        const int col0 = static_cast<int>(blockIdx.x) * TILE;
        unsigned part[PARTS];
#pragma unroll
        for (int p = 0; p < PARTS; ++p) {
            const int row = row0 + warp + p * STEP;
            const int col = col0 + lane;
            part[p] = row < rows && col < columns ? x[static_cast<size_t>(row) * columns + col] : 0u;
        }
        for (int round = 0; round < rounds; ++round) {
#pragma unroll
            for (int p = 0; p < PARTS; ++p) shared.tile[lane][warp + p * STEP] = part[p];  // down a column: PITCH decides the banks
            __syncthreads();  // the tile is complete before anyone reads it
#pragma unroll
            for (int p = 0; p < PARTS; ++p) part[p] = shared.tile[warp + p * STEP][lane];  // along a row: no conflict
            __syncthreads();  // all have read the tile before the next round overwrites it
        }
#pragma unroll
        for (int p = 0; p < PARTS; ++p) {
            const int row = col0 + warp + p * STEP;
            const int col = row0 + lane;
            if (row < columns && col < rows) y[static_cast<size_t>(row) * rows + col] = part[p];
        }
    }
};
