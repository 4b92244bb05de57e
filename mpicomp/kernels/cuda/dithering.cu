// Levels relative to a norm: random dithering, natural dithering, ternary.

#include "arithmetic.cuh"
#include "warp.cuh"
#include "head.cuh"

struct Uniform {
    static __device__ __forceinline__ Divider by(double norm) { return divider(norm); }
    static __device__ __forceinline__ u32 level(double q, int s, u32 word) { return dither_level(q, s, word); }
};

struct Natural {
    static __device__ __forceinline__ Divider by(double norm) { return divider(norm == 0.0 ? 1.0 : norm); }
    static __device__ __forceinline__ u32 level(double q, int s, u32 word) { return natural_level(q, s, word); }
};

// Symbols s + level, level from -s to s, of `width` bits.
template <typename KIND, typename T>
__device__ __forceinline__ void pack_levels(const T* x, i64 d, const double* norm, int s, int width, Stream stream, u8* out) {
    i64 block = WARP_INDEX, nbytes = (d * width + 7) / 8;
    if (block * 1024 >= d) return;
    bool vector = aligned(x, 16);
    Divider by = KIND::by(*norm);
#pragma unroll 4
    for (int i = 0; i < 8; i++) {
        i64 j = block * 1024 + 128 * i + 4 * LANE;
        Four<T> in = load4(x, j, d, vector);
        Words words = philox(stream, (u32)(j >> 2));
        u64 packed = 0;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            int level = (int)KIND::level(quotient(in.v[c], by), s, words.w[c]);
            u64 symbol = (u64)(s + (in.v[c] < 0 ? -level : level));
            if (j + c < d) packed |= symbol << (width * c);
        }
        store_symbols(out, nbytes, block * 8 + i, packed, width);
    }
}

// The number that a symbol stands for, in units of the step.
struct FromUniform {
    static __device__ __forceinline__ double value(int level, int s) { return (double)level; }
};

struct FromNatural {
    static __device__ __forceinline__ double value(int level, int s) {
        double magnitude = power_of_two((level < 0 ? -level : level) - s);
        return level == 0 ? 0.0 : level < 0 ? -magnitude : magnitude;
    }
};

// A symbol above 2 s is refused: one such goes to refused[1].
template <typename KIND, typename T>
__device__ __forceinline__ void add_levels(const u8* in, T* out, i64 d, Step step, int s, int width, u32* refused) {
    i64 block = WARP_INDEX, nbytes = (d * width + 7) / 8;
    if (block * 1024 >= d || !step.valid) return;
    bool vector = aligned(out, 16);
    int found = 0;
#pragma unroll 4
    for (int i = 0; i < 8; i++) {
        i64 j = block * 1024 + 128 * i + 4 * LANE;
        u64 packed = load_symbols(in, nbytes, block * 8 + i, width);
        Four<T> f = load4(out, j, d, vector);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            int symbol = j + c < d ? (int)(packed >> (width * c) & ((1u << width) - 1)) : s;
            if (symbol > 2 * s) found = symbol;
            f.v[c] = (T)((double)f.v[c] + KIND::value(symbol - s, s) * step.value);
        }
        store4(out, j, d, vector, f);
    }
    if (found) refused[1] = (u32)found;
}

// --- trits: levels -1, 0, 1, five a byte; a block has 5120 coordinates, 1024 bytes ---

template <typename T>
__device__ __forceinline__ void pack_trits(const T* x, i64 d, const double* norm, Stream stream, u8* out) {
    __shared__ u32 trits[1280];  // a byte each
    bool vector = aligned(x, 16);
    Divider by = divider(*norm);
#pragma unroll
    for (int i = 0; i < 5; i++) {
        i64 j = (i64)blockIdx.x * 5120 + 1024 * i + 4 * threadIdx.x;
        Four<T> in = load4(x, j, d, vector);
        Words words = philox(stream, (u32)(j >> 2));
        u32 four = 0;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            u32 level = dither_level(quotient(in.v[c], by), 1, words.w[c]);
            if (j + c < d) four |= (in.v[c] < 0 ? 1 - level : 1 + level) << 8 * c;
        }
        trits[256 * i + threadIdx.x] = four;
    }
    __syncthreads();
    u64 t[3] = {0, 0, 0};  // twenty trits make four bytes
#pragma unroll
    for (int w = 0; w < 5; w++) t[w / 2] |= (u64)trits[5 * threadIdx.x + w] << 32 * (w % 2);
    u32 word = 0;
#pragma unroll
    for (int b = 0; b < 4; b++) {
        u32 byte = 0;
#pragma unroll
        for (int n = 4; n >= 0; n--) byte = 3 * byte + (u32)(t[(5 * b + n) / 8] >> 8 * ((5 * b + n) % 8) & 3);
        word |= byte << 8 * b;
    }
    store_word(out, (d + 4) / 5, (i64)blockIdx.x * 1024 + 4 * threadIdx.x, word, aligned(out, 4));
}

// A byte above 242 is refused: one such goes to refused[1].
template <typename T>
__device__ __forceinline__ void add_trits(const u8* in, T* out, i64 d, Step step, u32* refused) {
    __shared__ u32 trits[1280];
    if (!step.valid) return;
    u32 word = load_word(in, (d + 4) / 5, (i64)blockIdx.x * 1024 + 4 * threadIdx.x, aligned(in, 4));
    u64 t[3] = {0, 0, 0};
    u32 found = 0;
#pragma unroll
    for (int b = 0; b < 4; b++) {
        u32 byte = word >> 8 * b & 255;
        if (byte > 242) found = byte;
#pragma unroll
        for (int n = 0; n < 5; n++, byte /= 3) t[(5 * b + n) / 8] |= (u64)(byte % 3) << 8 * ((5 * b + n) % 8);
    }
#pragma unroll
    for (int w = 0; w < 5; w++) trits[5 * threadIdx.x + w] = (u32)(t[w / 2] >> 32 * (w % 2));
    if (found) refused[1] = found;
    __syncthreads();
    bool vector = aligned(out, 16);
#pragma unroll
    for (int i = 0; i < 5; i++) {
        i64 j = (i64)blockIdx.x * 5120 + 1024 * i + 4 * threadIdx.x;
        u32 four = trits[256 * i + threadIdx.x];
        Four<T> f = load4(out, j, d, vector);
#pragma unroll
        for (int c = 0; c < 4; c++) f.v[c] = (T)((double)f.v[c] + (double)((int)(four >> 8 * c & 3) - 1) * step.value);
        store4(out, j, d, vector, f);
    }
}

#define DITHERING(NAME, T)                                                                                         \
    extern "C" __global__ void __launch_bounds__(256) dither_pack_##NAME(                                          \
        const T* x, i64 d, const double* norm, i64 s, i64 width, i64 k0, i64 k1, i64 c1, i64 c2, i64 c3, u8* out) { \
        pack_levels<Uniform>(x, d, norm, (int)s, (int)width, stream_of(k0, k1, c1, c2, c3), out);                  \
    }                                                                                                              \
    extern "C" __global__ void __launch_bounds__(256) natural_dither_pack_##NAME(                                  \
        const T* x, i64 d, const double* norm, i64 s, i64 width, i64 k0, i64 k1, i64 c1, i64 c2, i64 c3, u8* out) { \
        pack_levels<Natural>(x, d, norm, (int)s, (int)width, stream_of(k0, k1, c1, c2, c3), out);                  \
    }                                                                                                              \
    extern "C" __global__ void __launch_bounds__(256) ternary_pack_##NAME(                                         \
        const T* x, i64 d, const double* norm, i64 k0, i64 k1, i64 c1, i64 c2, i64 c3, u8* out) {                  \
        pack_trits(x, d, norm, stream_of(k0, k1, c1, c2, c3), out);                                                \
    }                                                                                                              \
    extern "C" __global__ void __launch_bounds__(256) dither_add_##NAME(                                           \
        const u8* in, T* out, i64 d, const u8* head, i64 bytes, double levels, double factor, i64 s, i64 width,    \
        u32* refused) {                                                                                            \
        Step step = read_step(head, bytes, levels, factor, refused);                                               \
        add_levels<FromUniform>(in, out, d, step, (int)s, (int)width, refused);                                    \
    }                                                                                                              \
    extern "C" __global__ void __launch_bounds__(256) natural_dither_add_##NAME(                                   \
        const u8* in, T* out, i64 d, const u8* head, i64 bytes, double factor, i64 s, i64 width, u32* refused) {   \
        Step step = read_step(head, bytes, 1.0, factor, refused);                                                  \
        add_levels<FromNatural>(in, out, d, step, (int)s, (int)width, refused);                                    \
    }                                                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                              \
    ternary_add_##NAME(const u8* in, T* out, i64 d, const u8* head, i64 bytes, double factor, u32* refused) {      \
        add_trits(in, out, d, read_step(head, bytes, 1.0, factor, refused), refused);                              \
    }

DITHERING(f32, float)
DITHERING(f64, double)
