/*
 * compares.c - what libFuzzer is told of comparisons, without those of which it keeps nothing: they take half of the time of code that
 * compares as often as parsers do. Linked in the place of its functions (rg_fuzzer, with RG_FUZZ).
 *
 * It keeps the two sides of comparisons of 4 and of 8 bytes, to put one in the place of the other, which is of no use where they are the
 * same; those of 1 and 2 bytes are for profiles of values (-use_value_profile), which nobody asks for here.
 */
#include <stdint.h>

#define NOT_COUNTED __attribute__((no_sanitize("address", "undefined", "coverage")))

#define FORGETS(name, type)                                                                                  \
    void __wrap___sanitizer_cov_trace_##name(type a, type b);                                                \
    NOT_COUNTED void __wrap___sanitizer_cov_trace_##name(type a, type b)                                     \
    {                                                                                                        \
        (void)a, (void)b;                                                                                    \
    }
#define PASSES(name, type)                                                                                   \
    void __real___sanitizer_cov_trace_##name(type a, type b);                                                \
    void __wrap___sanitizer_cov_trace_##name(type a, type b);                                                \
    NOT_COUNTED void __wrap___sanitizer_cov_trace_##name(type a, type b)                                     \
    {                                                                                                        \
        if (a != b)                                                                                          \
            __real___sanitizer_cov_trace_##name(a, b);                                                       \
    }

FORGETS(cmp1, uint8_t)
FORGETS(cmp2, uint16_t)
FORGETS(const_cmp1, uint8_t)
FORGETS(const_cmp2, uint16_t)
PASSES(cmp4, uint32_t)
PASSES(cmp8, uint64_t)
PASSES(const_cmp4, uint32_t)
PASSES(const_cmp8, uint64_t)
