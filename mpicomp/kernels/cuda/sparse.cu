// Words, permutations, values: what goes coordinate by coordinate.

#include "arithmetic.cuh"
#include "warp.cuh"

// Words start .. start + count of a stream; a Philox block a thread.
extern "C" __global__ void __launch_bounds__(256)
words(i64 start, i64 count, i64 k0, i64 k1, i64 c1, i64 c2, i64 c3, u32* out) {
    i64 block = start / 4 + THREAD_INDEX, j = 4 * block - start;
    if (j >= count) return;
    Words four = philox(stream_of(k0, k1, c1, c2, c3), (u32)block);
#pragma unroll
    for (int c = 0; c < 4; c++)
        if (j + c >= 0 && j + c < count) out[j + c] = four.w[c];
}

// pi(start), .., pi(start + count - 1), d above 1024.
extern "C" __global__ void __launch_bounds__(256)
permute(i64 start, i64 count, i64 d, i64 k0, i64 k1, i64 c1, i64 c2, i64 c3, i64* out) {
    i64 j = THREAD_INDEX;
    if (j >= count) return;
    Stream stream = stream_of(k0, k1, c1, c2, c3);
    Words low = philox(stream, 0), high = philox(stream, 1);
    u32 keys[8] = {low.w[0], low.w[1], low.w[2], low.w[3], high.w[0], high.w[1], high.w[2], high.w[3]};
    out[j] = permuted(start + j, d, 64 - __clzll(d - 1), keys);
}

// The whole permutation for d up to 1024, the stable order of d words (one block of 1024 threads).
extern "C" __global__ void __launch_bounds__(1024)
permute_small(i64 d, i64 k0, i64 k1, i64 c1, i64 c2, i64 c3, i64* out) {
    __shared__ u32 word[1024];
    int j = threadIdx.x;
    Words four = philox(stream_of(k0, k1, c1, c2, c3), (u32)j);
    if (j < 256)
        for (int c = 0; c < 4; c++) word[4 * j + c] = four.w[c];
    __syncthreads();
    if (j >= d) return;
    int rank = 0;
    for (int i = 0; i < d; i++) rank += word[i] < word[j] || (word[i] == word[j] && i < j);
    out[rank] = j;
}

// out += scale x.
template <typename O, typename T> __device__ __forceinline__ void add(O* out, const T* x, i64 d, double scale) {
    i64 block = WARP_INDEX;
    if (block * 1024 >= d) return;
    bool vector = aligned(out, 16) && aligned(x, 16);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        i64 j = block * 1024 + 128 * i + 4 * LANE;
        Four<O> f = load4(out, j, d, vector);
        Four<T> in = load4(x, j, d, vector);
#pragma unroll
        for (int c = 0; c < 4; c++) f.v[c] = (O)((double)f.v[c] + (double)in.v[c] * scale);
        store4(out, j, d, vector, f);
    }
}

// out[indices] += scale values; no index comes twice.
template <typename O, typename T>
__device__ __forceinline__ void scatter(O* out, const i64* indices, const T* values, i64 k, double scale) {
    i64 j = THREAD_INDEX;
    if (j < k) out[indices[j]] = (O)((double)out[indices[j]] + (double)values[j] * scale);
}

template <typename T> __device__ __forceinline__ void gather(const T* x, const i64* indices, i64 k, T* out) {
    i64 j = THREAD_INDEX;
    if (j < k) out[j] = x[indices[j]];
}

// --- values on the wire, little-endian, at any address ---

__device__ __forceinline__ u64 wire_f8(double x) { return bits_of(x); }
__device__ __forceinline__ u64 wire_f4(double x) { return bits_of((float)x); }
__device__ __forceinline__ u64 wire_f2(double x) { return narrowed<5, 10>(x); }
__device__ __forceinline__ u64 wire_bf16(double x) { return narrowed<8, 7>(x); }
__device__ __forceinline__ double read_f8(u64 bits) { return __longlong_as_double((i64)bits); }
__device__ __forceinline__ float read_f4(u64 bits) { return __uint_as_float((u32)bits); }
__device__ __forceinline__ float read_f2(u64 bits) { return from_half((u16)bits); }
__device__ __forceinline__ float read_bf16(u64 bits) { return __uint_as_float((u32)bits << 16); }

template <int WIDTH> __device__ __forceinline__ void store_value(u8* out, i64 j, u64 bits) {
    if (aligned(out, WIDTH)) {
        if (WIDTH == 8) ((u64*)out)[j] = bits;
        if (WIDTH == 4) ((u32*)out)[j] = (u32)bits;
        if (WIDTH == 2) ((u16*)out)[j] = (u16)bits;
    } else {
        for (int b = 0; b < WIDTH; b++) out[WIDTH * j + b] = (u8)(bits >> 8 * b);
    }
}

template <int WIDTH> __device__ __forceinline__ u64 load_value(const u8* in, i64 j) {
    u64 bits = 0;
    if (aligned(in, WIDTH)) {
        if (WIDTH == 8) bits = ((const u64*)in)[j];
        if (WIDTH == 4) bits = ((const u32*)in)[j];
        if (WIDTH == 2) bits = ((const u16*)in)[j];
    } else {
        for (int b = 0; b < WIDTH; b++) bits |= (u64)in[WIDTH * j + b] << 8 * b;
    }
    return bits;
}

#define PAIR(OUT, O, IN, T)                                                                                     \
    extern "C" __global__ void __launch_bounds__(256) add_scaled_##OUT##_##IN(O* out, const T* x, i64 d, double scale) { \
        add(out, x, d, scale);                                                                                  \
    }                                                                                                           \
    extern "C" __global__ void __launch_bounds__(256)                                                           \
    scatter_add_##OUT##_##IN(O* out, const i64* indices, const T* values, i64 k, double scale) {                \
        scatter(out, indices, values, k, scale);                                                                \
    }

PAIR(f32, float, f32, float)
PAIR(f32, float, f64, double)
PAIR(f64, double, f32, float)
PAIR(f64, double, f64, double)

// x[indices[0]], .. or, without indices, x to the wire; refused[0] is set where a finite value becomes infinite.
#define ENCODE(NAME, T, FORMAT, WIDTH, INFINITY)                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                                           \
    encode_##FORMAT##_##NAME(const T* x, const i64* indices, i64 count, u8* out, u32* refused) {                \
        i64 j = THREAD_INDEX;                                                                                   \
        if (j >= count) return;                                                                                 \
        double value = (double)x[indices == nullptr ? j : indices[j]];                                          \
        u64 bits = wire_##FORMAT(value);                                                                        \
        if ((bits & INFINITY) == INFINITY && magnitude_bits(value) < 0x7ff0000000000000ull) refused[0] = 1;     \
        store_value<WIDTH>(out, j, bits);                                                                       \
    }

#define VALUES(NAME, T)                                                                                         \
    ENCODE(NAME, T, f8, 8, 0x7ff0000000000000ull)                                                               \
    ENCODE(NAME, T, f4, 4, 0x7f800000ull)                                                                       \
    ENCODE(NAME, T, f2, 2, 0x7c00ull)                                                                           \
    ENCODE(NAME, T, bf16, 2, 0x7f80ull)                                                                         \
    extern "C" __global__ void __launch_bounds__(256) gather_##NAME(const T* x, const i64* indices, i64 k, T* out) { \
        gather(x, indices, k, out);                                                                             \
    }

VALUES(f32, float)
VALUES(f64, double)

#define DECODE(FORMAT, T, WIDTH)                                                                                \
    extern "C" __global__ void __launch_bounds__(256) decode_##FORMAT(const u8* in, i64 count, T* out) {        \
        i64 j = THREAD_INDEX;                                                                                   \
        if (j < count) out[j] = read_##FORMAT(load_value<WIDTH>(in, j));                                        \
    }

DECODE(f8, double, 8)
DECODE(f4, float, 4)
DECODE(f2, float, 2)
DECODE(bf16, float, 2)
