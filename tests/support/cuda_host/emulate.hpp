// CUDA on a CPU, as far as the kernels use it: blocks one after the other, a block's threads as coroutines.
//
// The threads of a warp run in turn from one warp-wide operation to the next, and all of a block's meet at
// __syncthreads.  A warp whose threads meet at different operations is reported and ends the process.

#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#define __host__
#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)

struct Index {
    unsigned x;
};
static Index gridDim, blockDim, blockIdx, threadIdx;

struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) double2 {
    double x, y;
};

namespace emulation {

struct Thread {
    ucontext_t start;
    jmp_buf at;
    bool begun, done, waiting;
    unsigned long long operations;
    std::unique_ptr<char[]> stack;
};

struct Slot {
    unsigned long long value, operation;
};

const int most = 1024;
static Thread threads[most];
static Slot slots[2][most];
static jmp_buf scheduler;
static void (*kernel)(...);
static unsigned long long whole[20];
static double real[4];

// Integers and pointers, and doubles, go to a function each in their own registers and in their own order
// (System V ABI of x86-64, AAPCS64), so kernels of any signature can be called alike.
static void body() {
    typedef unsigned long long W;
    typedef void (*Any)(W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, double, double, double,
                        double);
    W* w = whole;
    ((Any)kernel)(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13],
                  w[14], w[15], w[16], w[17], w[18], w[19], real[0], real[1], real[2], real[3]);
    threads[threadIdx.x].done = true;
    _longjmp(scheduler, 1);
}

static void pause() {
    if (!_setjmp(threads[threadIdx.x].at)) _longjmp(scheduler, 1);
}

static void resume(unsigned t) {
    threadIdx.x = t;
    if (_setjmp(scheduler)) return;
    if (threads[t].begun) _longjmp(threads[t].at, 1);
    threads[t].begun = true;
    setcontext(&threads[t].start);
}

static void run_block() {
    const size_t size = 64 * 1024;
    for (unsigned t = 0; t < blockDim.x; t++) {
        Thread& thread = threads[t];
        if (!thread.stack) thread.stack.reset(new char[size]);
        thread.begun = thread.done = thread.waiting = false;
        thread.operations = 0;
        getcontext(&thread.start);
        thread.start.uc_stack.ss_sp = thread.stack.get();
        thread.start.uc_stack.ss_size = size;
        thread.start.uc_link = nullptr;
        makecontext(&thread.start, body, 0);
    }
    for (bool left = true; left;) {
        for (unsigned warp = 0; warp < blockDim.x; warp += 32)
            for (bool running = true; running;) {
                running = false;
                for (unsigned t = warp; t < warp + 32 && t < blockDim.x; t++)
                    if (!threads[t].done && !threads[t].waiting) {
                        resume(t);
                        running = true;
                    }
            }
        left = false;
        for (unsigned t = 0; t < blockDim.x; t++) {
            left = left || !threads[t].done;
            threads[t].waiting = false;
        }
    }
}

template <typename T>
T exchange(T value, unsigned source) {
    Thread& thread = threads[threadIdx.x];
    unsigned long long operation = ++thread.operations, bits = 0;
    Slot* slot = slots[operation & 1];
    memcpy(&bits, &value, sizeof value);
    slot[threadIdx.x] = {bits, operation};
    pause();
    Slot other = slot[(threadIdx.x & ~31u) + (source & 31)];
    if (other.operation != operation) {
        fprintf(stderr, "block %u, threads %u and %u: not at the same warp-wide operation\n", blockIdx.x,
                threadIdx.x, (threadIdx.x & ~31u) + source);
        abort();
    }
    memcpy(&value, &other.value, sizeof value);
    return value;
}

}  // namespace emulation

static inline void __syncthreads() {
    emulation::threads[threadIdx.x].waiting = true;
    emulation::pause();
}

template <typename T>
T __shfl_sync(unsigned, T v, int source) {
    return emulation::exchange(v, (unsigned)source);
}
template <typename T>
T __shfl_xor_sync(unsigned, T v, int mask) {
    return emulation::exchange(v, (threadIdx.x & 31) ^ (unsigned)mask);
}
template <typename T>
T __shfl_up_sync(unsigned, T v, int step) {
    int lane = (int)(threadIdx.x & 31);
    return emulation::exchange(v, (unsigned)(lane >= step ? lane - step : lane));
}

static inline unsigned __ballot_sync(unsigned, int predicate) {
    unsigned votes = 0;
    for (unsigned lane = 0; lane < 32; lane++) votes |= emulation::exchange((unsigned)(predicate != 0), lane) << lane;
    return votes;
}

static inline void __syncwarp() { emulation::exchange(0, threadIdx.x & 31); }

template <typename T>
T atomicAdd(T* p, T v) {
    T old = *p;
    *p += v;
    return old;
}
template <typename T>
T atomicOr(T* p, T v) {
    T old = *p;
    *p |= v;
    return old;
}
template <typename T>
T atomicMax(T* p, T v) {
    T old = *p;
    if (v > old) *p = v;
    return old;
}
template <typename T>
T __ldcg(const T* p) {
    return *p;
}
static inline void __threadfence() {}
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline int __clzll(long long v) { return v ? __builtin_clzll((unsigned long long)v) : 64; }

static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

static inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
    for (int byte = 0; byte < 32; byte += 8) sum += (a >> byte & 255) * (b >> byte & 255);
    return sum;
}

template <typename To, typename From>
To same_bits(From v) {
    To to;
    memcpy(&to, &v, sizeof to);
    return to;
}
static inline unsigned __float_as_uint(float v) { return same_bits<unsigned>(v); }
static inline float __uint_as_float(unsigned v) { return same_bits<float>(v); }
static inline long long __double_as_longlong(double v) { return same_bits<long long>(v); }
static inline double __longlong_as_double(long long v) { return same_bits<double>(v); }
static inline long long __double2ll_ru(double v) {
    return v < 9.2e18 ? (long long)std::ceil(v) : 0x7fffffffffffffffll;
}
using std::ceil;
using std::fabs;
using std::fma;
using std::sqrt;

extern "C" void emulate(void (*kernel)(...), unsigned grid, unsigned block, const unsigned long long* whole,
                        const double* real) {
    emulation::kernel = kernel;
    memcpy(emulation::whole, whole, sizeof emulation::whole);
    memcpy(emulation::real, real, sizeof emulation::real);
    gridDim.x = grid;
    blockDim.x = block;
    for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++) emulation::run_block();
}
