// Symbols of different widths, up to 16 bits, packed; a chunk is a warp's 1024, and starts[chunk] its first bit.

#include "arithmetic.cuh"
#include "warp.cuh"

// The bits of each chunk.
KERNEL width_sums(const u8* widths, i64 count, i64* sums) {
    i64 chunk = WARP_INDEX;
    if (chunk * 1024 >= count) return;
    u32 sum = 0;
    bool vector = aligned(widths, 4);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        Four<u8> w = load4(widths, chunk * 1024 + 128 * i + 4 * LANE, count, vector);
        sum += w.v[0] + w.v[1] + w.v[2] + w.v[3];
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(EVERY, sum, step);
    if (LANE == 0) sums[chunk] = sum;
}

// A thread's four widths, w[c] = 0 where there is no symbol; the bits of the threads before, and of all.
struct Placed {
    int w[4], before, total;
};

__device__ __forceinline__ Placed placed(const u8* widths, i64 j, i64 count) {
    Four<u8> w = load4(widths, j, count, aligned(widths, 4));
    Placed p;
    int own = 0;
#pragma unroll
    for (int c = 0; c < 4; c++) own += p.w[c] = w.v[c];
    int sum = own;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        int before = __shfl_up_sync(EVERY, sum, step);
        if (LANE >= (u32)step) sum += before;
    }
    p.before = sum - own;
    p.total = __shfl_sync(EVERY, sum, 31);
    return p;
}

// `out` is all zeros before.  A warp's 128 symbols are put together in shared memory, in words that lie as those
// of `out`; the first and the last one it may have in common with other warps.
KERNEL pack_widths(const u16* symbols, const u8* widths, i64 count, const i64* starts, u32* out) {
    __shared__ u32 room[8][66];
    i64 chunk = WARP_INDEX;
    if (chunk * 1024 >= count) return;
    u32* words = room[threadIdx.x >> 5];
    i64 bit = starts[chunk];
#pragma unroll 1
    for (int i = 0; i < 8; i++) {
        i64 j = chunk * 1024 + 128 * i + 4 * LANE;
        Four<u16> in = load4(symbols, j, count, aligned(symbols, 8));
        Placed p = placed(widths, j, count);
        u64 four = 0;
        int filled = 0;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            if (p.w[c]) four |= (u64)in.v[c] << filled;  // else `filled` may be 64
            filled += p.w[c];
        }
        for (int n = LANE; n < 66; n += 32) words[n] = 0;
        __syncwarp();
        int at = (int)(bit & 31) + p.before, shift = at & 31, n = at >> 5;
        u64 low = four << shift, high = four >> 1 >> (63 - shift);
        if ((u32)low) atomicOr(words + n, (u32)low);
        if (low >> 32) atomicOr(words + n + 1, (u32)(low >> 32));
        if (high) atomicOr(words + n + 2, (u32)high);
        __syncwarp();
        int used = ((int)(bit & 31) + p.total + 31) >> 5;
        u32* to = out + (bit >> 5);
        for (n = LANE; n < used; n += 32) {
            if (n > 0 && n < used - 1) {
                to[n] = words[n];
            } else if (words[n]) {
                atomicOr(to + n, words[n]);
            }
        }
        __syncwarp();
        bit += p.total;
    }
}

KERNEL unpack_widths(const u8* in, i64 nbytes, const u8* widths, i64 count, const i64* starts, u16* symbols) {
    i64 chunk = WARP_INDEX;
    if (chunk * 1024 >= count) return;
    bool whole = aligned(in, 4);
    i64 bit = starts[chunk];
#pragma unroll 1
    for (int i = 0; i < 8; i++) {
        i64 j = chunk * 1024 + 128 * i + 4 * LANE;
        Placed p = placed(widths, j, count);
        i64 at = bit + p.before, offset = at >> 5 << 2;
        int shift = (int)(at & 31);
        u64 four = load_word(in, nbytes, offset, whole) | (u64)load_word(in, nbytes, offset + 4, whole) << 32;
        four = four >> shift | (u64)load_word(in, nbytes, offset + 8, whole) << 1 << (63 - shift);
        Four<u16> out;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            out.v[c] = (u16)(four & ((1u << p.w[c]) - 1));
            four >>= p.w[c];
        }
        store4(symbols, j, count, aligned(symbols, 8), out);
        bit += p.total;
    }
}
