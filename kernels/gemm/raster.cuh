// The order in which tiles of D are computed, shared by all GEMM kernels with a one-dimensional grid.
#pragma once
#include "common/types.cuh"

struct Tile {
    int m;
    int n;
};

// Tiles in groups of GROUP_M rows of tiles, down the rows first: CTAs that run together share slices of A and of B in L2.
template <int GROUP_M>
__device__ __forceinline__ Tile tile_of(int index, int tiles_m, int tiles_n) {
    const int group_tiles = GROUP_M * tiles_n;
    const int first_m = index / group_tiles * GROUP_M;
    const int rows = min(GROUP_M, tiles_m - first_m);
    const int in_group = index % group_tiles;
    return {first_m + in_group % rows, in_group / rows};
}
