// The norm at the head of a message, as its receiver reads it.

struct Step {
    double value;
    bool valid;
};

// N / levels * factor; not valid, and noted in notes[0], unless N is finite and not negative.
__device__ __forceinline__ Step read_step(const u8* head, i64 width, double levels, double factor,
                                          u64* notes) {
    u64 bits = 0;
    for (int b = 0; b < width; b++) bits |= (u64)head[b] << 8 * b;
    double norm = width == 4 ? promoted(__uint_as_float((u32)bits)) : __longlong_as_double((i64)bits);
    Step step = {norm / levels * factor, norm >= 0 && norm < __longlong_as_double(0x7ff0000000000000ll)};
    if (!step.valid) notes[0] = 1;
    return step;
}
