// What is computed for one coordinate: random words, roundings, narrow floats.
//
// Nothing here knows of threads, so that the same lines run on a CPU.  Arithmetic is float64, one IEEE operation
// at a time (built with -fmad=false; an fma that is written is meant), or on the bits where that is the same.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define FUNCTION __host__ __device__ __forceinline__

FUNCTION u32 bits_of(float x) { return __float_as_uint(x); }
FUNCTION u64 bits_of(double x) { return (u64)__double_as_longlong(x); }
FUNCTION u32 magnitude_bits(float x) { return bits_of(x) & 0x7fffffffu; }
FUNCTION u64 magnitude_bits(double x) { return bits_of(x) & 0x7fffffffffffffffull; }

// 2^n for -1022 <= n <= 1023.
FUNCTION double power_of_two(int n) { return __longlong_as_double((i64)(n + 1023) << 52); }

// x 2^n rounded once, as ldexp does, for |n| <= 1100 and no overflow on the way.
FUNCTION double scaled(double x, int n) {
    if (n > 1000) { x *= power_of_two(1000); n -= 1000; }
    if (n < -1022) return x * __longlong_as_double(1ll << (n + 1074));  // a power of two itself below 2^-1022
    return x * power_of_two(n);
}

// e with 2^(e-1) <= m < 2^e, as frexp gives it, for the m >= 0 with these bits; 0 for m = 0.
FUNCTION int exponent_of(u64 bits) {
    int field = (int)(bits >> 52);
    return field ? field - 1022 : bits ? -1010 - __clzll((i64)bits) : 0;
}

// --- Philox4x32-10 (Salmon, Moraes, Dror, Shaw, SC 2011) ---

struct Stream { u32 k0, k1, c1, c2, c3; };
struct Words { u32 w[4]; };

FUNCTION Stream stream_of(i64 k0, i64 k1, i64 c1, i64 c2, i64 c3) {
    Stream s = {(u32)k0, (u32)k1, (u32)c1, (u32)c2, (u32)c3};
    return s;
}

// Words 4 block .. 4 block + 3 of a stream.
FUNCTION Words philox(Stream s, u32 block) {
    u32 c0 = block, c1 = s.c1, c2 = s.c2, c3 = s.c3, k0 = s.k0, k1 = s.k1;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        u64 p0 = (u64)c0 * 0xD2511F53u, p1 = (u64)c2 * 0xCD9E8D57u;
        c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
        c1 = (u32)p1;
        c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
        c3 = (u32)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
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

// |x| over a norm.  For float32 over a norm that is a float32 the quotient is that of the reciprocal, corrected
// once: a quotient of 24-bit significands is 2^-78 or more (relative) away from every midpoint of doubles, the
// corrected value before rounding 2^-105 or less from the quotient, so it rounds as the division does.
struct Divider { double norm, reciprocal; bool narrow; };

FUNCTION Divider divider(double norm) {
    Divider by = {norm, norm == 0.0 ? 0.0 : 1.0 / norm, (double)(float)norm == norm};
    return by;
}

FUNCTION double quotient(float x, Divider by) {
    double a = fabs((double)x);
    if (!by.narrow) return a / by.norm;
    double q = a * by.reciprocal;
    return fma(fma(-q, by.norm, a), by.reciprocal, q);
}

FUNCTION double quotient(double x, Divider by) { return by.norm == 0.0 ? 0.0 : fabs(x) / by.norm; }

// rho(s q), at most s: floor(t) + [w < frac(t) 2^32] is the ceiling of t - w 2^-32, here in fixed point.
FUNCTION u32 dither_level(double q, int s, u32 word) {
    u64 t = (u64)__double2ll_ru(q * ((double)s * 4294967296.0));
    u32 level = (u32)((t + (u32)~word) >> 32);
    return level < (u32)s ? level : (u32)s;
}

// Does w 2^-32 lie below a fraction given by the 52 bits after the point?
FUNCTION u32 below_fraction(u32 word, u64 fraction) { return ((u64)word << 20) < fraction; }

// The level of q <= 1 among 0, 2^(1-s), .., 1/2, 1.
FUNCTION u32 natural_level(double q, int s, u32 word) {
    u64 bits = bits_of(q);
    int exponent = (int)(bits >> 52) - 1023;
    if (exponent < 1 - s) return (double)word < q * power_of_two(s + 31);
    u32 level = (u32)(exponent + s) + below_fraction(word, bits & 0xfffffffffffffull);
    return level < (u32)s ? level : (u32)s;
}

// The exponent code of |x| rounded to a power of two: 0 for the value 0, else exponent + bias.
template <int BIAS> FUNCTION u32 natural_code(double x, u32 word) {
    u64 bits = magnitude_bits(x);
    int code = (int)(bits >> 52) - (1023 - BIAS);
    if (BIAS < 1023 && code < 1) return (double)word < fabs(x) * power_of_two(BIAS + 31);
    code += below_fraction(word, bits & 0xfffffffffffffull);
    return (u32)(code < 2 * BIAS ? code : 2 * BIAS);
}

template <int BIAS> FUNCTION u32 natural_code(float x, u32 word) {
    if (BIAS != 127) return natural_code<BIAS>((double)x, word);
    u32 bits = magnitude_bits(x);  // below 2^-126 the exponent field is 0 and the fraction counts from 0: the same sum
    u32 code = (bits >> 23) + (word < bits << 9);
    return code < 254 ? code : 254;
}

// --- values on the wire ---

// x rounded to nearest even with EXPONENT and FRACTION bits; infinite where it overflows.
template <int EXPONENT, int FRACTION> FUNCTION u16 narrowed(double x) {
    const int lowest = 2 - (1 << (EXPONENT - 1));  // exponent of the smallest normal number
    const u32 infinity = ((1u << EXPONENT) - 1) << FRACTION;
    u64 bits = magnitude_bits(x);
    u32 sign = (u32)(bits_of(x) >> 63) << (EXPONENT + FRACTION), code;
    int exponent = (int)(bits >> 52) - 1023;
    int dropped = 52 - FRACTION + (exponent < lowest ? lowest - exponent : 0);
    if (exponent == 1024) {
        code = infinity + (bits > 0x7ff0000000000000ull);
    } else if (dropped >= 54) {
        code = 0;  // less than half of the smallest number
    } else {
        u64 significand = (bits & 0xfffffffffffffull) | (exponent == -1023 ? 0 : 1ull << 52);
        u64 rest = significand & ((1ull << dropped) - 1), half = 1ull << (dropped - 1);
        code = (u32)(significand >> dropped);
        code += rest > half || (rest == half && (code & 1));
        if (exponent > lowest) code += (u32)(exponent - lowest) << FRACTION;
        if (code > infinity) code = infinity;
    }
    return (u16)(sign | code);
}

FUNCTION float from_half(u16 code) {
    u32 sign = (u32)(code >> 15) << 31, exponent = code >> 10 & 31, fraction = code & 1023;
    if (exponent == 0) {
        float magnitude = (float)fraction * 5.9604644775390625e-8f;  // 2^-24
        return sign ? -magnitude : magnitude;
    }
    return __uint_as_float(sign | (exponent == 31 ? 255u : exponent + 112) << 23 | fraction << 13);
}

// The smallest float32 that is not below x, for 0 <= x.
FUNCTION float rounded_up(double x) {
    float wire = (float)x;
    return (double)wire < x ? __uint_as_float(bits_of(wire) + 1) : wire;
}
