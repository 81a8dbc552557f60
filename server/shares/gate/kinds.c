/* kinds.c - see kinds.h. */
#include "server/shares/gate/kinds.h"

#include "generated/proto/ops.h"

#include <stdbool.h>
#include <string.h>

enum { LAUNCH_BYTES = 40, OTHER_BYTES = 64, ADDRESS_BITS = 33 };

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
    return hash ^ (hash >> 29);
}

uint64_t rg_gate_kind(uint16_t op, const unsigned char *parameters, size_t size)
{
    const bool kernels = rg_op_traits[op] & RG_TRAIT_KERNELS;
    const size_t most = kernels ? LAUNCH_BYTES : OTHER_BYTES;
    uint64_t hash = mix(0, op);
    for (size_t at = 0; at + 8 <= size && at < most; at += 8) {
        uint64_t word;
        memcpy(&word, parameters + at, sizeof word);
        /* Function, grid and block of a launch stand first. Of a copy, how much it is: its addresses do not matter. */
        if (kernels)
            hash = mix(hash, word);
        else if (word && !(word >> ADDRESS_BITS))
            hash = mix(hash, 64u - (unsigned)__builtin_clzll(word));
    }
    return hash ? hash : 1;
}
