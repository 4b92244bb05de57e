// What a warp does together: reading, adding up and packing 1024 coordinates.
//
// A warp has 1024 consecutive coordinates, a block of 256 threads 8192.  Coordinate 128 i + 4 lane + c is
// component c of a thread's i-th load: 16 bytes a thread and 512 a warp, one Philox block a load.

#define KERNEL_OF(T) extern "C" __global__ void __launch_bounds__(256, sizeof(T) == 4 ? 4 : 3)
#define KERNEL KERNEL_OF(float)
#define LANE (threadIdx.x & 31)
#define EVERY 0xffffffffu
#define WARP_INDEX (((i64)blockIdx.x * blockDim.x + threadIdx.x) >> 5)
#define THREAD_INDEX ((i64)blockIdx.x * blockDim.x + threadIdx.x)

template <typename T>
struct Four {
    T v[4];
};

__device__ __forceinline__ bool aligned(const void* p, int bytes) { return ((u64)p & (bytes - 1)) == 0; }

__device__ __forceinline__ Four<float> vector_load(const float* x) {
    float4 q = *(const float4*)x;
    Four<float> out = {{q.x, q.y, q.z, q.w}};
    return out;
}

__device__ __forceinline__ Four<double> vector_load(const double* x) {
    double2 p = *(const double2*)x, q = *(const double2*)(x + 2);
    Four<double> out = {{p.x, p.y, q.x, q.y}};
    return out;
}

__device__ __forceinline__ Four<u16> vector_load(const u16* x) {
    u64 q = *(const u64*)x;
    Four<u16> out = {{(u16)q, (u16)(q >> 16), (u16)(q >> 32), (u16)(q >> 48)}};
    return out;
}

__device__ __forceinline__ Four<u8> vector_load(const u8* x) {
    u32 q = *(const u32*)x;
    Four<u8> out = {{(u8)q, (u8)(q >> 8), (u8)(q >> 16), (u8)(q >> 24)}};
    return out;
}

__device__ __forceinline__ void vector_store(u16* x, Four<u16> f) {
    *(u64*)x = f.v[0] | (u64)f.v[1] << 16 | (u64)f.v[2] << 32 | (u64)f.v[3] << 48;
}

__device__ __forceinline__ void vector_store(float* x, Four<float> f) {
    float4 q = {f.v[0], f.v[1], f.v[2], f.v[3]};
    *(float4*)x = q;
}

__device__ __forceinline__ void vector_store(double* x, Four<double> f) {
    double2 p = {f.v[0], f.v[1]}, q = {f.v[2], f.v[3]};
    *(double2*)x = p;
    *(double2*)(x + 2) = q;
}

// Coordinates j .. j + 3, 0 where there are none; `vector` says that x lies on the bytes of four of them, or 16.
template <typename T>
__device__ __forceinline__ Four<T> load4(const T* x, i64 j, i64 d, bool vector) {
    if (vector && j + 4 <= d) return vector_load(x + j);
    Four<T> out;
#pragma unroll
    for (int c = 0; c < 4; c++) out.v[c] = j + c < d ? x[j + c] : (T)0;
    return out;
}

template <typename T>
__device__ __forceinline__ void store4(T* x, i64 j, i64 d, bool vector, Four<T> f) {
    if (vector && j + 4 <= d) return vector_store(x + j, f);
#pragma unroll
    for (int c = 0; c < 4; c++)
        if (j + c < d) x[j + c] = f.v[c];
}

// --- sums over the fixed tree: lane j += lane j + w/2 for w = 1024, 512, .., 2 ---

// From w = 128 on, a[c] being coordinate 4 lane + c; every thread gets the sum.  The halves of a warp that
// would hold the same numbers after a step take different components instead.
__device__ __forceinline__ double tree_of_128(double a0, double a1, double a2, double a3) {
    bool upper = LANE & 16, odd = LANE & 8;
    double b0 = (upper ? a2 : a0) + __shfl_xor_sync(EVERY, upper ? a0 : a2, 16);
    double b1 = (upper ? a3 : a1) + __shfl_xor_sync(EVERY, upper ? a1 : a3, 16);
    double sum = (odd ? b1 : b0) + __shfl_xor_sync(EVERY, odd ? b0 : b1, 8);
    sum += __shfl_xor_sync(EVERY, sum, 4);
    sum += __shfl_xor_sync(EVERY, sum, 2);
    sum += __shfl_xor_sync(EVERY, sum, 1);
    sum += __shfl_xor_sync(EVERY, sum, 16);
    return sum + __shfl_xor_sync(EVERY, sum, 8);
}

// The whole tree, v[i][c] being coordinate 128 i + 4 lane + c.
__device__ __forceinline__ double tree_of_1024(const double (&v)[8][4]) {
    double a[4];
#pragma unroll
    for (int c = 0; c < 4; c++)
        a[c] = ((v[0][c] + v[4][c]) + (v[2][c] + v[6][c])) + ((v[1][c] + v[5][c]) + (v[3][c] + v[7][c]));
    return tree_of_128(a[0], a[1], a[2], a[3]);
}

// --- flags, one bit a coordinate ---

// Every thread's eight nibbles (nibble i: the flags of its load i) to the word it stores, and back: a
// transpose of 8 by 8 nibbles among eight neighbouring threads.
__device__ __forceinline__ u32 transpose_nibbles(u32 r) {
    u32 y = __shfl_xor_sync(EVERY, r, 4);
    r = LANE & 4 ? (r & 0xffff0000u) | y >> 16 : (r & 0x0000ffffu) | y << 16;
    y = __shfl_xor_sync(EVERY, r, 2);
    r = LANE & 2 ? (r & 0xff00ff00u) | (y >> 8 & 0x00ff00ffu) : (r & 0x00ff00ffu) | (y << 8 & 0xff00ff00u);
    y = __shfl_xor_sync(EVERY, r, 1);
    return LANE & 1 ? (r & 0xf0f0f0f0u) | (y >> 4 & 0x0f0f0f0fu) : (r & 0x0f0f0f0fu) | (y << 4 & 0xf0f0f0f0u);
}

// Which of a warp's 32 words of flags this thread has after the transpose.
__device__ __forceinline__ int word_of_lane() { return 4 * (LANE & 7) + (LANE >> 3); }

__device__ __forceinline__ void store_word(u8* out, i64 nbytes, i64 offset, u32 word, bool whole) {
    if (whole && offset + 4 <= nbytes) {
        *(u32*)(out + offset) = word;
    } else {
        for (int b = 0; b < 4; b++)
            if (offset + b < nbytes) out[offset + b] = (u8)(word >> 8 * b);
    }
}

__device__ __forceinline__ u32 load_word(const u8* in, i64 nbytes, i64 offset, bool whole) {
    if (whole && offset + 4 <= nbytes) return *(const u32*)(in + offset);
    u32 word = 0;
    for (int b = 0; b < 4; b++)
        if (offset + b < nbytes) word |= (u32)in[offset + b] << 8 * b;
    return word;
}

// --- symbols of `width` bits, four a thread in `packed`, the first one lowest; a chunk is a warp's 128 ---

__device__ __forceinline__ void store_symbols(u8* out, i64 nbytes, i64 chunk, u64 packed, int width) {
    i64 offset = chunk * 16 * width;
    u8* at = out + offset;
    if (offset + 16 * width <= nbytes && aligned(out, 4)) {
        if (width == 4) {
            ((u16*)at)[LANE] = (u16)packed;
            return;
        }
        if (width == 8) {
            ((u32*)at)[LANE] = (u32)packed;
            return;
        }
        if (width == 2) {
            at[LANE] = (u8)packed;
            return;
        }
        if (width == 16) {
            ((u32*)at)[2 * LANE] = (u32)packed;
            ((u32*)at)[2 * LANE + 1] = (u32)(packed >> 32);
            return;
        }
    }
    if (width == 8 && offset + 16 * width <= nbytes) {  // not on 4 bytes: words of two threads' bytes
        int skip = (int)((u64)at & 3), bits = 8 * skip;
        u32 own = (u32)packed, before = __shfl_up_sync(EVERY, own, 1);
        if (LANE > 0) ((u32*)(at - skip))[LANE] = own << bits | before >> (32 - bits);
        if (LANE == 0)
            for (int b = 0; b < 4 - skip; b++) at[b] = (u8)(own >> 8 * b);
        if (LANE == 31)
            for (int b = 4 - skip; b < 4; b++) at[124 + b] = (u8)(own >> 8 * b);
        return;
    }
    int each = 4 * width;  // bits a thread has; a byte takes them from at most two threads
    for (int first = 0; first < 16 * width; first += 32) {
        int byte = first + (int)LANE, source = 8 * byte / each, skip = 8 * byte - source * each;
        u64 low = __shfl_sync(EVERY, packed, source & 31),
            high = __shfl_sync(EVERY, packed, (source + 1) & 31);
        u8 value = (u8)(low >> skip | (each - skip < 8 ? high << (each - skip) : 0));
        if (byte < 16 * width && offset + byte < nbytes) at[byte] = value;
    }
}

__device__ __forceinline__ u64 load_symbols(const u8* in, i64 nbytes, i64 chunk, int width) {
    i64 offset = chunk * 16 * width;
    const u8* at = in + offset;
    if (offset + 16 * width <= nbytes && aligned(in, 4)) {
        if (width == 4) return ((const u16*)at)[LANE];
        if (width == 8) return ((const u32*)at)[LANE];
        if (width == 2) return at[LANE];
        if (width == 16) return ((const u32*)at)[2 * LANE] | (u64)((const u32*)at)[2 * LANE + 1] << 32;
    }
    if (width == 8 && offset + 16 * width + 4 <= nbytes) {  // not on 4 bytes
        int skip = (int)((u64)at & 3), bits = 8 * skip;
        const u32* words = (const u32*)(at - skip) + LANE;
        return words[0] >> bits | words[1] << (32 - bits);
    }
    int bit = 4 * width * (int)LANE, skip = bit & 7, count = (skip + 4 * width + 7) / 8;
    u64 packed = 0;
    for (int b = 0; b < count; b++)
        if (offset + bit / 8 + b < nbytes) packed |= (u64)at[bit / 8 + b] << 8 * b;
    return packed >> skip;
}

// --- blocks of 256 threads ---

// The sum of the values of the threads before this one, and of all; `warps` is room for 8.
__device__ __forceinline__ u64 scan_of_256(u64 value, u64* warps, u64* total) {
    u64 sum = value;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        u64 before = __shfl_up_sync(EVERY, sum, step);
        if (LANE >= (u32)step) sum += before;
    }
    __syncthreads();
    if (LANE == 31) warps[threadIdx.x >> 5] = sum;
    __syncthreads();
    u64 start = 0;
    *total = 0;
    for (int w = 0; w < 8; w++) {
        if (w == (int)(threadIdx.x >> 5)) start = *total;
        *total += warps[w];
    }
    return start + sum - value;
}

// True in every thread of the block that comes here last, which then sees what the others wrote.
__device__ __forceinline__ bool last_block(u32* arrived) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(arrived, 1u) == gridDim.x - 1;
    __syncthreads();
    __threadfence();
    return last;
}
