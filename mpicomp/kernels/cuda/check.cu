// Symbols of a message before they are added: with one that stands for nothing, none is.

#include "arithmetic.cuh"
#include "warp.cuh"

// One of `count` symbols of `width` bits above `most`, if there is such, goes to notes[1], and *bad is set.
KERNEL check(const u8* in, i64 count, i64 width, i64 most, u32* bad, u64* notes) {
    i64 block = WARP_INDEX, nbytes = (count * width + 7) / 8;
    if (block * 1024 >= count) return;
    u32 mask = (1u << width) - 1, found = 0;
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
    if (found > (u32)most) {
        *bad = 1;
        notes[1] = found;
    }
}
