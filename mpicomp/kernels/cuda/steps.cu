// Levels of the norms of blocks, in steps that differ from coordinate to coordinate.

#include "arithmetic.cuh"
#include "warp.cuh"

// The block that a coordinate is in, for coordinates that are asked for in increasing order from j on.  There
// are `longer` blocks of size + 1 coordinates, then those of `size`.
struct Block {
    i64 size, longer, index, end;

    __device__ __forceinline__ Block(i64 j, i64 size, i64 longer) : size(size), longer(longer) {
        i64 first = longer * (size + 1);
        index = j < first ? j / (size + 1) : longer + (j - first) / size;
        end = (index + 1) * size + (index < longer ? index + 1 : longer);
    }

    // Whether j is in another block than the coordinate before.
    __device__ __forceinline__ bool moves_to(i64 j) {
        if (j < end) return false;
        do {
            index++;
            end += index < longer ? size + 1 : size;
        } while (j >= end);
        return true;
    }
};

template <typename T>
__device__ __forceinline__ void step_symbols(const T* x, i64 d, i64 size, i64 longer, const double* norms,
                                             const double* r, const Stream& stream, u16* out) {
    i64 first = WARP_INDEX * 1024 + 4 * LANE;
    if (first >= d) return;
    bool vector = aligned(x, 16), whole = aligned(r, 16);
    Block block(first, size, longer);
    Gain by = gain_of(norms[block.index], 1, 4294967296.0);
#pragma unroll 1
    for (i64 j = first; j < d && j < first + 1024; j += 128) {
        Words words = philox(stream, (u32)(j >> 2));
        Four<T> in = load4(x, j, d, vector);
        Four<double> steps = load4(r, j, d, whole);
        Four<u16> symbols;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            if (j + c < d && block.moves_to(j + c)) by = gain_of(norms[block.index], 1, 4294967296.0);
            int s = (int)ceil(steps.v[c]);
            double t = fabs(promoted(in.v[c])) * by.lift * (steps.v[c] * by.factor);
            int level = (int)dither_level(t, s, words.w[c]);
            symbols.v[c] = (u16)(s + (negative(in.v[c]) ? -level : level));
        }
        store4(out, j, d, aligned(out, 8), symbols);
    }
}

template <typename T>
__device__ __forceinline__ void step_add(const u16* symbols, T* out, i64 d, i64 size, i64 longer,
                                         const double* norms, const double* r, double scale) {
    i64 first = WARP_INDEX * 1024 + 4 * LANE;
    if (first >= d) return;
    bool vector = aligned(out, 16), whole = aligned(r, 16);
    Block block(first, size, longer);
    double norm = norms[block.index];
#pragma unroll 1
    for (i64 j = first; j < d && j < first + 1024; j += 128) {
        Four<T> f = load4(out, j, d, vector);
        Four<double> steps = load4(r, j, d, whole);
        Four<u16> in = load4(symbols, j, d, aligned(symbols, 8));
#pragma unroll
        for (int c = 0; c < 4; c++) {
            if (j + c < d && block.moves_to(j + c)) norm = norms[block.index];
            double level = (double)in.v[c] - ceil(steps.v[c]);
            double value = level == 0 ? 0.0 : level * (norm / steps.v[c] * scale);
            f.v[c] = rounded<T>(promoted(f.v[c]) + value);
        }
        store4(out, j, d, vector, f);
    }
}

#define STEPS(NAME, T)                                                                                      \
    KERNEL_OF(T)                                                                                            \
    step_symbols_##NAME(const T* x, i64 d, i64 size, i64 longer, const double* norms, const double* r,      \
                        STREAM, u16* out) {                                                                 \
        step_symbols(x, d, size, longer, norms, r, THE_STREAM, out);                                        \
    }                                                                                                       \
    KERNEL_OF(T)                                                                                            \
    step_add_##NAME(const u16* symbols, T* out, i64 d, i64 size, i64 longer, const double* norms,           \
                    const double* r, double scale) {                                                        \
        step_add(symbols, out, d, size, longer, norms, r, scale);                                           \
    }

STEPS(f32, float)
STEPS(f64, double)
