// Natural compression: a plane of sign bits, then a plane of exponent codes of 8 (bias 127) or 11 (bias 1023)
// bits.

#include "arithmetic.cuh"
#include "warp.cuh"

// Four codes, the signs joining `signs` from bit `at` on; `top` becomes the largest magnitude's bits.
template <int BIAS, typename T, typename U>
__device__ __forceinline__ u64 codes_of(Four<T> in, Words words, u32* signs, int at, U* top) {
    u64 packed = 0;
#pragma unroll
    for (int c = 0; c < 4; c++) {
        U bits = magnitude_bits(in.v[c]);
        *top = bits > *top ? bits : *top;
        *signs |= (u32)negative(in.v[c]) << (at + c);
        packed |= (u64)natural_code<BIAS>(in.v[c], words.w[c]) << ((BIAS == 127 ? 8 : 11) * c);
    }
    return packed;
}

// Whether the format with this bias holds the magnitude with these bits: below 2^(BIAS + 1).
template <int BIAS>
FUNCTION bool held(u32 magnitude) { return finite_bits(magnitude); }
template <int BIAS>
FUNCTION bool held(u64 magnitude) { return magnitude < (u64)(BIAS + 1024) << 52; }

// notes[0] is set unless x is finite, and held.
template <int BIAS, typename T>
__device__ __forceinline__ void pack_natural(const T* x, i64 d, const Stream& stream, u8* out, u64* notes) {
    const int width = BIAS == 127 ? 8 : 11;
    i64 block = WARP_INDEX, signs_nbytes = (d + 7) / 8, codes_nbytes = (d * width + 7) / 8;
    if (block * 1024 >= d) return;
    bool vector = aligned(x, 16);
    u8* codes = out + signs_nbytes;
    u32 signs = 0, words = (u32)(block * 256);
    auto top = magnitude_bits((T)0);
    if (width == 8 && vector && aligned(codes, 4) && block * 1024 + 1024 <= d) {
        const T* from = x + block * 1024;
        u32* to = (u32*)codes + block * 256;
#pragma unroll 1
        for (int first = 0; first < 8; first += 4) {
            Four<T> in[4];
#pragma unroll
            for (int n = 0; n < 4; n++) in[n] = vector_load(from + 128 * (first + n) + 4 * LANE);
#pragma unroll
            for (int n = 0; n < 4; n++) {
                int i = first + n;
                to[32 * i + LANE] =
                    (u32)codes_of<BIAS>(in[n], philox(stream, words + 32 * i + LANE), &signs, 4 * i, &top);
            }
        }
    } else {
#pragma unroll 1
        for (int i = 0; i < 8; i++) {
            Four<T> in = load4(x, block * 1024 + 128 * i + 4 * LANE, d, vector);
            u64 packed = codes_of<BIAS>(in, philox(stream, words + 32 * i + LANE), &signs, 4 * i, &top);
            store_symbols(codes, codes_nbytes, block * 8 + i, packed, width);
        }
    }
    store_word(out, signs_nbytes, block * 128 + 4 * word_of_lane(), transpose_nibbles(signs),
               aligned(out, 4));
    if (!held<BIAS>(top)) notes[0] = 1;
}

// Add scale 2^(code - bias), nothing for code 0, to four coordinates.
template <int BIAS, typename T>
__device__ __forceinline__ void add_four(Four<T>* f, u64 packed, u32 signs, double scale) {
#pragma unroll
    for (int c = 0; c < 4; c++) {
        int code = (int)(packed >> ((BIAS == 127 ? 8 : 11) * c) & (2 * BIAS + 1));
        double magnitude = code > 0 ? scale * power_of_two(code - BIAS) : 0.0;
        f->v[c] = rounded<T>(promoted(f->v[c]) + (signs >> c & 1 ? -magnitude : magnitude));
    }
}

// Unless `check` has found a code with all bits set.
template <int BIAS, typename T>
__device__ __forceinline__ void add_natural(const u8* in, T* out, i64 d, double scale, const u32* bad) {
    const int width = BIAS == 127 ? 8 : 11;
    i64 block = WARP_INDEX, signs_nbytes = (d + 7) / 8, codes_nbytes = (d * width + 7) / 8;
    if (block * 1024 >= d || *bad) return;
    u32 signs =
        transpose_nibbles(load_word(in, signs_nbytes, block * 128 + 4 * word_of_lane(), aligned(in, 4)));
    const u8* codes = in + signs_nbytes;
    bool vector = aligned(out, 16);
    if (width == 8 && vector && aligned(codes, 4) && block * 1024 + 1024 <= d) {
        const u32* from = (const u32*)codes + block * 256;
        T* to = out + block * 1024;
#pragma unroll 1
        for (int first = 0; first < 8; first += 4, signs >>= 16) {
            u32 packed[4];
            Four<T> f[4];
#pragma unroll
            for (int n = 0; n < 4; n++) {
                packed[n] = from[32 * (first + n) + LANE];
                f[n] = vector_load(to + 128 * (first + n) + 4 * LANE);
            }
#pragma unroll
            for (int n = 0; n < 4; n++) {
                add_four<BIAS>(&f[n], packed[n], signs >> 4 * n, scale);
                vector_store(to + 128 * (first + n) + 4 * LANE, f[n]);
            }
        }
    } else {
#pragma unroll 1
        for (int i = 0; i < 8; i++, signs >>= 4) {
            i64 j = block * 1024 + 128 * i + 4 * LANE;
            Four<T> f = load4(out, j, d, vector);
            add_four<BIAS>(&f, load_symbols(codes, codes_nbytes, block * 8 + i, width), signs, scale);
            store4(out, j, d, vector, f);
        }
    }
}

#define NATURAL(NAME, BIAS, T)                                                             \
    KERNEL_OF(T) natural_pack_##NAME(const T* x, i64 d, STREAM, u8* out, u64* notes) {     \
        pack_natural<BIAS>(x, d, THE_STREAM, out, notes);                                  \
    }                                                                                      \
    KERNEL natural_add_##NAME(const u8* in, T* out, i64 d, double scale, const u32* bad) { \
        add_natural<BIAS>(in, out, d, scale, bad);                                         \
    }

NATURAL(127_f32, 127, float)
NATURAL(127_f64, 127, double)
NATURAL(1023_f32, 1023, float)
NATURAL(1023_f64, 1023, double)
