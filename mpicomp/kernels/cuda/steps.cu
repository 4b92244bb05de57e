// Levels of the norms of blocks, in steps that differ from coordinate to coordinate.

#include "arithmetic.cuh"
#include "warp.cuh"

// The contiguous blocks of d coordinates, whose sizes differ by at most one, the larger ones first; and the
// one that a coordinate is in, for coordinates that are asked for in increasing order.
struct Block {
    i64 d, blocks, index, end;

    __device__ __forceinline__ Block(i64 d, i64 blocks) : d(d), blocks(blocks), index(-1), end(0) {}

    // Whether j is in another block than the coordinate before.
    __device__ __forceinline__ bool moves_to(i64 j) {
        if (j < end) return false;
        i64 size = d / blocks, longer = d % blocks, first = longer * (size + 1);
        index = j < first ? j / (size + 1) : longer + (j - first) / size;
        end = (index + 1) * size + (index + 1 < longer ? index + 1 : longer);
        return true;
    }
};

template <typename T>
__device__ __forceinline__ void step_symbols(const T* x, i64 d, i64 blocks, const double* norms,
                                             const double* r, const Stream& stream, u16* out) {
    i64 chunk = WARP_INDEX;
    if (chunk * 1024 >= d) return;
    bool vector = aligned(x, 16), whole = aligned(r, 16);
    Block block(d, blocks);
    Gain by;
#pragma unroll 1
    for (int i = 0; i < 8; i++) {
        i64 j = chunk * 1024 + 128 * i + 4 * LANE;
        Words words = philox(stream, (u32)(j >> 2));
        Four<T> in = load4(x, j, d, vector);
        Four<double> steps = load4(r, j, d, whole);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            if (j + c >= d) break;
            if (block.moves_to(j + c)) by = gain_of(norms[block.index], 1, 4294967296.0);
            int s = (int)ceil(steps.v[c]);
            double t = fabs(promoted(in.v[c])) * by.lift * (steps.v[c] * by.factor);
            int level = (int)dither_level(t, s, words.w[c]);
            out[j + c] = (u16)(s + (negative(in.v[c]) ? -level : level));
        }
    }
}

template <typename T>
__device__ __forceinline__ void step_add(const u16* symbols, T* out, i64 d, i64 blocks, const double* norms,
                                         const double* r, double scale) {
    i64 chunk = WARP_INDEX;
    if (chunk * 1024 >= d) return;
    bool vector = aligned(out, 16), whole = aligned(r, 16);
    Block block(d, blocks);
    double norm = 0;
#pragma unroll 1
    for (int i = 0; i < 8; i++) {
        i64 j = chunk * 1024 + 128 * i + 4 * LANE;
        Four<T> f = load4(out, j, d, vector);
        Four<double> steps = load4(r, j, d, whole);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            if (j + c >= d) break;
            if (block.moves_to(j + c)) norm = norms[block.index];
            double level = (double)symbols[j + c] - ceil(steps.v[c]);
            double value = level == 0 ? 0.0 : level * (norm / steps.v[c] * scale);
            f.v[c] = rounded<T>(promoted(f.v[c]) + value);
        }
        store4(out, j, d, vector, f);
    }
}

#define STEPS(NAME, T)                                                                                      \
    KERNEL_OF(T)                                                                                            \
    step_symbols_##NAME(const T* x, i64 d, i64 blocks, const double* norms, const double* r, STREAM,        \
                        u16* out) {                                                                         \
        step_symbols(x, d, blocks, norms, r, THE_STREAM, out);                                              \
    }                                                                                                       \
    KERNEL_OF(T)                                                                                            \
    step_add_##NAME(const u16* symbols, T* out, i64 d, i64 blocks, const double* norms, const double* r,    \
                    double scale) {                                                                         \
        step_add(symbols, out, d, blocks, norms, r, scale);                                                 \
    }

STEPS(f32, float)
STEPS(f64, double)
