/*
 * kinds.h - which records are alike in how long they keep the device busy: a number for each kind.
 *
 * Launches of the same function with the same grid are; of other records those of the same operation whose numbers are of the
 * same size. This is for a guess alone: what is charged is measured (turns/pacer.h).
 */
#ifndef RG_SERVER_SHARES_GATE_KINDS_H
#define RG_SERVER_SHARES_GATE_KINDS_H

#include <stddef.h>
#include <stdint.h>

/** Never 0. `parameters`: those of the record, `size` bytes. */
uint64_t rg_gate_kind(uint16_t op, const unsigned char *parameters, size_t size);

#endif
