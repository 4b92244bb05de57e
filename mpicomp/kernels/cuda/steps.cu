// Levels of the norms of blocks in steps of their own, and symbols of different widths, packed.

#include "arithmetic.cuh"
#include "warp.cuh"
#include "head.cuh"

// The norms at the head of a message, `width` bytes each; notes[0] is set where one is none.
KERNEL read_norms(const u8* head, i64 count, i64 width, double* norms, u64* notes) {
    i64 b = THREAD_INDEX;
    if (b >= count) return;
    norms[b] = read_norm(head + b * width, width);
    if (!is_norm(norms[b])) notes[0] = 1;
}

// The contiguous blocks of d coordinates, whose sizes differ by at most one, the larger ones first; and the
// one that a coordinate is in, for coordinates that are asked for in increasing order.
struct Block {
    i64 d, blocks, index, end;

    __device__ __forceinline__ Block(i64 d, i64 blocks) : d(d), blocks(blocks), index(-1), end(0) {}

    // Whether j is in another block than the coordinate before.
    __device__ __forceinline__ bool moves_to(i64 j) {
        if (j < end) return false;
        i64 size = d / blocks, longer = d % blocks, first = longer * (size + 1);
        index = j < first ? j / (size + 1) : longer + (j - first) / size;
        end = (index + 1) * size + (index + 1 < longer ? index + 1 : longer);
        return true;
    }
};

template <typename T>
__device__ __forceinline__ void step_symbols(const T* x, i64 d, i64 blocks, const double* norms,
                                             const double* r, const Stream& stream, u16* out) {
    i64 chunk = WARP_INDEX;
    if (chunk * 1024 >= d) return;
    bool vector = aligned(x, 16), whole = aligned(r, 16);
    Block block(d, blocks);
    Gain by;
#pragma unroll 1
    for (int i = 0; i < 8; i++) {
        i64 j = chunk * 1024 + 128 * i + 4 * LANE;
        Words words = philox(stream, (u32)(j >> 2));
        Four<T> in = load4(x, j, d, vector);
        Four<double> steps = load4(r, j, d, whole);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            if (j + c >= d) break;
            if (block.moves_to(j + c)) by = gain_of(norms[block.index], 1, 4294967296.0);
            int s = (int)ceil(steps.v[c]);
            double t = fabs(promoted(in.v[c])) * by.lift * (steps.v[c] * by.factor);
            int level = (int)dither_level(t, s, words.w[c]);
            out[j + c] = (u16)(s + (negative(in.v[c]) ? -level : level));
        }
    }
}

template <typename T>
__device__ __forceinline__ void step_add(const u16* symbols, T* out, i64 d, i64 blocks, const double* norms,
                                         const double* r, double scale) {
    i64 chunk = WARP_INDEX;
    if (chunk * 1024 >= d) return;
    bool vector = aligned(out, 16), whole = aligned(r, 16);
    Block block(d, blocks);
    double norm = 0;
#pragma unroll 1
    for (int i = 0; i < 8; i++) {
        i64 j = chunk * 1024 + 128 * i + 4 * LANE;
        Four<T> f = load4(out, j, d, vector);
        Four<double> steps = load4(r, j, d, whole);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            if (j + c >= d) break;
            if (block.moves_to(j + c)) norm = norms[block.index];
            double level = (double)symbols[j + c] - ceil(steps.v[c]);
            double value = level == 0 ? 0.0 : level * (norm / steps.v[c] * scale);
            f.v[c] = rounded<T>(promoted(f.v[c]) + value);
        }
        store4(out, j, d, vector, f);
    }
}

// --- symbols of up to 16 bits; a chunk is a warp's 1024, and starts[chunk] its first bit ---

// The bits of each chunk.
KERNEL width_sums(const u8* widths, i64 count, i64* sums) {
    i64 chunk = WARP_INDEX;
    if (chunk * 1024 >= count) return;
    u32 sum = 0;
    for (i64 i = chunk * 1024 + LANE; i < count && i < chunk * 1024 + 1024; i += 32) sum += widths[i];
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(EVERY, sum, step);
    if (LANE == 0) sums[chunk] = sum;
}

// A thread's four widths, w[c] = 0 where there is no symbol; the bits of the threads before, and of all.
struct Placed {
    int w[4], before, total;
};

__device__ __forceinline__ Placed placed(const u8* widths, i64 j, i64 count) {
    Placed p;
    int own = 0;
#pragma unroll
    for (int c = 0; c < 4; c++) own += p.w[c] = j + c < count ? widths[j + c] : 0;
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
        Placed p = placed(widths, j, count);
        u64 four = 0;
        int filled = 0;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            if (p.w[c]) four |= (u64)symbols[j + c] << filled;
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
#pragma unroll
        for (int c = 0; c < 4; c++) {
            if (j + c < count) symbols[j + c] = (u16)(four & ((1u << p.w[c]) - 1));
            four >>= p.w[c];
        }
        bit += p.total;
    }
}

#define STEPS(NAME, T)                                                                                      \
    KERNEL_OF(T)                                                                                            \
    step_symbols_##NAME(const T* x, i64 d, i64 blocks, const double* norms, const double* r, STREAM,        \
                        u16* out) {                                                                         \
        step_symbols(x, d, blocks, norms, r, THE_STREAM, out);                                              \
    }                                                                                                       \
    KERNEL_OF(T)                                                                                            \
    step_add_##NAME(const u16* symbols, T* out, i64 d, i64 blocks, const double* norms, const double* r,    \
                    double scale) {                                                                         \
        step_add(symbols, out, d, blocks, norms, r, scale);                                                 \
    }

STEPS(f32, float)
STEPS(f64, double)
