// Levels relative to a norm: random dithering, natural dithering, ternary.

#include "arithmetic.cuh"
#include "warp.cuh"
#include "head.cuh"

struct Uniform {
    static __device__ __forceinline__ Gain gain(double norm, int s) { return gain_of(norm, s, 4294967296.0); }
    static __device__ __forceinline__ u32 level(double t, int s, u32 word) {
        return dither_level(t, s, word);
    }
};

struct Natural {
    static __device__ __forceinline__ Gain gain(double norm, int s) { return gain_of(norm, 1, 1.0); }
    static __device__ __forceinline__ u32 level(double q, int s, u32 word) {
        return natural_level(q, s, word);
    }
};

// The symbols s + level, level from -s to s, of a thread's four coordinates, of which `count` exist.
template <typename KIND, typename T>
__device__ __forceinline__ u64 symbols_of(Four<T> in, Gain by, int s, int width, Words words, i64 count) {
    u64 packed = 0;
#pragma unroll
    for (int c = 0; c < 4; c++) {
        double t = fabs(promoted(in.v[c])) * by.lift * by.factor;
        int level = (int)KIND::level(t, s, words.w[c]);
        u64 symbol = (u64)(u32)(s + (negative(in.v[c]) ? -level : level));
        if (c < count) packed |= symbol << (width * c);
    }
    return packed;
}

// 1024 coordinates that exist, in aligned memory: each thread stores its own W/2 bytes.
template <typename KIND, int W, typename T>
__device__ __forceinline__ void pack_whole(const T* x, Gain by, int s, const Stream& stream, u32 words,
                                           u8* out) {
#pragma unroll 1
    for (int first = 0; first < 8; first += 4) {
        Four<T> in[4];
#pragma unroll
        for (int n = 0; n < 4; n++) in[n] = vector_load(x + 128 * (first + n) + 4 * LANE);
#pragma unroll
        for (int n = 0; n < 4; n++) {
            int i = 32 * (first + n) + LANE;
            u64 packed = symbols_of<KIND>(in[n], by, s, W, philox(stream, words + i), 4);
            if (W == 2) out[i] = (u8)packed;
            if (W == 4) ((u16*)out)[i] = (u16)packed;
            if (W == 8) ((u32*)out)[i] = (u32)packed;
        }
    }
}

template <typename KIND, typename T>
__device__ __forceinline__ void pack_levels(const T* x, i64 d, const double* norm, int s, int width,
                                            const Stream& stream, u8* out) {
    i64 block = WARP_INDEX, nbytes = (d * width + 7) / 8;
    if (block * 1024 >= d) return;
    bool vector = aligned(x, 16);
    Gain by = KIND::gain(*norm, s);
    u32 words = (u32)(block * 256);
    if (vector && aligned(out, 4) && block * 1024 + 1024 <= d && by.lift == 1.0) {
        by.lift = 1.0;  // as a constant
        const T* from = x + block * 1024;
        u8* to = out + block * 128 * width;
        if (width == 2) return pack_whole<KIND, 2>(from, by, s, stream, words, to);
        if (width == 4) return pack_whole<KIND, 4>(from, by, s, stream, words, to);
        if (width == 8) return pack_whole<KIND, 8>(from, by, s, stream, words, to);
    }
#pragma unroll 1
    for (int i = 0; i < 8; i++) {
        i64 j = block * 1024 + 128 * i + 4 * LANE;
        Words four = philox(stream, words + 32 * i + LANE);
        u64 packed = symbols_of<KIND>(load4(x, j, d, vector), by, s, width, four, d - j);
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

// Add to four coordinates.
template <typename KIND, typename T>
__device__ __forceinline__ void add_four(Four<T>* f, u64 packed, double step, int s, int width) {
#pragma unroll
    for (int c = 0; c < 4; c++) {
        int symbol = (int)(u32)(packed >> (width * c) & ((1u << width) - 1));
        f->v[c] = rounded<T>(promoted(f->v[c]) + KIND::value(symbol - s, s) * step);
    }
}

// 1024 coordinates that exist, in aligned memory.
template <typename KIND, int W, typename T>
__device__ __forceinline__ void add_whole(const u8* in, T* out, double step, int s) {
#pragma unroll 1
    for (int first = 0; first < 8; first += 4) {
        u32 packed[4];
        Four<T> f[4];
#pragma unroll
        for (int n = 0; n < 4; n++) {
            int i = 32 * (first + n) + LANE;
            packed[n] = W == 2 ? in[i] : W == 4 ? ((const u16*)in)[i] : ((const u32*)in)[i];
            f[n] = vector_load(out + 4 * i);
        }
#pragma unroll
        for (int n = 0; n < 4; n++) {
            add_four<KIND>(&f[n], packed[n], step, s, W);
            vector_store(out + 128 * (first + n) + 4 * LANE, f[n]);
        }
    }
}

template <typename KIND, typename T>
__device__ __forceinline__ void add_levels(const u8* in, T* out, i64 d, Step step, int s, int width) {
    i64 block = WARP_INDEX, nbytes = (d * width + 7) / 8;
    if (block * 1024 >= d || !step.valid) return;
    bool vector = aligned(out, 16);
    if (vector && aligned(in, 4) && block * 1024 + 1024 <= d) {
        const u8* from = in + block * 128 * width;
        T* to = out + block * 1024;
        if (width == 2) return add_whole<KIND, 2>(from, to, step.value, s);
        if (width == 4) return add_whole<KIND, 4>(from, to, step.value, s);
        if (width == 8) return add_whole<KIND, 8>(from, to, step.value, s);
    }
#pragma unroll 1
    for (int i = 0; i < 8; i++) {
        i64 j = block * 1024 + 128 * i + 4 * LANE;
        Four<T> f = load4(out, j, d, vector);
        add_four<KIND>(&f, load_symbols(in, nbytes, block * 8 + i, width), step.value, s, width);
        store4(out, j, d, vector, f);
    }
}

// --- trits: levels -1, 0, 1, five a byte; a block has 5120 coordinates, 1024 bytes ---

template <typename T>
__device__ __forceinline__ void pack_trits(const T* x, i64 d, const double* norm, const Stream& stream,
                                           u8* out) {
    __shared__ u32 trits[1280];  // a byte each
    bool vector = aligned(x, 16);
    Gain by = Uniform::gain(*norm, 1);
    i64 first = (i64)blockIdx.x * 5120 + 4 * threadIdx.x;
    u32 words = (u32)(first >> 2);
    if (vector && first - 4 * threadIdx.x + 5120 <= d && by.lift == 1.0) {
        by.lift = 1.0;  // as a constant
        Four<T> in[5];
#pragma unroll
        for (int i = 0; i < 5; i++) in[i] = vector_load(x + first + 1024 * i);
#pragma unroll
        for (int i = 0; i < 5; i++) {
            Words four = philox(stream, words + 256 * i);
            trits[256 * i + threadIdx.x] = (u32)symbols_of<Uniform>(in[i], by, 1, 8, four, 4);
        }
    } else {
#pragma unroll 1
        for (int i = 0; i < 5; i++) {
            i64 j = first + 1024 * i;
            Words four = philox(stream, words + 256 * i);
            trits[256 * i + threadIdx.x] =
                (u32)symbols_of<Uniform>(load4(x, j, d, vector), by, 1, 8, four, d - j);
        }
    }
    __syncthreads();
    u32 t[5];  // twenty trits make four bytes
#pragma unroll
    for (int w = 0; w < 5; w++) t[w] = trits[5 * threadIdx.x + w];
    u32 word = __dp4a(t[1], 81u, __dp4a(t[0], 0x1b090301u, 0u));  // sums of four bytes times four weights
    word |= __dp4a(t[2], 0x511bu, __dp4a(t[1], 0x09030100u, 0u)) << 8;
    word |= __dp4a(t[3], 0x511b09u, __dp4a(t[2], 0x03010000u, 0u)) << 16;
    word |= __dp4a(t[4], 0x511b0903u, __dp4a(t[3], 0x01000000u, 0u)) << 24;
    store_word(out, (d + 4) / 5, (i64)blockIdx.x * 1024 + 4 * threadIdx.x, word, aligned(out, 4));
}

template <typename T>
__device__ __forceinline__ void add_trits(const u8* in, T* out, i64 d, Step step) {
    __shared__ u32 trits[1280];
    if (!step.valid) return;
    u32 word = load_word(in, (d + 4) / 5, (i64)blockIdx.x * 1024 + 4 * threadIdx.x, aligned(in, 4));
    u64 t[3] = {0, 0, 0};
#pragma unroll
    for (int b = 0; b < 4; b++) {
        u32 byte = word >> 8 * b & 255;
#pragma unroll
        for (int n = 0; n < 5; n++, byte /= 3) t[(5 * b + n) / 8] |= (u64)(byte % 3) << 8 * ((5 * b + n) % 8);
    }
#pragma unroll
    for (int w = 0; w < 5; w++) trits[5 * threadIdx.x + w] = (u32)(t[w / 2] >> 32 * (w % 2));
    __syncthreads();
    bool vector = aligned(out, 16);
#pragma unroll
    for (int i = 0; i < 5; i++) {
        i64 j = (i64)blockIdx.x * 5120 + 1024 * i + 4 * threadIdx.x;
        u32 four = trits[256 * i + threadIdx.x];
        Four<T> f = load4(out, j, d, vector);
#pragma unroll
        for (int c = 0; c < 4; c++)
            f.v[c] = rounded<T>(promoted(f.v[c]) + (double)((int)(four >> 8 * c & 3) - 1) * step.value);
        store4(out, j, d, vector, f);
    }
}

#define DITHERING(NAME, T)                                                                                  \
    KERNEL_OF(T)                                                                                            \
    dither_pack_##NAME(const T* x, i64 d, const double* norm, i64 s, i64 width, STREAM, u8* out) {          \
        pack_levels<Uniform>(x, d, norm, (int)s, (int)width, THE_STREAM, out);                              \
    }                                                                                                       \
    KERNEL_OF(T)                                                                                            \
    natural_dither_pack_##NAME(const T* x, i64 d, const double* norm, i64 s, i64 width, STREAM, u8* out) {  \
        pack_levels<Natural>(x, d, norm, (int)s, (int)width, THE_STREAM, out);                              \
    }                                                                                                       \
    KERNEL_OF(T) ternary_pack_##NAME(const T* x, i64 d, const double* norm, STREAM, u8* out) {              \
        pack_trits(x, d, norm, THE_STREAM, out);                                                            \
    }                                                                                                       \
    KERNEL_OF(T)                                                                                            \
    dither_add_##NAME(const u8* in, T* out, i64 d, const u8* head, i64 bytes, double levels, double factor, \
                      i64 s, i64 width, const u32* bad, u64* notes) {                                       \
        Step step = read_step(head, bytes, levels, factor, bad, notes);                                     \
        add_levels<FromUniform>(in, out, d, step, (int)s, (int)width);                                      \
    }                                                                                                       \
    KERNEL_OF(T)                                                                                            \
    natural_dither_add_##NAME(const u8* in, T* out, i64 d, const u8* head, i64 bytes, double factor, i64 s, \
                              i64 width, const u32* bad, u64* notes) {                                      \
        Step step = read_step(head, bytes, 1.0, factor, bad, notes);                                        \
        add_levels<FromNatural>(in, out, d, step, (int)s, (int)width);                                      \
    }                                                                                                       \
    KERNEL_OF(T)                                                                                            \
    ternary_add_##NAME(const u8* in, T* out, i64 d, const u8* head, i64 bytes, double factor,               \
                       const u32* bad, u64* notes) {                                                        \
        add_trits(in, out, d, read_step(head, bytes, 1.0, factor, bad, notes));                             \
    }

DITHERING(f32, float)
DITHERING(f64, double)
