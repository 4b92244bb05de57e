// Index sets on the wire: the layouts of codecs/indices.py, with its numbers for them.

#include "arithmetic.cuh"
#include "warp.cuh"

#define RAW -1
#define BITMAP -2  // any other layout here is Elias-Fano with that many low bits

// Set the bit of each index in the bitmap of the layout.
KERNEL set_upper(const i64* indices, i64 k, i64 layout, u32* words) {
    i64 j = THREAD_INDEX;
    if (j >= k) return;
    i64 i = indices[j], bit = layout == BITMAP ? i : (i >> layout) + j;
    atomicOr(words + (bit >> 5), 1u << (bit & 31));
}

// The lowest `width` bits of each index, one after the other; a byte a thread.
KERNEL pack_lower(const i64* indices, i64 k, i64 width, u8* out, i64 nbytes) {
    i64 byte = THREAD_INDEX;
    if (byte >= nbytes) return;
    i64 j = 8 * byte / width;
    int at = (int)(j * width - 8 * byte);  // the symbol's first bit, counted from the byte's
    u32 value = 0;
    for (; at < 8 && j < k; at += (int)width, j++) {
        u64 symbol = (u64)indices[j] & ((1ull << width) - 1);
        value |= (u32)(at < 0 ? symbol >> -at : symbol << at);
    }
    out[byte] = (u8)value;
}

__device__ __forceinline__ i64 bits_at(const u8* in, i64 nbytes, i64 bit, i64 width) {
    u64 value = 0;
    i64 first = bit >> 3;
    int skip = (int)(bit & 7);
    for (int b = 0; b * 8 < skip + width; b++)
        if (first + b < nbytes) value |= (u64)in[first + b] << 8 * b;
    return (i64)(value >> skip & ((1ull << width) - 1));
}

__device__ __forceinline__ i64 index_at(const i64* upper, const u8* lower, i64 nbytes, i64 j, i64 layout,
                                        i64 width) {
    if (layout == RAW) return bits_at(lower, nbytes, j * width, width);
    return (upper[j] - j) << layout | bits_at(lower, nbytes, j * width, width);
}

// The set's elements; notes[0] is set unless they increase and are below d.
KERNEL join(const i64* upper, const u8* lower, i64 nbytes, i64 k, i64 d, i64 layout, i64 width, i64* out,
            u64* notes) {
    i64 j = THREAD_INDEX;
    if (j >= k) return;
    i64 i = index_at(upper, lower, nbytes, j, layout, width);
    if (i >= d || (j > 0 && i <= index_at(upper, lower, nbytes, j - 1, layout, width))) notes[0] = 1;
    out[j] = i;
}
