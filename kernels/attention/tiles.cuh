// Which queries and keys a tile of attention is about: the masks in one place, for every tier that works on tiles.
#pragma once
#include "common/types.cuh"

// The sizes and masks of one launch, as the kernels take them.
struct Sizes {
    int heads;     // of Q and O, in one batch entry
    int kv_heads;  // of K and V; divides `heads`
    int Lq;
    int Lk;
    int causal;    // query i sees keys j <= i + Lk - Lq
};

// One tile: BLOCK_Q queries of one head.
struct Tile {
    int head;       // of batch * heads
    int kv_head;    // of batch * kv_heads
    int query0;     // its first query
    int kv_length;  // keys from here on are padding
    int keys;       // the last query of the tile sees keys below this one; at most 0: it sees none
};

// a / b of numbers that are not negative. A division takes some 250 cycles, and for whole heads in one group and one batch few are needed.
__device__ __forceinline__ int quotient(int a, int b) { return a < b ? 0 : b == 1 ? a : a == b ? 1 : a / b; }

// Tile `index` of a launch, the longest first: tiles walk from the last queries to the first, and within the same queries over
// `head_group` heads of all batch entries, whose K and V share the L2; then comes the next group.
template <int BLOCK_Q>
__device__ __forceinline__ Tile tile_of(int index, const Sizes& sizes, int q_tiles, int all_heads, int head_group,
                                        const int* __restrict__ kv_lengths) {
    const int group = quotient(index, q_tiles * head_group);
    const int in_group = index - group * (q_tiles * head_group);
    const int group_heads = min(head_group, all_heads - group * head_group);
    const int turn = quotient(in_group, group_heads);
    Tile tile;
    tile.head = group * head_group + in_group - turn * group_heads;
    const int batch = quotient(tile.head, sizes.heads);
    tile.kv_head = batch * sizes.kv_heads + quotient(tile.head - batch * sizes.heads, quotient(sizes.heads, sizes.kv_heads));
    tile.query0 = (q_tiles - 1 - turn) * BLOCK_Q;
    tile.kv_length = __ldg(kv_lengths + batch);
    tile.keys = sizes.causal ? min(tile.kv_length, tile.query0 + BLOCK_Q + sizes.Lk - sizes.Lq) : tile.kv_length;
    return tile;
}

// The last key that `query` may see.
__device__ __forceinline__ int last_key(int query, int kv_length, const Sizes& sizes) {
    return sizes.causal ? min(kv_length - 1, query + sizes.Lk - sizes.Lq) : kv_length - 1;
}
