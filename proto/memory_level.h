/*
 * memory_level.h - amounts of device memory as powers of two, which travel in six bits: with each reply and notice how much the
 * session may still take, and with the reply to a call that loads code how much that took (proto/wire.h). By these a client knows
 * which loads may fail, and waits for those.
 */
#ifndef RG_PROTO_MEMORY_LEVEL_H
#define RG_PROTO_MEMORY_LEVEL_H

#include <stdint.h>

#define RG_MEMORY_LEVEL_BITS 6
#define RG_MEMORY_LEVEL_MASK ((1u << RG_MEMORY_LEVEL_BITS) - 1)

/** 0: it is not said; 1: nothing; n: 2^(n-2) bytes. */
typedef unsigned rg_memory_level;

/** The greatest level that is no more than `bytes`. */
static inline rg_memory_level rg_memory_level_within(uint64_t bytes)
{
    const unsigned most = 63u - (unsigned)__builtin_clzll(bytes | 1);
    return !bytes ? 1 : most > RG_MEMORY_LEVEL_MASK - 2 ? RG_MEMORY_LEVEL_MASK : most + 2;
}

/** The least level that is no less than `bytes`, of which there are not more than 2^61. */
static inline rg_memory_level rg_memory_level_of(uint64_t bytes)
{
    const rg_memory_level level = rg_memory_level_within(bytes);
    const int is_power = (bytes & (bytes - 1)) == 0;
    return is_power || level == RG_MEMORY_LEVEL_MASK ? level : level + 1;
}

/** Bytes of a level that is said. */
static inline uint64_t rg_memory_level_bytes(rg_memory_level level)
{
    return level < 2 ? 0 : 1ull << (level - 2);
}

#endif
