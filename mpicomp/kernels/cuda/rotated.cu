// Rotated quantisers: a block of threads turns a block of up to 4096 coordinates in shared memory.
//
// The order of all sums is that of kernels.definition.rotated.

#include "arithmetic.cuh"
#include "warp.cuh"

#define MOST 4096
#define TEAM 256  // threads
#define EACH (MOST / TEAM)

// k for the least 2^k that is not below `rest`.
FUNCTION int log2_of_length(i64 rest) {
    int k = 0;
    while ((1ll << k) < rest) k++;
    return k;
}

// The signs of D for the coordinates of a block: 128 words, of which bit i of word w is for coordinate 32 w + i.
__device__ __forceinline__ void draw_signs(const Stream& stream, i64 start, int n, u32* signs) {
    int lane = (int)threadIdx.x;
    if (lane < (n + 127) / 128) {
        Words words = philox(stream, (u32)(start / 128 + lane));
        for (int c = 0; c < 4; c++) signs[4 * lane + c] = words.w[c];
    }
    __syncthreads();
}

__device__ __forceinline__ double flipped(double v, const u32* signs, int j) {
    return signs[j >> 5] >> (j & 31) & 1 ? -v : v;
}

// y = H y, once all threads have written their part of it.
__device__ __forceinline__ void hadamard(double* y, int k) {
    int n = 1 << k;
    for (int s = 0; s < k; s++) {
        __syncthreads();
        for (int i = (int)threadIdx.x; i < n / 2; i += TEAM) {
            int a = (i >> s) << (s + 1) | (i & ((1 << s) - 1)), b = a + (1 << s);
            double u = y[a], v = y[b];
            y[a] = u + v;
            y[b] = u - v;
        }
    }
    __syncthreads();
}

// The sum of a block's terms, v[i] being that of coordinate thread + 256 i, and 0 beyond the block.
__device__ __forceinline__ double tree_of_block(double* v, double* lanes) {
    for (int half = EACH / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) v[i] += v[i + half];
    int lane = (int)threadIdx.x;
    __syncthreads();
    lanes[lane] = v[0];
    for (int w = TEAM / 2; w > 0; w /= 2) {
        __syncthreads();
        if (lane < w) lanes[lane] += lanes[lane + w];
    }
    __syncthreads();
    return lanes[0];
}

// notes[0] is set where a scale is not finite.
template <typename T>
__device__ __forceinline__ void pack_rotated(const T* x, i64 d, int bits, i64 block, bool least,
                                             const Stream& stream, const double* levels, u8* out, u64* notes) {
    __shared__ double y[MOST], lanes[TEAM];
    __shared__ u32 signs[MOST / 32];
    __shared__ u8 symbols[MOST];
    int lane = (int)threadIdx.x, half = 1 << (bits - 1);
    i64 start = blockIdx.x * block, left = d - start;
    int k = log2_of_length(left < block ? left : block), n = 1 << k;
    draw_signs(stream, start, n, signs);
    for (int j = lane; j < n; j += TEAM) y[j] = flipped(j < left ? promoted(x[start + j]) : 0.0, signs, j);
    hadamard(y, k);

    double v[EACH];
    for (int i = 0; i < EACH; i++) {
        int j = lane + TEAM * i;
        v[i] = j < n ? y[j] * y[j] : 0.0;
    }
    double squares = tree_of_block(v, lanes), norm = sqrt(squares / n);
    for (int j = lane; j < n; j += TEAM) {
        int index = 0;
        for (int i = 0; i + 1 < half; i++) index += fabs(y[j]) > (levels[i + 1] + levels[i]) / 2 * norm;
        symbols[j] = (u8)index;
    }
    for (int i = 0; i < EACH; i++) {
        int j = lane + TEAM * i;
        v[i] = j < n ? levels[symbols[j]] * fabs(y[j]) : 0.0;
    }
    double product = tree_of_block(v, lanes), scale;
    bool even = false;
    if (least) {
        for (int i = 0; i < EACH; i++) {
            int j = lane + TEAM * i;
            v[i] = j < n ? levels[symbols[j]] * levels[symbols[j]] : 0.0;
        }
        double energy = tree_of_block(v, lanes);
        for (int i = 0; i < EACH; i++) {
            int j = lane + TEAM * i;
            v[i] = j < n ? fabs(y[j]) : 0.0;
        }
        double mass = tree_of_block(v, lanes);
        even = half > 1 && mass * mass * energy > product * product * n;
        scale = even ? levels[0] * mass / (levels[0] * levels[0] * n) : product / energy;
    } else {
        scale = product > 0 ? squares / product : product;
    }
    float wire = rounded<float>(scale * power_of_two(k / 2 - k));
    if (lane == 0) {
        u32 code = bits_of(wire);
        if (!(promoted(wire) < __longlong_as_double(0x7ff0000000000000ll))) notes[0] = 1;
        for (int b = 0; b < 4; b++) out[4 * (i64)blockIdx.x + b] = (u8)(code >> 8 * b);
    }
    for (int j = lane; j < n; j += TEAM)
        symbols[j] = (u8)((even ? 0 : symbols[j]) + (y[j] < 0 ? half : 0));
    __syncthreads();
    u8* packed = out + 4 * (i64)gridDim.x + start * bits / 8;
    for (int q = lane; q < (n * bits + 7) / 8; q += TEAM) {
        u32 byte = 0;
        for (int j = 8 * q / bits; j < n && j * bits < 8 * q + 8; j++) {
            int at = j * bits - 8 * q;
            byte |= at < 0 ? (u32)symbols[j] >> -at : (u32)symbols[j] << at;
        }
        packed[q] = (u8)byte;
    }
}

// Is one of the scales not finite, or negative?  Then bad and notes[0] are set.
KERNEL rotated_check(const u8* in, i64 count, u32* bad, u64* notes) {
    i64 i = THREAD_INDEX;
    if (i >= count) return;
    u32 code = 0;
    for (int b = 0; b < 4; b++) code |= (u32)in[4 * i + b] << 8 * b;
    double scale = promoted(from_bits(code));
    if (!(scale >= 0 && scale < __longlong_as_double(0x7ff0000000000000ll))) {
        *bad = 1;
        notes[0] = 1;
    }
}

// Unless `rotated_check` has found something.
template <typename T>
__device__ __forceinline__ void add_rotated(const u8* in, T* out, i64 d, int bits, i64 block,
                                            const Stream& stream, const double* levels, double factor,
                                            const u32* bad) {
    if (*bad) return;
    __shared__ double c[MOST];
    __shared__ u32 signs[MOST / 32];
    int lane = (int)threadIdx.x, half = 1 << (bits - 1);
    i64 start = blockIdx.x * block, left = d - start;
    int k = log2_of_length(left < block ? left : block), n = 1 << k;
    draw_signs(stream, start, n, signs);
    const u8* packed = in + 4 * (i64)gridDim.x + start * bits / 8;
    for (int j = lane; j < n; j += TEAM) {
        int at = j * bits / 8, skip = j * bits & 7;
        u32 symbol = (u32)packed[at] >> skip;
        if (skip + bits > 8) symbol |= (u32)packed[at + 1] << (8 - skip);
        double level = levels[symbol & (half - 1)];
        c[j] = symbol & half ? -level : level;
    }
    hadamard(c, k);
    u32 code = 0;
    for (int b = 0; b < 4; b++) code |= (u32)in[4 * (i64)blockIdx.x + b] << 8 * b;
    double gain = promoted(from_bits(code)) * power_of_two(-(k / 2));
    for (int j = lane; j < n && j < left; j += TEAM)
        out[start + j] = rounded<T>(promoted(out[start + j]) + flipped(c[j] * gain, signs, j) * factor);
}

#define ROTATED(NAME, T)                                                                                     \
    KERNEL_OF(T)                                                                                             \
    rotated_pack_##NAME(const T* x, i64 d, i64 bits, i64 block, i64 least, STREAM, const double* levels,     \
                        u8* out, u64* notes) {                                                               \
        pack_rotated(x, d, (int)bits, block, least != 0, THE_STREAM, levels, out, notes);                    \
    }                                                                                                        \
    KERNEL_OF(T)                                                                                             \
    rotated_add_##NAME(const u8* in, T* out, i64 d, i64 bits, i64 block, STREAM, const double* levels,       \
                       double factor, const u32* bad) {                                                      \
        add_rotated(in, out, d, (int)bits, block, THE_STREAM, levels, factor, bad);                          \
    }

ROTATED(f32, float)
ROTATED(f64, double)
