// Words, permutations, values: what goes coordinate by coordinate.

#include "arithmetic.cuh"
#include "warp.cuh"

// Words start .. start + count - 1 of a stream; a Philox block a thread.
KERNEL words(i64 start, i64 count, STREAM, u32* out) {
    i64 block = start / 4 + THREAD_INDEX, j = 4 * block - start;
    if (j >= count) return;
    Words four = philox(THE_STREAM, (u32)block);
#pragma unroll
    for (int c = 0; c < 4; c++)
        if (j + c >= 0 && j + c < count) out[j + c] = four.w[c];
}

// pi(start), .., pi(start + count - 1), d above 1024.
KERNEL permute(i64 start, i64 count, i64 d, STREAM, i64* out) {
    i64 j = THREAD_INDEX;
    if (j >= count) return;
    Stream stream = THE_STREAM;
    Words low = philox(stream, 0), high = philox(stream, 1);
    u32 keys[8] = {low.w[0], low.w[1], low.w[2], low.w[3], high.w[0], high.w[1], high.w[2], high.w[3]};
    out[j] = permuted(start + j, d, 64 - __clzll(d - 1), keys);
}

// The whole permutation for d up to 1024, the stable order of d words (one block of 1024 threads).
extern "C" __global__ void __launch_bounds__(1024) permute_small(i64 d, STREAM, i64* out) {
    __shared__ u32 word[1024];
    int j = threadIdx.x;
    Words four = philox(THE_STREAM, (u32)j);
    if (j < 256)
        for (int c = 0; c < 4; c++) word[4 * j + c] = four.w[c];
    __syncthreads();
    if (j >= d) return;
    int rank = 0;
    for (int i = 0; i < d; i++) rank += word[i] < word[j] || (word[i] == word[j] && i < j);
    out[rank] = j;
}

// out += scale x.
template <typename O, typename T>
__device__ __forceinline__ void add(O* out, const T* x, i64 d, double scale) {
    i64 block = WARP_INDEX;
    if (block * 1024 >= d) return;
    bool vector = aligned(out, 16) && aligned(x, 16);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        i64 j = block * 1024 + 128 * i + 4 * LANE;
        Four<O> f = load4(out, j, d, vector);
        Four<T> in = load4(x, j, d, vector);
#pragma unroll
        for (int c = 0; c < 4; c++) f.v[c] = rounded<O>(promoted(f.v[c]) + promoted(in.v[c]) * scale);
        store4(out, j, d, vector, f);
    }
}

// out[indices] += scale values; no index comes twice.
template <typename O, typename T>
__device__ __forceinline__ void scatter(O* out, const i64* indices, const T* values, i64 k, double scale) {
    i64 j = THREAD_INDEX;
    if (j < k) out[indices[j]] = rounded<O>(promoted(out[indices[j]]) + promoted(values[j]) * scale);
}

template <typename T>
__device__ __forceinline__ void gather(const T* x, const i64* indices, i64 k, T* out) {
    i64 j = THREAD_INDEX;
    if (j < k) out[j] = x[indices[j]];
}

KERNEL promote(const float* x, i64 d, double* out) {
    i64 j = THREAD_INDEX;
    if (j < d) out[j] = promoted(x[j]);
}

// notes[0] is set where an entry is not a float32.
KERNEL expect_singles(const double* x, i64 d, u64* notes) {
    i64 j = THREAD_INDEX;
    if (j < d && promoted(rounded<float>(x[j])) != x[j]) notes[0] = 1;
}

// --- values on the wire, little-endian, at any address ---

template <typename T>
__device__ __forceinline__ u64 wire_f8(T x) {
    return bits_of(promoted(x));
}
template <typename T>
__device__ __forceinline__ u64 wire_f4(T x) {
    return bits_of(rounded<float>(promoted(x)));
}
template <typename T>
__device__ __forceinline__ u64 wire_f2(T x) {
    return narrowed<5, 10>(x);
}
template <typename T>
__device__ __forceinline__ u64 wire_bf16(T x) {
    return narrowed<8, 7>(x);
}
__device__ __forceinline__ double read_f8(u64 bits) { return __longlong_as_double((i64)bits); }
__device__ __forceinline__ float read_f4(u64 bits) { return __uint_as_float((u32)bits); }
__device__ __forceinline__ float read_f2(u64 bits) { return from_half((u16)bits); }
__device__ __forceinline__ float read_bf16(u64 bits) { return __uint_as_float((u32)bits << 16); }

template <int WIDTH>
__device__ __forceinline__ void store_value(u8* out, i64 j, u64 bits) {
    if (aligned(out, WIDTH)) {
        if (WIDTH == 8) ((u64*)out)[j] = bits;
        if (WIDTH == 4) ((u32*)out)[j] = (u32)bits;
        if (WIDTH == 2) ((u16*)out)[j] = (u16)bits;
    } else {
        for (int b = 0; b < WIDTH; b++) out[WIDTH * j + b] = (u8)(bits >> 8 * b);
    }
}

// Value j of `count`.  Where they lie at an odd address, each is in two aligned words; but the first and the last
// are read byte by byte, since beside them may be no memory of ours.
template <int WIDTH>
__device__ __forceinline__ u64 load_value(const u8* in, i64 j, i64 count) {
    const u8* at = in + WIDTH * j;
    if (aligned(in, WIDTH)) {
        if (WIDTH == 8) return *(const u64*)at;
        if (WIDTH == 4) return *(const u32*)at;
        return *(const u16*)at;
    }
    u64 bits = 0;
    if (WIDTH == 2 || j == 0 || j + 1 == count) {
        for (int b = 0; b < WIDTH; b++) bits |= (u64)at[b] << 8 * b;
        return bits;
    }
    int skip = (int)((u64)at & (WIDTH - 1)), low = 8 * skip, high = 8 * (WIDTH - skip);
    if (WIDTH == 8) return ((const u64*)(at - skip))[0] >> low | ((const u64*)(at - skip))[1] << high;
    return ((const u32*)(at - skip))[0] >> low | ((const u32*)(at - skip))[1] << high;
}

#define PAIR(OUT, O, IN, T)                                                                             \
    KERNEL add_scaled_##OUT##_##IN(O* out, const T* x, i64 d, double scale) { add(out, x, d, scale); }  \
    KERNEL scatter_add_##OUT##_##IN(O* out, const i64* indices, const T* values, i64 k, double scale) { \
        scatter(out, indices, values, k, scale);                                                        \
    }

PAIR(f32, float, f32, float)
PAIR(f32, float, f64, double)
PAIR(f64, double, f32, float)
PAIR(f64, double, f64, double)

// Four values of a thread in aligned memory.
template <int WIDTH>
__device__ __forceinline__ void store_values(u8* out, i64 j, const u64 (&bits)[4]) {
    if (WIDTH == 2) *(u64*)(out + 2 * j) = bits[0] | bits[1] << 16 | bits[2] << 32 | bits[3] << 48;
    if (WIDTH == 4) {
        Four<float> f = {{from_bits((u32)bits[0]), from_bits((u32)bits[1]), from_bits((u32)bits[2]),
                          from_bits((u32)bits[3])}};
        vector_store((float*)out + j, f);
    }
    if (WIDTH == 8) {
        Four<double> f = {{from_bits(bits[0]), from_bits(bits[1]), from_bits(bits[2]), from_bits(bits[3])}};
        vector_store((double*)out + j, f);
    }
}

// x to the wire; notes[0] is set where a value there is not finite.
#define ENCODE(NAME, T, FORMAT, WIDTH, INFINITY)                                                           \
    KERNEL encode_##FORMAT##_##NAME(const T* x, i64 d, u8* out, u64* notes) {                              \
        i64 block = WARP_INDEX;                                                                            \
        if (block * 1024 >= d) return;                                                                     \
        bool vector = aligned(x, 16), whole = aligned(out, 16), over = false;                              \
        for (int i = 0; i < 8; i++) {                                                                      \
            i64 j = block * 1024 + 128 * i + 4 * LANE;                                                     \
            Four<T> in = load4(x, j, d, vector);                                                           \
            u64 bits[4];                                                                                   \
            for (int c = 0; c < 4; c++) {                                                                  \
                bits[c] = wire_##FORMAT(in.v[c]);                                                          \
                over = over || (bits[c] & INFINITY) == INFINITY;                                           \
            }                                                                                              \
            if (whole && j + 4 <= d) {                                                                     \
                store_values<WIDTH>(out, j, bits);                                                         \
            } else {                                                                                       \
                for (int c = 0; c < 4; c++)                                                                \
                    if (j + c < d) store_value<WIDTH>(out, j + c, bits[c]);                                \
            }                                                                                              \
        }                                                                                                  \
        if (over) notes[0] = 1;                                                                            \
    }

#define VALUES(NAME, T)                           \
    ENCODE(NAME, T, f8, 8, 0x7ff0000000000000ull) \
    ENCODE(NAME, T, f4, 4, 0x7f800000ull)         \
    ENCODE(NAME, T, f2, 2, 0x7c00ull)             \
    ENCODE(NAME, T, bf16, 2, 0x7f80ull)           \
    KERNEL gather_##NAME(const T* x, const i64* indices, i64 k, T* out) { gather(x, indices, k, out); }

VALUES(f32, float)
VALUES(f64, double)

// out += scale times the numbers on the wire.
#define WIRE_ADD(OUT, O, FORMAT, WIDTH)                                                                  \
    KERNEL wire_add_##FORMAT##_##OUT(const u8* in, O* out, i64 d, double scale) {                        \
        i64 block = WARP_INDEX;                                                                          \
        if (block * 1024 >= d) return;                                                                   \
        bool vector = aligned(out, 16);                                                                  \
        for (int i = 0; i < 8; i++) {                                                                    \
            i64 j = block * 1024 + 128 * i + 4 * LANE;                                                   \
            Four<O> f = load4(out, j, d, vector);                                                        \
            for (int c = 0; c < 4; c++) {                                                                \
                if (j + c >= d) break;                                                                   \
                f.v[c] = rounded<O>(promoted(f.v[c]) +                                                   \
                                    promoted(read_##FORMAT(load_value<WIDTH>(in, j + c, d))) * scale);   \
            }                                                                                            \
            store4(out, j, d, vector, f);                                                                \
        }                                                                                                \
    }

#define DECODE(FORMAT, T, WIDTH)                                                \
    KERNEL decode_##FORMAT(const u8* in, i64 count, T* out) {                   \
        i64 j = THREAD_INDEX;                                                   \
        if (j < count) out[j] = read_##FORMAT(load_value<WIDTH>(in, j, count)); \
    }                                                                           \
    WIRE_ADD(f32, float, FORMAT, WIDTH)                                         \
    WIRE_ADD(f64, double, FORMAT, WIDTH)

DECODE(f8, double, 8)
DECODE(f4, float, 4)
DECODE(f2, float, 2)
DECODE(bf16, float, 2)
