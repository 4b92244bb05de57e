// The coder of kernels/definition/ans.py: a thread has a run of the bytes.

#include "arithmetic.cuh"
#include "warp.cuh"

#define RUN 4096
#define START 65536ull

// A byte's frequency, the sum of those before it, and 2^64 - 1 over it, rounded down.
struct Model {
    u32 frequency[256], below[257];
    u64 inverse[256];
};

__device__ __forceinline__ void load_model(const u32* frequencies, Model* m) {
    for (int s = threadIdx.x; s < 256; s += blockDim.x) {
        m->frequency[s] = frequencies[s];
        m->inverse[s] = ~0ull / frequencies[s];
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        m->below[0] = 0;
        for (int s = 0; s < 256; s++) m->below[s + 1] = m->below[s] + m->frequency[s];
    }
    __syncthreads();
}

__device__ __forceinline__ i64 run_length(i64 run, i64 count) {
    return count - run * RUN < RUN ? count - run * RUN : RUN;
}

// Each run's words, in `words` from run * room on, and their number.
KERNEL ans_encode(const u8* symbols, i64 count, const u32* frequencies, i64 room, u32* words, i64* counts) {
    __shared__ Model m;
    load_model(frequencies, &m);
    i64 run = THREAD_INDEX;
    if (run * RUN >= count) return;
    u32* to = words + run * room;
    const u8* from = symbols + run * RUN;
    bool whole = aligned(from, 4);
    u64 state = START;
    u32 four = 0;  // the symbols j / 4 * 4 and the three after it
    i64 n = 0, length = run_length(run, count);
    for (i64 j = length - 1; j >= 0; j--) {
        if (j == length - 1 || (j & 3) == 3) four = load_word(from, length, j & ~3, whole);
        u32 symbol = four >> 8 * (j & 3) & 255;
        u64 f = m.frequency[symbol];
        if (state >= f << 48) {
            to[n++] = (u32)state;
            state >>= 32;
        }
        u64 quotient = __umul64hi(state, m.inverse[symbol]), rest = state - quotient * f;
        if (rest >= f) {  // the inverse is a little too small: the quotient may be one less
            quotient++;
            rest -= f;
        }
        state = (quotient << 16) + rest + m.below[symbol];
    }
    to[n] = (u32)state;
    to[n + 1] = (u32)(state >> 32);
    counts[run] = n + (state >> 32 ? 2 : 1);
}

// The words of each run to its place in the message; a warp has a run.
KERNEL ans_gather(const u32* words, i64 room, const i64* counts, const i64* ends, i64 runs, u32* out) {
    i64 run = WARP_INDEX;
    if (run >= runs) return;
    const u32* from = words + run * room;
    u32* to = out + ends[run] - counts[run];
    for (i64 n = LANE; n < counts[run]; n += 32) to[n] = from[n];
}

// The symbols of each run, whose words are `in` up to the run's end, 32 bits each but for the last; notes[0] is
// set where one does not end as it should.
KERNEL ans_decode(const u8* in, i64 nbytes, const i64* ends, const u32* frequencies, u8* symbols, i64 count,
                  u64* notes) {
    __shared__ Model m;
    __shared__ u8 near[4096];  // of 16 slots: the symbol of the first
    load_model(frequencies, &m);
    for (u32 slot = threadIdx.x; slot < 4096; slot += blockDim.x) {
        int symbol = 0;
        for (int step = 128; step > 0; step /= 2)
            if (m.below[symbol + step] <= 16 * slot) symbol += step;
        near[slot] = (u8)symbol;
    }
    __syncthreads();
    i64 run = THREAD_INDEX;
    if (run * RUN >= count) return;
    u8* to = symbols + run * RUN;
    bool whole = aligned(in, 4), stored = aligned(to, 4);
    i64 first = run ? ends[run - 1] : 0, left = ends[run], length = run_length(run, count);
    u64 state = 0;
    u32 four = 0;
    while (state >> 32 == 0 && left > first) state = state << 32 | load_word(in, nbytes, 4 * --left, whole);
    for (i64 j = 0; j < length; j++) {
        u32 slot = (u32)state & 0xffff, symbol = near[slot >> 4];
        while (m.below[symbol + 1] <= slot) symbol++;
        four |= symbol << 8 * (j & 3);
        if ((j & 3) == 3 || j == length - 1) {
            store_word(to, length, j & ~3, four, stored);
            four = 0;
        }
        state = m.frequency[symbol] * (state >> 16) + slot - m.below[symbol];
        if (state >> 32 == 0 && left > first) state = state << 32 | load_word(in, nbytes, 4 * --left, whole);
    }
    if (left > first || state != START) notes[0] = 1;
}
