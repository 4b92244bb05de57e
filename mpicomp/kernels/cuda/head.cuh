// The norm at the head of a message, as its receiver reads it.

struct Step {
    double value;
    bool valid;
};

// N / levels * factor; not valid, and noted in notes[0], unless N is finite and not negative; not valid
// either where `check` has found a bad symbol.
__device__ __forceinline__ Step read_step(const u8* head, i64 width, double levels, double factor,
                                          const u32* bad, u64* notes) {
    u64 bits = 0;
    for (int b = 0; b < width; b++) bits |= (u64)head[b] << 8 * b;
    double norm = width == 4 ? promoted(__uint_as_float((u32)bits)) : __longlong_as_double((i64)bits);
    bool fits = norm >= 0 && norm < __longlong_as_double(0x7ff0000000000000ll);
    if (!fits) notes[0] = 1;
    Step step = {norm / levels * factor, fits && (bad == nullptr || *bad == 0)};
    return step;
}
