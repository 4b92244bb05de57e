// Block floats: a byte e + bias for each block, then integers of 4 or 8 bits in two's complement.
//
// A block of 16, 32, 64 or 128 coordinates is that of 4, 8, 16 or 32 neighbouring threads in one load.

#include "arithmetic.cuh"
#include "warp.cuh"

// The least e >= -bias with m <= (2^(bits - 1) - 1) 2^e, for the m with these bits; large where m is not finite.
FUNCTION int block_exponent(u64 magnitude, int bits, int bias) {
    int e = (int)(magnitude >> 52) - 1022 - (bits - 1);
    if (e < -bias) return -bias;
    if (e > 300) return e;
    double most = (double)((1 << (bits - 1)) - 1);
    return e + (from_bits(magnitude) > most * power_of_two(e));
}

// x rounded to nearest, ties to even, for |x| < 2^51.
FUNCTION int nearest_integer(double x) { return (int)((x + 6755399441055744.0) - 6755399441055744.0); }

// notes[0] is set unless x is finite, notes[1] where an entry is too large.
template <bool DITHERED, typename T>
__device__ __forceinline__ void pack_block_floats(const T* x, i64 d, int bits, i64 block, int bias,
                                                  const Stream& stream, u8* out, u64* notes) {
    i64 warp = WARP_INDEX, blocks = (d + block - 1) / block, nbytes = (d * bits + 7) / 8;
    if (warp * 1024 >= d) return;
    int lanes = (int)block / 4;
    u32 mask = (1u << bits) - 1;
    bool vector = aligned(x, 16);
#pragma unroll 1
    for (int i = 0; i < 8; i++) {
        i64 j = warp * 1024 + 128 * i + 4 * LANE;
        Four<T> in = load4(x, j, d, vector);
        u64 top = 0;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            u64 magnitude = magnitude_bits(promoted(in.v[c]));
            top = magnitude > top ? magnitude : top;
        }
        for (int step = 1; step < lanes; step *= 2) {
            u64 other = __shfl_xor_sync(EVERY, top, step);
            top = other > top ? other : top;
        }
        int e = block_exponent(top, bits, bias);
        bool fits = e <= 255 - bias;
        if (!finite_bits(top)) {
            notes[0] = 1;
        } else if (!fits) {
            notes[1] = 1;
        }
        if ((LANE & (lanes - 1)) == 0 && j < d) out[j / block] = (u8)(e + bias);
        u64 packed = 0;
        Words words = {{0, 0, 0, 0}};
        if (DITHERED) words = philox(stream, (u32)(warp * 256 + 32 * i + LANE));
#pragma unroll
        for (int c = 0; c < 4; c++) {
            double v = fits ? promoted(in.v[c]) : 0.0;
            int m;
            if (DITHERED) {
                int level = (int)dither_level(fabs(v) * power_of_two(fits ? 32 - e : 0), 255, words.w[c]);
                m = v < 0 ? -level : level;
            } else {
                m = nearest_integer(v * power_of_two(fits ? -e : 0));
            }
            packed |= (u64)((u32)m & mask) << (bits * c);
        }
        store_symbols(out + blocks, nbytes, warp * 8 + i, packed, bits);
    }
}

// Is one of the d integers -2^(bits - 1)?  Then bad and notes[0] are set.
KERNEL block_float_check(const u8* in, i64 d, i64 bits, i64 block, u32* bad, u64* notes) {
    i64 warp = WARP_INDEX, blocks = (d + block - 1) / block, nbytes = (d * bits + 7) / 8;
    if (warp * 1024 >= d) return;
    u32 mask = (1u << bits) - 1, least = 1u << (bits - 1);
#pragma unroll 1
    for (int i = 0; i < 8; i++) {
        i64 j = warp * 1024 + 128 * i + 4 * LANE;
        u64 packed = load_symbols(in + blocks, nbytes, warp * 8 + i, (int)bits);
        for (int c = 0; c < 4; c++)
            if (j + c < d && ((u32)(packed >> (bits * c)) & mask) == least) {
                *bad = 1;
                notes[0] = 1;
            }
    }
}

// Unless `block_float_check` has found something.
template <typename T>
__device__ __forceinline__ void add_block_floats(const u8* in, T* out, i64 d, int bits, i64 block, int bias,
                                                 double scale, const u32* bad) {
    i64 warp = WARP_INDEX, blocks = (d + block - 1) / block, nbytes = (d * bits + 7) / 8;
    if (warp * 1024 >= d || *bad) return;
    int mask = (1 << bits) - 1, half = 1 << (bits - 1);
    bool vector = aligned(out, 16);
#pragma unroll 1
    for (int i = 0; i < 8; i++) {
        i64 j = warp * 1024 + 128 * i + 4 * LANE;
        u64 packed = load_symbols(in + blocks, nbytes, warp * 8 + i, bits);
        Four<T> f = load4(out, j, d, vector);
        double step = power_of_two((int)(j < d ? in[j / block] : 0) - bias) * scale;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            int m = (((int)(packed >> (bits * c)) & mask) ^ half) - half;
            f.v[c] = rounded<T>(promoted(f.v[c]) + (double)m * step);
        }
        store4(out, j, d, vector, f);
    }
}

#define BLOCK_FLOATS(NAME, T)                                                                              \
    KERNEL_OF(T)                                                                                           \
    block_float_nearest_##NAME(const T* x, i64 d, i64 bits, i64 block, i64 bias, STREAM, u8* out,          \
                               u64* notes) {                                                               \
        pack_block_floats<false>(x, d, (int)bits, block, (int)bias, THE_STREAM, out, notes);               \
    }                                                                                                      \
    KERNEL_OF(T)                                                                                           \
    block_float_dithered_##NAME(const T* x, i64 d, i64 bits, i64 block, i64 bias, STREAM, u8* out,         \
                                u64* notes) {                                                              \
        pack_block_floats<true>(x, d, (int)bits, block, (int)bias, THE_STREAM, out, notes);                \
    }                                                                                                      \
    KERNEL block_float_add_##NAME(const u8* in, T* out, i64 d, i64 bits, i64 block, i64 bias, double scale, \
                                  const u32* bad) {                                                        \
        add_block_floats(in, out, d, (int)bits, block, (int)bias, scale, bad);                             \
    }

BLOCK_FLOATS(f32, float)
BLOCK_FLOATS(f64, double)
