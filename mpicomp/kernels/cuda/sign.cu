// Scaled sign: one bit a coordinate, and the sum of magnitudes in the same pass.

#include "arithmetic.cuh"
#include "warp.cuh"
#include "head.cuh"

// Bits of x < 0, and the block sums of |x| as in sums.cu.
template <typename T>
__device__ __forceinline__ void pack_signs(const T* x, i64 d, const u64* largest, double* sums, u8* out) {
    i64 block = WARP_INDEX;
    if (block * 1024 >= d) return;
    bool vector = aligned(x, 16);
    Four<T> in[8];
#pragma unroll
    for (int i = 0; i < 8; i++) in[i] = load4(x, block * 1024 + 128 * i + 4 * LANE, d, vector);
    u32 signs = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int c = 0; c < 4; c++) signs |= (u32)(negative(in[i].v[c])) << (4 * i + c);
    u32 word = transpose_nibbles(signs);
    store_word(out, (d + 7) / 8, block * 128 + 4 * word_of_lane(), word, aligned(out, 4));
    int exponent = sizeof(T) == 8 && largest != nullptr ? sum_exponent(*largest) : 0;
    double v[8][4];
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            v[i][c] = fabs(promoted(in[i].v[c]));
            if (exponent != 0) v[i][c] = scaled(v[i][c], -exponent);
        }
    double sum = tree_of_1024(v);
    if (LANE == 0) sums[block] = sum;
}

KERNEL sign_pack_f32(const float* x, i64 d, const u64* largest, double* sums, u8* out) {
    pack_signs(x, d, largest, sums, out);
}

KERNEL_OF(double) sign_pack_f64(const double* x, i64 d, const u64* largest, double* sums, u8* out) {
    pack_signs(x, d, largest, sums, out);
}

template <typename T>
__device__ __forceinline__ void add_signs(const u8* in, T* out, i64 d, const u8* head, i64 width,
                                          double factor, u64* notes) {
    i64 block = WARP_INDEX;
    if (block * 1024 >= d) return;
    Step step = read_step(head, width, 1.0, factor, nullptr, notes);
    if (!step.valid) return;
    u32 word = load_word(in, (d + 7) / 8, block * 128 + 4 * word_of_lane(), aligned(in, 4));
    u32 signs = transpose_nibbles(word);
    bool vector = aligned(out, 16);
    Four<T> f[8];
#pragma unroll
    for (int i = 0; i < 8; i++) f[i] = load4(out, block * 1024 + 128 * i + 4 * LANE, d, vector);
#pragma unroll
    for (int i = 0; i < 8; i++) {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            double signed_step = signs >> (4 * i + c) & 1 ? -step.value : step.value;
            f[i].v[c] = rounded<T>(promoted(f[i].v[c]) + signed_step);
        }
        store4(out, block * 1024 + 128 * i + 4 * LANE, d, vector, f[i]);
    }
}

KERNEL sign_add_f32(const u8* in, float* out, i64 d, const u8* head, i64 width, double factor, u64* notes) {
    add_signs(in, out, d, head, width, factor, notes);
}

KERNEL_OF(double)
sign_add_f64(const u8* in, double* out, i64 d, const u8* head, i64 width, double factor, u64* notes) {
    add_signs(in, out, d, head, width, factor, notes);
}
