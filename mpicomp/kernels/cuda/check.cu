// Symbols of a message before they are added: with one that stands for nothing, none is.

#include "arithmetic.cuh"
#include "warp.cuh"

// The largest of a warp's whole 1024 symbols, a W being four of them; all loads are under way before one is used.
template <typename W>
__device__ __forceinline__ u32 largest_of(const u8* in, u32 mask, int width) {
    W four[8];
    u32 largest = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) four[i] = ((const W*)in)[32 * i + LANE];
#pragma unroll
    for (int i = 0; i < 8; i++) {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            u32 symbol = (u32)(four[i] >> c * width) & mask;
            largest = symbol > largest ? symbol : largest;
        }
    }
    return largest;
}

// One of `count` symbols of `width` bits above `most`, if there is such, goes to notes[1], and *bad is set.
KERNEL check(const u8* in, i64 count, i64 width, i64 most, u32* bad, u64* notes) {
    i64 block = WARP_INDEX, nbytes = (count * width + 7) / 8;
    if (block * 1024 >= count) return;
    u32 mask = (1u << width) - 1, found = 0;
    const u8* own = in + block * 128 * width;
    bool whole = block * 1024 + 1024 <= count;
    if (whole && width == 4 && aligned(own, 2)) {
        found = largest_of<u16>(own, mask, 4);
    } else if (whole && width == 8 && aligned(own, 4)) {
        found = largest_of<u32>(own, mask, 8);
    } else if (whole && width == 2) {
        found = largest_of<u8>(own, mask, 2);
    } else {
#pragma unroll 1
        for (int i = 0; i < 8; i++) {
            i64 left = count - (block * 1024 + 128 * i + 4 * LANE);
            u64 packed = load_symbols(in, nbytes, block * 8 + i, (int)width);
#pragma unroll
            for (int c = 0; c < 4; c++, packed >>= width) {
                u32 symbol = c < left ? (u32)packed & mask : 0;
                found = symbol > found ? symbol : found;
            }
        }
    }
    if (found > (u32)most) {
        *bad = 1;
        notes[1] = found;
    }
}
