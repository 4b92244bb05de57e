// What is computed for one coordinate: random words, roundings, narrow floats.
//
// Nothing here knows of threads, so that the same lines run on a CPU.  Arithmetic is float64, one IEEE
// operation at a time (built with -fmad=false; an fma that is written is meant), or on the bits where that is
// the same.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define FUNCTION __host__ __device__ __forceinline__

FUNCTION u32 bits_of(float x) { return __float_as_uint(x); }
FUNCTION u64 bits_of(double x) { return (u64)__double_as_longlong(x); }
FUNCTION float from_bits(u32 bits) { return __uint_as_float(bits); }
FUNCTION double from_bits(u64 bits) { return __longlong_as_double((i64)bits); }
FUNCTION u32 magnitude_bits(float x) { return bits_of(x) & 0x7fffffffu; }
FUNCTION u64 magnitude_bits(double x) { return bits_of(x) & 0x7fffffffffffffffull; }

FUNCTION bool finite_bits(u32 magnitude) { return magnitude < 0x7f800000u; }
FUNCTION bool finite_bits(u64 magnitude) { return magnitude < 0x7ff0000000000000ull; }

// Conversions that keep subnormal float32: CuPy has every module compiled with -ftz=true, which flushes them
// in the compiler's own conversions and comparisons.  So there is no float32 arithmetic anywhere, and these
// instructions.
FUNCTION double promoted(double x) { return x; }
FUNCTION double promoted(float x) {
#ifdef __CUDA_ARCH__
    double y;
    asm("cvt.f64.f32 %0, %1;" : "=d"(y) : "f"(x));
    return y;
#else
    return (double)x;
#endif
}

FUNCTION void round_to(double x, double* y) { *y = x; }
FUNCTION void round_to(double x, float* y) {
#ifdef __CUDA_ARCH__
    asm("cvt.rn.f32.f64 %0, %1;" : "=f"(*y) : "d"(x));
#else
    *y = (float)x;
#endif
}

// x in the type T, rounded to nearest even.
template <typename T>
FUNCTION T rounded(double x) {
    T y;
    round_to(x, &y);
    return y;
}

// x < 0, for x that is not NaN.
FUNCTION bool negative(float x) { return bits_of(x) > 0x80000000u; }
FUNCTION bool negative(double x) { return bits_of(x) > 0x8000000000000000ull; }

// 2^n for -1022 <= n <= 1023.
FUNCTION double power_of_two(int n) { return __longlong_as_double((i64)(n + 1023) << 52); }

// x 2^n rounded once, as ldexp does, for |n| <= 1100 and no overflow on the way.
FUNCTION double scaled(double x, int n) {
    if (n > 1000) {
        x *= power_of_two(1000);
        n -= 1000;
    }
    if (n < -1022) return x * __longlong_as_double(1ll << (n + 1074));  // a power of two itself below 2^-1022
    return x * power_of_two(n);
}

// e with 2^(e-1) <= m < 2^e, as frexp gives it, for the m >= 0 with these bits; 0 for m = 0.
FUNCTION int exponent_of(u64 bits) {
    int field = (int)(bits >> 52);
    return field ? field - 1022 : bits ? -1010 - __clzll((i64)bits) : 0;
}

// What x is divided by, as a power of two, before it is squared or summed; `bits`: its largest magnitude's.
FUNCTION int square_exponent(u64 bits) {
    return bits < bits_of(power_of_two(-400)) || bits >= bits_of(power_of_two(400)) ? exponent_of(bits) : 0;
}

FUNCTION int sum_exponent(u64 bits) { return bits >= bits_of(power_of_two(900)) ? exponent_of(bits) : 0; }

// --- Philox4x32-10 (Salmon, Moraes, Dror, Shaw, SC 2011) ---

// A stream comes to a kernel with the keys of its ten rounds, which so are operands in constant memory.
struct Stream {
    u32 k0[10], k1[10], c1, c2, c3;
};
struct Words {
    u32 w[4];
};

#define STREAM i64 r0, i64 r1, i64 r2, i64 r3, i64 r4, i64 r5, i64 r6, i64 r7, i64 r8, i64 r9, i64 c12, i64 c3
#define THE_STREAM stream_of(r0, r1, r2, r3, r4, r5, r6, r7, r8, r9, c12, c3)

FUNCTION Stream stream_of(STREAM) {
    i64 keys[10] = {r0, r1, r2, r3, r4, r5, r6, r7, r8, r9};
    Stream s;
#pragma unroll
    for (int r = 0; r < 10; r++) {
        s.k0[r] = (u32)keys[r];
        s.k1[r] = (u32)(keys[r] >> 32);
    }
    s.c1 = (u32)c12;
    s.c2 = (u32)(c12 >> 32);
    s.c3 = (u32)c3;
    return s;
}

// The 64-bit product of two words: one instruction, where the compiler's own choice is two.
FUNCTION u64 product(u32 a, u32 b) {
#ifdef __CUDA_ARCH__
    u64 p;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(p) : "r"(a), "r"(b));
    return p;
#else
    return (u64)a * b;
#endif
}

// Words 4 block .. 4 block + 3 of a stream.
FUNCTION Words philox(const Stream& s, u32 block) {
    u32 c0 = block, c1 = s.c1, c2 = s.c2, c3 = s.c3;
#pragma unroll
    for (int r = 0; r < 10; r++) {
        u64 p0 = product(c0, 0xD2511F53u), p1 = product(c2, 0xCD9E8D57u);
        c0 = (u32)(p1 >> 32) ^ c1 ^ s.k0[r];
        c1 = (u32)p1;
        c2 = (u32)(p0 >> 32) ^ c3 ^ s.k1[r];
        c3 = (u32)p0;
    }
    Words out = {{c0, c1, c2, c3}};
    return out;
}

// --- the keyed permutation: a Feistel network on the bits of an index, walked until it is below d ---

FUNCTION u32 feistel_round(u32 half, u32 key, int width) {
    u32 h = (half ^ key) * 0x85EBCA6Bu;
    h ^= h >> 16;
    return (h * 0xC2B2AE35u) >> (32 - width);
}

FUNCTION i64 permuted(i64 position, i64 d, int bits, const u32* keys) {
    int narrow = bits / 2, wide = bits - narrow;
    u64 x = (u64)position;
    do {
        u32 left = (u32)(x >> wide), right = (u32)(x & ((1ull << wide) - 1));
#pragma unroll
        for (int r = 0; r < 8; r += 2) {
            left ^= feistel_round(right, keys[r], narrow);
            right ^= feistel_round(left, keys[r + 1], wide);
        }
        x = (u64)left << wide | right;
    } while (x >= (u64)d);
    return (i64)x;
}

// --- stochastic rounding: a word w rounds up when w < frac 2^32 ---

// What magnitudes are multiplied with on the way to levels: by `lift` first, 1 unless the norm is so small
// that its inverse would overflow, then by levels times a power of two over the norm.
struct Gain {
    double lift, factor;
};

FUNCTION Gain gain_of(double norm, double levels, double times) {
    Gain by = {1.0, 0.0};
    if (norm > 0 && norm < power_of_two(-900)) {
        by.lift = power_of_two(600);
        norm *= by.lift;
    }
    if (norm != 0) by.factor = levels * (times / norm);
    return by;
}

// rho(t), at most s, where t 2^32 is given: floor(t) + [w < frac(t) 2^32] is the ceiling of t - w 2^-32.
FUNCTION u32 dither_level(double t, int s, u32 word) {
    u32 level = (u32)(((u64)__double2ll_ru(t) + (u32)~word) >> 32);
    return level < (u32)s ? level : (u32)s;
}

// Does w 2^-32 lie below a fraction given by the 52 bits after the point?
FUNCTION u32 below_fraction(u32 word, u64 fraction) { return ((u64)word << 20) < fraction; }

// The level of q, at most about 1, among 0, 2^(1-s), .., 1/2, 1.
FUNCTION u32 natural_level(double q, int s, u32 word) {
    u64 bits = bits_of(q);
    int exponent = (int)(bits >> 52) - 1023;
    if (exponent < 1 - s) return (double)word < q * power_of_two(s + 31);
    u32 level = (u32)(exponent + s) + below_fraction(word, bits & 0xfffffffffffffull);
    return level < (u32)s ? level : (u32)s;
}

// The exponent code of |x| rounded to a power of two: 0 for the value 0, else exponent + bias.
template <int BIAS>
FUNCTION u32 natural_code(double x, u32 word) {
    u64 bits = magnitude_bits(x);
    int code = (int)(bits >> 52) - (1023 - BIAS);
    if (BIAS < 1023 && code < 1) return (double)word < fabs(x) * power_of_two(BIAS + 31);
    code += below_fraction(word, bits & 0xfffffffffffffull);
    return (u32)(code < 2 * BIAS ? code : 2 * BIAS);
}

template <int BIAS>
FUNCTION u32 natural_code(float x, u32 word) {
    if (BIAS != 127) return natural_code<BIAS>(promoted(x), word);
    u32 bits = magnitude_bits(
        x);  // below 2^-126 the exponent field is 0 and the fraction counts from 0: the same sum
    u32 code = (bits >> 23) + (word < bits << 9);
    return code < 254 ? code : 254;
}

// --- values on the wire ---

// A float with FROM_FRACTION bits of fraction (its bits, the sign left out) rounded to nearest even to
// EXPONENT and FRACTION bits; infinite where it overflows.
template <int FROM_EXPONENT, int FROM_FRACTION, int EXPONENT, int FRACTION, typename U>
FUNCTION u32 shortened(U bits) {
    const int all = (1 << FROM_EXPONENT) - 1, bias = all / 2;
    const int lowest = 2 - (1 << (EXPONENT - 1));  // exponent of the smallest normal number
    const u32 infinity = ((1u << EXPONENT) - 1) << FRACTION;
    int field = (int)(bits >> FROM_FRACTION), exponent = (field > 0 ? field : 1) - bias;
    U significand = (bits & (((U)1 << FROM_FRACTION) - 1)) | (U)(field > 0) << FROM_FRACTION;
    if (field == all) return infinity + (significand > (U)1 << FROM_FRACTION);
    int dropped = FROM_FRACTION - FRACTION + (exponent < lowest ? lowest - exponent : 0);
    if (dropped >= FROM_FRACTION + 2) return 0;  // less than half of the smallest number
    U rest = significand & (((U)1 << dropped) - 1), half = (U)1 << (dropped - 1);
    u32 code = (u32)(significand >> dropped);
    code += rest > half || (rest == half && (code & 1));
    if (exponent > lowest) code += (u32)(exponent - lowest) << FRACTION;
    return code < infinity ? code : infinity;
}

template <int EXPONENT, int FRACTION>
FUNCTION u16 narrowed(double x) {
    u32 sign = (u32)(bits_of(x) >> 63) << (EXPONENT + FRACTION);
    return (u16)(sign | shortened<11, 52, EXPONENT, FRACTION>(magnitude_bits(x)));
}

template <int EXPONENT, int FRACTION>
FUNCTION u16 narrowed(float x) {
    u32 sign = bits_of(x) >> 31 << (EXPONENT + FRACTION);
    return (u16)(sign | shortened<8, 23, EXPONENT, FRACTION>(magnitude_bits(x)));
}

FUNCTION float from_half(u16 code) {
    u32 sign = (u32)(code >> 15) << 31, exponent = code >> 10 & 31, fraction = code & 1023;
    if (exponent == 0 && fraction == 0) return __uint_as_float(sign);
    if (exponent == 0) {  // fraction 2^-24, normal as a float32
        int top = 63 - __clzll((i64)fraction);
        return __uint_as_float(sign | (u32)(top + 103) << 23 | (fraction << (23 - top) & 0x7fffff));
    }
    return __uint_as_float(sign | (exponent == 31 ? 255u : exponent + 112) << 23 | fraction << 13);
}

// The smallest float32 that is not below x, for 0 <= x.
FUNCTION float rounded_up(double x) {
    float wire = rounded<float>(x);
    return promoted(wire) < x ? __uint_as_float(bits_of(wire) + 1) : wire;
}
