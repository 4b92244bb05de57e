// Choosing coordinates: the k largest magnitudes, those above a threshold, the non-zeros, coin flips.
//
// Coordinates are marked in a bitmap of d bits (32 words to each 1024 coordinates) and the bitmap is turned
// into increasing indices; a tile is 1024 words.  The k largest are found by their magnitude's bits, highest
// digit first: a histogram of x's top digit, then one more pass over x that marks what lies above the digit
// of the k-th largest and what lies inside it; lower digits look only at what is inside.

#include "arithmetic.cuh"
#include "warp.cuh"

// What the digits have told so far; the histogram of the digit at hand follows.
struct Selection {
    u64 prefix;  // the k-th largest magnitude's bits, as far as known
    u64 need;    // how many with this prefix are among the k
    u32 arrived;
    u32 unused;
};

__device__ __forceinline__ u32 key_of(float x) { return magnitude_bits(x); }
__device__ __forceinline__ u64 key_of(double x) { return magnitude_bits(x); }

// Find the digit in which the need-th largest lies; clears the histogram.  By a block of 256 threads.
__device__ __forceinline__ void choose_digit(Selection* s, u64* histogram, int bits, u64 need) {
    __shared__ u64 warps[8];
    int bins = 1 << bits, each = (bins + 255) / 256, last = bins - 1 - each * (int)threadIdx.x;
    u64 own = 0, total;  // this thread's bins, from the highest one down
    for (int b = last; b > last - each && b >= 0; b--) own += __ldcg(histogram + b);
    u64 above = scan_of_256(own, warps, &total);
    if (above < need && need <= above + own) {
        int b = last;
        for (; above + __ldcg(histogram + b) < need; b--) above += __ldcg(histogram + b);
        s->prefix = s->prefix << bits | (u64)b;
        s->need = need - above;
    }
    if (threadIdx.x == 0) s->arrived = 0;
    __syncthreads();
    for (int b = threadIdx.x; b < bins; b += 256) histogram[b] = 0;
}

__device__ __forceinline__ void add_histogram(const u32* local, u64* histogram, int bins) {
    __syncthreads();
    for (int b = threadIdx.x; b < bins; b += 256)
        if (local[b]) atomicAdd(histogram + b, (u64)local[b]);
}

// The first digit: the highest 12 bits of all magnitudes.
template <typename T>
__device__ __forceinline__ void first_digit(const T* x, i64 d, u64 k, Selection* s, u64* histogram) {
    __shared__ u32 local[4096];
    const int shift = 8 * sizeof(T) - 13;
    for (int b = threadIdx.x; b < 4096; b += 256) local[b] = 0;
    __syncthreads();
    bool vector = aligned(x, 16);
    for (i64 block = WARP_INDEX; block * 1024 < d; block += (i64)gridDim.x * 8) {
        Four<T> in[8];
#pragma unroll
        for (int i = 0; i < 8; i++) in[i] = load4(x, block * 1024 + 128 * i + 4 * LANE, d, vector);
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                if (block * 1024 + 128 * i + 4 * LANE + c < d)
                    atomicAdd(local + (int)(key_of(in[i].v[c]) >> shift), 1u);
    }
    add_histogram(local, histogram, 4096);
    if (last_block(&s->arrived)) choose_digit(s, histogram, 12, k);
}

// Mark what is above and what is inside the first digit; the histogram of the next 10 bits of what is inside.
template <typename T>
__device__ __forceinline__ void mark(const T* x, i64 d, u32* above, u32* inside, Selection* s,
                                     u64* histogram) {
    __shared__ u32 local[1024];
    const int shift = 8 * sizeof(T) - 13;
    for (int b = threadIdx.x; b < 1024; b += 256) local[b] = 0;
    u32 digit = (u32)s->prefix;
    u64 need = s->need;
    __syncthreads();
    bool vector = aligned(x, 16);
    for (i64 block = WARP_INDEX; block * 1024 < d; block += (i64)gridDim.x * 8) {
        Four<T> in[8];
#pragma unroll
        for (int i = 0; i < 8; i++) in[i] = load4(x, block * 1024 + 128 * i + 4 * LANE, d, vector);
        u32 over = 0, equal = 0;
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                u32 top = (u32)(key_of(in[i].v[c]) >> shift);
                over |= (u32)(top > digit) << (4 * i + c);
                bool here = top == digit && block * 1024 + 128 * i + 4 * LANE + c < d;
                equal |= (u32)here << (4 * i + c);
                if (here) atomicAdd(local + (int)(key_of(in[i].v[c]) >> (shift - 10) & 1023), 1u);
            }
        i64 word = block * 32 + word_of_lane();
        above[word] = transpose_nibbles(over);
        inside[word] = transpose_nibbles(equal);
    }
    add_histogram(local, histogram, 1024);
    if (last_block(&s->arrived)) choose_digit(s, histogram, 10, need);
}

// A further digit, `bits` (at most 11) of them above bit `shift`, of what is inside and has the prefix.
template <typename T>
__device__ __forceinline__ void refine(const T* x, const u32* inside, i64 words, i64 shift, i64 bits,
                                       Selection* s, u64* histogram) {
    __shared__ u32 local[2048];
    for (int b = threadIdx.x; b < 2048; b += 256) local[b] = 0;
    u64 prefix = s->prefix, need = s->need;
    __syncthreads();
    for (i64 w = THREAD_INDEX; w < words; w += (i64)gridDim.x * 256)
        for (u32 left = inside[w]; left; left &= left - 1) {
            u64 key = key_of(x[32 * w + __ffs((int)left) - 1]) >> shift;
            if (key >> bits == prefix) atomicAdd(local + (int)(key & ((1ull << bits) - 1)), 1u);
        }
    add_histogram(local, histogram, 1 << bits);
    if (last_block(&s->arrived)) choose_digit(s, histogram, (int)bits, need);
}

// Exclusive sums of n counts in place, by a block of 256 threads; the total goes behind the last one.
__device__ __forceinline__ void scan_counts(u64* counts, i64 n) {
    __shared__ u64 warps[8];
    i64 each = (n + 255) / 256, first = each * threadIdx.x, stop = first + each < n ? first + each : n;
    u64 own = 0, total;
    for (i64 t = first; t < stop; t++) own += __ldcg(counts + t);
    u64 before = scan_of_256(own, warps, &total);
    for (i64 t = first; t < stop; t++) {
        u64 count = __ldcg(counts + t);
        counts[t] = before;
        before += count;
    }
    if (threadIdx.x == 0) counts[n] = total;
}

// Four words of a tile to a thread.
__device__ __forceinline__ u32 tile_word(const u32* words, i64 count, int n) {
    i64 w = (i64)blockIdx.x * 1024 + 4 * threadIdx.x + n;
    return w < count ? words[w] : 0;
}

// What is inside and larger than the k-th largest joins `above`, what equals it stays in `inside`; then both
// are counted by tiles, and the counts summed up.
template <typename T>
__device__ __forceinline__ void settle(const T* x, u32* above, u32* inside, i64 words, Selection* s,
                                       u64* counts, u64* ties) {
    __shared__ u64 warps[8];
    u64 key = s->prefix, over = 0, equal = 0, total;
    for (int n = 0; n < 4; n++) {
        i64 w = (i64)blockIdx.x * 1024 + 4 * threadIdx.x + n;
        u32 larger = tile_word(above, words, n), tied = 0, old = tile_word(inside, words, n);
        for (u32 left = old; left; left &= left - 1) {
            u32 bit = left & (~left + 1);
            u64 other = key_of(x[32 * w + __ffs((int)left) - 1]);
            if (other > key) larger |= bit;
            if (other == key) tied |= bit;
        }
        over += __popc(larger);
        equal += __popc(tied);
        if (old) {
            above[w] = larger;
            inside[w] = tied;
        }
    }
    scan_of_256(over, warps, &total);
    if (threadIdx.x == 0) counts[blockIdx.x] = total;
    scan_of_256(equal, warps, &total);
    if (threadIdx.x == 0) ties[blockIdx.x] = total;
    if (last_block(&s->arrived)) {
        scan_counts(counts, gridDim.x);
        scan_counts(ties, gridDim.x);
    }
}

// Counts by tiles, summed up; the number of marks goes to notes[2].
KERNEL tally(const u32* marks, i64 words, u32* arrived, u64* counts, u64* notes) {
    __shared__ u64 warps[8];
    u64 own = 0, total;
    for (int n = 0; n < 4; n++) own += __popc(tile_word(marks, words, n));
    scan_of_256(own, warps, &total);
    if (threadIdx.x == 0) counts[blockIdx.x] = total;
    if (last_block(arrived)) {
        scan_counts(counts, gridDim.x);
        if (threadIdx.x == 0) notes[2] = counts[gridDim.x];
    }
}

// The positions of the marks, increasing, the first `limit` of them; with ties, the first need of those among
// them.
KERNEL collect(const u32* marks, const u32* tied, i64 words, const Selection* s, const u64* counts,
               const u64* ties, i64 limit, i64* out) {
    __shared__ u64 warps[8];
    u32 own[4];
    u64 total, at = counts[blockIdx.x];
    for (int n = 0; n < 4; n++) own[n] = tile_word(marks, words, n);
    if (tied != nullptr) {
        u32 equal[4];
        u64 count = 0, need = s->need, before = ties[blockIdx.x];
        for (int n = 0; n < 4; n++) count += __popc(equal[n] = tile_word(tied, words, n));
        u64 rank = before + scan_of_256(count, warps, &total);
        for (int n = 0; n < 4; n++)
            for (u32 left = equal[n]; left && rank < need; left &= left - 1, rank++)
                own[n] |= left & (~left + 1);
        at += before < need ? before : need;
    }
    u64 count = 0;
    for (int n = 0; n < 4; n++) count += __popc(own[n]);
    at += scan_of_256(count, warps, &total);
    for (int n = 0; n < 4; n++)
        for (u32 left = own[n]; left; left &= left - 1, at++)
            if (at < (u64)limit)
                out[at] = 32 * ((i64)blockIdx.x * 1024 + 4 * threadIdx.x + n) + __ffs((int)left) - 1;
}

// The bits that are not set, of the first d.
KERNEL invert(u32* marks, i64 words, i64 d) {
    i64 w = THREAD_INDEX;
    if (w >= words) return;
    i64 left = d - 32 * w;
    marks[w] = ~marks[w] & (left >= 32 ? EVERY : left > 0 ? (1u << left) - 1 : 0);
}

// Bits of a message to words, of which only the first nbits may be set.
KERNEL import_bits(const u8* in, i64 nbits, u32* marks, i64 words) {
    i64 w = THREAD_INDEX, left = nbits - 32 * w;
    if (w >= words) return;
    marks[w] = load_word(in, (nbits + 7) / 8, 4 * w, aligned(in, 4)) & (left >= 32 ? EVERY
                                                                        : left > 0 ? (1u << left) - 1
                                                                                   : 0);
}

// Magnitudes whose bits are `least` or more: NaN is above infinity.
template <typename T>
__device__ __forceinline__ void mark_at_least(const T* x, i64 d, u64 least, u32* marks) {
    i64 block = WARP_INDEX;
    if (block * 1024 >= d) return;
    bool vector = aligned(x, 16);
    Four<T> in[8];
#pragma unroll
    for (int i = 0; i < 8; i++) in[i] = load4(x, block * 1024 + 128 * i + 4 * LANE, d, vector);
    u32 flags = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            auto key = key_of(in[i].v[c]);
            flags |= (u32)(key >= least) << (4 * i + c);
        }
    marks[block * 32 + word_of_lane()] = transpose_nibbles(flags);
}

// Words of the stream below 2^32 times the probability of their coordinate: `each`, or else `all`.
KERNEL mark_heads(i64 d, const double* each, double all, STREAM, u32* marks) {
    i64 block = WARP_INDEX;
    if (block * 1024 >= d) return;
    Stream stream = THE_STREAM;
    bool vector = each != nullptr && aligned(each, 16);
    u32 flags = 0;
#pragma unroll 4
    for (int i = 0; i < 8; i++) {
        i64 j = block * 1024 + 128 * i + 4 * LANE;
        Words words = philox(stream, (u32)(j >> 2));
        Four<double> p = {{all, all, all, all}};
        if (each != nullptr) p = load4(each, j, d, vector);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            bool head = (double)words.w[c] < p.v[c] * 4294967296.0;
            flags |= (u32)(j + c < d && head) << (4 * i + c);
        }
    }
    marks[block * 32 + word_of_lane()] = transpose_nibbles(flags);
}

#define SELECTION(NAME, T)                                                                                \
    KERNEL_OF(T)                                                                                          \
    first_digit_##NAME(const T* x, i64 d, i64 k, Selection* s, u64* histogram) {                          \
        first_digit(x, d, (u64)k, s, histogram);                                                          \
    }                                                                                                     \
    KERNEL_OF(T)                                                                                          \
    mark_##NAME(const T* x, i64 d, u32* above, u32* inside, Selection* s, u64* histogram) {               \
        mark(x, d, above, inside, s, histogram);                                                          \
    }                                                                                                     \
    KERNEL_OF(T)                                                                                          \
    refine_##NAME(const T* x, const u32* inside, i64 words, i64 shift, i64 bits, Selection* s,            \
                  u64* histogram) {                                                                       \
        refine(x, inside, words, shift, bits, s, histogram);                                              \
    }                                                                                                     \
    KERNEL_OF(T)                                                                                          \
    settle_##NAME(const T* x, u32* above, u32* inside, i64 words, Selection* s, u64* counts, u64* ties) { \
        settle(x, above, inside, words, s, counts, ties);                                                 \
    }                                                                                                     \
    KERNEL_OF(T) at_least_##NAME(const T* x, i64 d, i64 least, u32* marks) {                              \
        mark_at_least(x, d, (u64)least, marks);                                                           \
    }

SELECTION(f32, float)
SELECTION(f64, double)
