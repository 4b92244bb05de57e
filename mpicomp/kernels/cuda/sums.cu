// Norms: sums over the fixed tree, the largest magnitude, and the scale of a message.
//
// Where sums or squares of float64 could over- or underflow, the terms are scaled by a power of two that the
// largest magnitude chooses.  Those of float32 cannot, and `largest` may be null.

#include "arithmetic.cuh"
#include "warp.cuh"

template <bool SQUARE, typename T>
__device__ __forceinline__ void block_sums(const T* x, i64 d, int exponent, double* sums) {
    i64 block = WARP_INDEX;
    if (block * 1024 >= d) return;
    bool vector = aligned(x, 16);
    Four<T> in[8];
#pragma unroll
    for (int i = 0; i < 8; i++) in[i] = load4(x, block * 1024 + 128 * i + 4 * LANE, d, vector);
    double v[8][4];
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            double term = fabs(promoted(in[i].v[c]));
            if (exponent != 0) term = scaled(term, -exponent);
            v[i][c] = SQUARE ? term * term : term;
        }
    double sum = tree_of_1024(v);
    if (LANE == 0) sums[block] = sum;
}

KERNEL squares_f32(const float* x, i64 d, const u64* largest, double* sums) {
    block_sums<true>(x, d, 0, sums);
}

KERNEL_OF(double) squares_f64(const double* x, i64 d, const u64* largest, double* sums) {
    block_sums<true>(x, d, square_exponent(*largest), sums);
}

// The upper levels of the tree: sums of magnitudes and squares are not negative.
KERNEL_OF(double) sums_f64(const double* x, i64 d, double* sums) { block_sums<false>(x, d, 0, sums); }

template <typename T>
__device__ __forceinline__ void find_largest(const T* x, i64 d, u64* largest) {
    i64 block = WARP_INDEX;
    if (block * 1024 >= d) return;
    bool vector = aligned(x, 16);
    Four<T> in[8];
#pragma unroll
    for (int i = 0; i < 8; i++) in[i] = load4(x, block * 1024 + 128 * i + 4 * LANE, d, vector);
    auto top = magnitude_bits(in[0].v[0]);  // the order of magnitudes is that of their bits
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            auto bits = magnitude_bits(in[i].v[c]);
            top = bits > top ? bits : top;
        }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        auto other = __shfl_xor_sync(EVERY, top, step);
        top = other > top ? other : top;
    }
    u64 found = bits_of(promoted(from_bits(top)));
    if (LANE == 0 && found > __ldcg(largest)) atomicMax(largest, found);
}

KERNEL largest_f32(const float* x, i64 d, u64* largest) { find_largest(x, d, largest); }
KERNEL_OF(double) largest_f64(const double* x, i64 d, u64* largest) { find_largest(x, d, largest); }

// The rest of the tree over at most 2^15 block sums and what is made of it (one block of 1024 threads):
// kind 1: sum / d, 2: the root of the sum, 3: the largest magnitude.
// scale[0] is the number that `head`, `width` bytes, carries to the receiver, scale[1] the exact one;
// notes[0] is set where the former is infinite.
extern "C" __global__ void __launch_bounds__(1024)
    finish(const double* sums, i64 count, i64 d, i64 kind, const u64* largest, i64 width, u8* head,
           double* scale, u64* notes) {
    __shared__ double upper[32];
    i64 block = threadIdx.x >> 5;
    double v[8][4];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        Four<double> in = load4(sums, block * 1024 + 128 * i + 4 * LANE, count, aligned(sums, 16));
#pragma unroll
        for (int c = 0; c < 4; c++) v[i][c] = in.v[c];
    }
    double sum = tree_of_1024(v);
    if (LANE == 0) upper[block] = sum;
    __syncthreads();
    if (block > 0) return;
    Four<double> in = load4(upper, 4 * LANE, 32, false);
    sum = tree_of_128(in.v[0], in.v[1], in.v[2], in.v[3]);
    if (threadIdx.x > 0) return;
    int exponent = 0;
    if (largest != nullptr) exponent = kind == 2 ? square_exponent(*largest) : sum_exponent(*largest);
    double exact = kind == 3   ? __longlong_as_double((i64)*largest)
                   : kind == 2 ? scaled(sqrt(sum), exponent)
                               : scaled(sum / (double)d, exponent);
    float narrow = rounded_up(exact);
    double wire = width == 4 ? promoted(narrow) : exact;
    u64 bits = width == 4 ? bits_of(narrow) : bits_of(exact);
    if (!(wire < __longlong_as_double(0x7ff0000000000000ll))) notes[0] = 1;
    for (int b = 0; b < width; b++) head[b] = (u8)(bits >> 8 * b);
    scale[0] = wire;
    scale[1] = exact;
}
