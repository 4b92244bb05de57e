// The k largest magnitudes of each tile of a matrix: a block of 256 threads has a tile.
//
// The bits of the k-th largest are found one by one, highest first: a pass over the tile counts the magnitudes
// that reach the bits found so far with the next one set, which stays set if k or more do.  The search ends
// early at a bound that k magnitudes reach.  A tile of up to 4096 entries lies in shared memory.  In the end each warp has consecutive
// entries, 32 at a time, and writes the indices of those that are kept.

#include "arithmetic.cuh"
#include "warp.cuh"

#define HELD 4096

template <typename Key>
struct Tile {
    const Key* x;     // the first entry of the tile, as bits
    const Key* held;  // its magnitudes in shared memory, or null
    i64 width, columns, size;

    __device__ __forceinline__ Key read(i64 j) const {
        Key bits = size <= HELD ? x[(u32)j / (u32)columns * width + (u32)j % (u32)columns]
                                : x[j / columns * width + j % columns];
        return bits & ((Key)-1 >> 1);
    }
    __device__ __forceinline__ Key at(i64 j) const { return held != nullptr ? held[j] : read(j); }
};

// How many magnitudes of the tile are at least `bound`; the same in every thread of the block.
template <typename Key>
__device__ __forceinline__ u64 reaching(const Tile<Key>& tile, Key bound, u64* warps) {
    u64 own = 0, total;
    for (i64 j = threadIdx.x; j < tile.size; j += 256) own += tile.at(j) >= bound;
    scan_of_256(own, warps, &total);
    return total;
}

template <typename Key>
__device__ __forceinline__ void top_k_of_tile(const Key* x, i64 top, i64 left, i64 across, i64 rows,
                                              i64 columns, i64 width, u64 k, i64* out) {
    __shared__ u64 warps[8], before[2][8];
    __shared__ Key held[HELD];
    const i64 down = blockIdx.x / across, right = blockIdx.x % across;
    const Key* corner = x + (top + down * rows) * width + left + right * columns;
    Tile<Key> tile = {corner, nullptr, width, columns, rows * columns};
    if (tile.size <= HELD) {
        for (i64 j = threadIdx.x; j < tile.size; j += 256) held[j] = tile.read(j);
        tile.held = held;
        __syncthreads();
    }

    Key bound = 0;
    u64 count = tile.size;
    for (int bit = 8 * sizeof(Key) - 2; bit >= 0 && count > k; bit--) {
        Key next = bound | (Key)1 << bit;
        u64 reached = reaching(tile, next, warps);
        if (reached >= k) {
            bound = next;
            count = reached;
        }
    }

    const i64 share = (tile.size + 255) / 256 * 32, first = (threadIdx.x >> 5) * share;
    const i64 last = first + share < tile.size ? first + share : tile.size;
    u64 larger = 0, equal = 0, ties = 0;  // in this warp's share
    for (i64 j = first; j < last; j += 32) {
        Key magnitude = j + LANE < last ? tile.at(j + LANE) : 0;
        larger += __popc(__ballot_sync(EVERY, j + LANE < last && magnitude > bound));
        equal += __popc(__ballot_sync(EVERY, j + LANE < last && magnitude == bound));
    }
    if (LANE == 0) {
        before[0][threadIdx.x >> 5] = larger;
        before[1][threadIdx.x >> 5] = equal;
    }
    __syncthreads();
    u64 at = 0, above = 0;
    for (u32 w = 0; w < 8; w++) {
        above += before[0][w];
        if (w < threadIdx.x >> 5) {
            at += before[0][w];
            ties += before[1][w];
        }
    }
    u64 need = k - above;  // of the equal ones
    at += blockIdx.x * k + (ties < need ? ties : need);
    const u32 lower = (1u << LANE) - 1;  // the lanes before this one
    for (i64 j = first; j < last; j += 32) {
        Key magnitude = j + LANE < last ? tile.at(j + LANE) : 0;
        u32 tied = __ballot_sync(EVERY, j + LANE < last && magnitude == bound);
        bool chosen = j + LANE < last && (magnitude > bound ||
                                          (magnitude == bound && ties + __popc(tied & lower) < need));
        u32 kept = __ballot_sync(EVERY, chosen);
        if (chosen) out[at + __popc(kept & lower)] = blockIdx.x * tile.size + j + LANE;
        at += __popc(kept);
        ties += __popc(tied);
    }
}

#define TILES(NAME, T, KEY)                                                                              \
    KERNEL_OF(T)                                                                                         \
    top_k_of_tiles_##NAME(const T* x, i64 top, i64 left, i64 across, i64 rows, i64 columns, i64 width,   \
                          i64 k, i64* out) {                                                             \
        top_k_of_tile((const KEY*)x, top, left, across, rows, columns, width, (u64)k, out);              \
    }

TILES(f32, float, u32)
TILES(f64, double, u64)
