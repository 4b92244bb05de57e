// Natural compression: a plane of sign bits, then a plane of exponent codes of 8 (bias 127) or 11 (bias 1023) bits.

#include "arithmetic.cuh"
#include "warp.cuh"

template <int BIAS, typename T> __device__ __forceinline__ void pack_natural(const T* x, i64 d, Stream stream, u8* out) {
    const int width = BIAS == 127 ? 8 : 11;
    i64 block = WARP_INDEX, signs_nbytes = (d + 7) / 8, codes_nbytes = (d * width + 7) / 8;
    if (block * 1024 >= d) return;
    bool vector = aligned(x, 16);
    u32 signs = 0;
#pragma unroll 4
    for (int i = 0; i < 8; i++) {
        i64 j = block * 1024 + 128 * i + 4 * LANE;
        Four<T> in = load4(x, j, d, vector);
        Words words = philox(stream, (u32)(j >> 2));
        u64 packed = 0;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            signs |= (u32)(in.v[c] < 0) << (4 * i + c);
            packed |= (u64)natural_code<BIAS>(in.v[c], words.w[c]) << (width * c);
        }
        store_symbols(out + signs_nbytes, codes_nbytes, block * 8 + i, packed, width);
    }
    store_word(out, signs_nbytes, block * 128 + 4 * word_of_lane(), transpose_nibbles(signs), aligned(out, 4));
}

// scale 2^(code - bias); 0 for code 0.  A code with all bits set is refused: the largest goes to refused[1].
template <int BIAS, typename T> __device__ __forceinline__ void add_natural(const u8* in, T* out, i64 d, double scale, u32* refused) {
    const int width = BIAS == 127 ? 8 : 11;
    i64 block = WARP_INDEX, signs_nbytes = (d + 7) / 8, codes_nbytes = (d * width + 7) / 8;
    if (block * 1024 >= d) return;
    u32 signs = transpose_nibbles(load_word(in, signs_nbytes, block * 128 + 4 * word_of_lane(), aligned(in, 4)));
    bool vector = aligned(out, 16), valid = true;
#pragma unroll 4
    for (int i = 0; i < 8; i++) {
        i64 j = block * 1024 + 128 * i + 4 * LANE;
        u64 packed = load_symbols(in + signs_nbytes, codes_nbytes, block * 8 + i, width);
        Four<T> f = load4(out, j, d, vector);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            int code = (int)(packed >> (width * c) & (2 * BIAS + 1));
            valid = valid && (code <= 2 * BIAS || j + c >= d);
            double magnitude = code > 0 ? scale * power_of_two(code - BIAS) : 0.0;
            f.v[c] = (T)((double)f.v[c] + (signs >> (4 * i + c) & 1 ? -magnitude : magnitude));
        }
        store4(out, j, d, vector, f);
    }
    if (!valid) refused[1] = 2 * BIAS + 1;
}

#define NATURAL(NAME, BIAS, T)                                                                        \
    extern "C" __global__ void __launch_bounds__(256)                                                 \
    natural_pack_##NAME(const T* x, i64 d, i64 k0, i64 k1, i64 c1, i64 c2, i64 c3, u8* out) {         \
        pack_natural<BIAS>(x, d, stream_of(k0, k1, c1, c2, c3), out);                                 \
    }                                                                                                 \
    extern "C" __global__ void __launch_bounds__(256)                                                 \
    natural_add_##NAME(const u8* in, T* out, i64 d, double scale, u32* refused) {                     \
        add_natural<BIAS>(in, out, d, scale, refused);                                                \
    }

NATURAL(127_f32, 127, float)
NATURAL(127_f64, 127, double)
NATURAL(1023_f32, 1023, float)
NATURAL(1023_f64, 1023, double)
