/*
 * matrix.c - what a warp does with matrices that its registers hold: loads and stores, transposition; multiplication is mma.c's,
 * which also says where an element is.
 *
 * In thread form every lane brings a request and waits (warp.c); the last one to come does the work of all,
 * so that nobody reads what another has not yet written. In loop form lanes_matrix.c makes the requests.
 * Lanes that have exited, or never were, hold zeros, and are not stored.
 */
#include "softgpu/exec/matrix/matrix.h"

#include "softgpu/exec/fault/signals.h"

#include <stdlib.h>
#include <string.h>

/* --- loads and stores of wmma --- */

/* Element `e` of register `r` of a lane's fragment: its row and column. */
static void element_place(const struct sg_matrix_kind *kind, uint32_t lane, uint32_t r, uint32_t e,
                          uint32_t per, uint32_t *row, uint32_t *column)
{
    uint32_t which = kind->c_d, g = lane / 4, t = lane % 4;
    if (which >= 2) {
        uint32_t place = sg_matrix_sum_place(kind, lane, r * per + e);
        *row = place / kind->n;
        *column = place % kind->n;
        return;
    }
    uint32_t blocks = (which == 0 ? kind->m : kind->n) / 8u;
    uint32_t unique = blocks * (kind->k_quarter / per);
    r %= unique;
    uint32_t x = g + 8 * (r % blocks), y = 4 * per * (r / blocks) + t * per + e;
    *row = which == 0 ? x : y;
    *column = which == 0 ? y : x;
}

static void access_fragment(struct sg_matrix_request *request, uint32_t lane, bool load)
{
    const struct sg_matrix_kind *kind = &request->kind;
    unsigned bits = sg_matrix_bits(kind->a);
    uint32_t width = bits == 64 ? 2 : 1, per = 32 * width / bits, count = kind->b;
    uint32_t *words = request->fragments->c;
    for (uint32_t r = 0; r < count; r++) {
        uint64_t packed = 0;
        if (!load)
            memcpy(&packed, words + (size_t)r * width, (size_t)width * 4);
        for (uint32_t e = 0; e < per; e++) {
            uint32_t row, column;
            element_place(kind, lane, r, e, per, &row, &column);
            uint64_t index = (kind->flags & SG_MATRIX_COLUMNS) != 0
                                 ? (uint64_t)column * request->stride + row
                                 : (uint64_t)row * request->stride + column;
            unsigned char *at = request->address + index * bits / 8;
            uint64_t value = packed >> e * bits;
            if (!load) {
                memcpy(at, &value, bits / 8);
                continue;
            }
            value = 0;
            memcpy(&value, at, bits < 8 ? 1 : bits / 8);
            if (bits < 8)
                value = value >> index * bits % 8 & ((1u << bits) - 1);
            packed |= value << e * bits;
        }
        if (load)
            memcpy(words + (size_t)r * width, &packed, (size_t)width * 4);
    }
}

/* --- matrices of 8 rows of 16 bytes: ldmatrix, stmatrix, movmatrix --- */

/* Puts the matrix that is in register `r` of the lanes together, or takes it apart. */
static void move_square(struct sg_matrix_request *const *requests, uint32_t r, uint16_t square[8][8],
                        bool transposed, bool put)
{
    for (uint32_t lane = 0; lane < SG_WARP_SIZE; lane++) {
        uint32_t g = lane / 4, t = lane % 4;
        if (!requests[lane])
            continue;
        uint16_t *first = transposed ? &square[2 * t][g] : &square[g][2 * t];
        uint16_t *second = transposed ? &square[2 * t + 1][g] : &square[g][2 * t + 1];
        uint32_t *word = &requests[lane]->fragments->c[r];
        if (put) {
            *word = *first | (uint32_t)*second << 16;
        } else {
            *first = (uint16_t)*word;
            *second = (uint16_t)(*word >> 16);
        }
    }
}

static void move_squares(struct sg_matrix_request *const *requests, const struct sg_matrix_kind *kind)
{
    bool load = kind->operation == SG_MATRIX_LOAD_ROWS, transposed = (kind->flags & SG_MATRIX_COLUMNS) != 0;
    for (uint32_t r = 0; r < kind->m; r++) {
        uint16_t square[8][8] = {{0}};
        if (!load)
            move_square(requests, r, square, transposed, false);
        for (uint32_t row = 0; row < 8; row++) {
            struct sg_matrix_request *request = requests[r * 8 + row];
            if (request && load)
                memcpy(square[row], request->address, sizeof(square[row]));
            else if (request)
                memcpy(request->address, square[row], sizeof(square[row]));
        }
        if (load)
            move_square(requests, r, square, transposed, true);
    }
}

static void transpose(struct sg_matrix_request *const *requests)
{
    uint16_t square[8][8] = {{0}};
    move_square(requests, 0, square, false, false);
    move_square(requests, 0, square, true, true);
}

/* --- any operation --- */

void sg_matrix_resolve_same(struct sg_matrix_scratch *scratch, struct sg_matrix_request *const *requests,
                            const struct sg_matrix_kind *kind)
{
    switch (kind->operation) {
    case SG_MATRIX_MULTIPLY:
        sg_matrix_multiply(scratch, requests, kind);
        break;
    case SG_MATRIX_LOAD:
    case SG_MATRIX_STORE:
        for (uint32_t lane = 0; lane < SG_WARP_SIZE; lane++)
            if (requests[lane])
                access_fragment(requests[lane], lane, kind->operation == SG_MATRIX_LOAD);
        break;
    case SG_MATRIX_TRANSPOSE:
        transpose(requests);
        break;
    default:
        move_squares(requests, kind);
        break;
    }
}

void sg_matrix_resolve(const struct sg_lane_exchange *x, uint32_t group)
{
    struct sg_matrix_scratch *scratch = sg_current_slot->matrices;
    while (group) {
        struct sg_matrix_request *requests[SG_WARP_SIZE] = {NULL};
        struct sg_matrix_kind kind = {0};
        uint32_t same = 0;
        for (uint32_t rest = group; rest; rest &= rest - 1) {
            uint32_t lane = (uint32_t)__builtin_ctz(rest);
            struct sg_matrix_request *request = (struct sg_matrix_request *)(uintptr_t)x->value[lane];
            if (!same)
                kind = request->kind;
            if (memcmp(&request->kind, &kind, sizeof(kind)) != 0)
                continue;
            requests[lane] = request;
            same |= 1u << lane;
        }
        sg_matrix_resolve_same(scratch, requests, &kind);
        group &= ~same;
    }
}

struct sg_matrix_scratch *sg_matrix_scratch_get(struct sg_slot *slot)
{
    if (!slot->matrices)
        slot->matrices = malloc(sizeof(*slot->matrices));
    return slot->matrices;
}
