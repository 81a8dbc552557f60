/* random.h - numbers that are the same in every run (xorshift64*). */
#ifndef RG_TESTS_POOL_SCHEDULE_RANDOM_H
#define RG_TESTS_POOL_SCHEDULE_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

static inline uint64_t random_next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1dull;
}

/** A number below n. */
static inline uint32_t random_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)((random_next(state) >> 32) * n >> 32);
}

/** True in `percent` of the cases. */
static inline bool random_chance(uint64_t *state, uint32_t percent)
{
    return random_below(state, 100) < percent;
}

#endif
