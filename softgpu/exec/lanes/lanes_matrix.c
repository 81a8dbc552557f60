/*
 * lanes_matrix.c - operations on matrices of a warp in loop form: the lanes' registers are columns of the
 * context, one word a lane after the other. Where each element is, is said in mma.c: in fragments whose words
 * follow memory, as most do, the four lanes of one g have 16 consecutive bytes.
 */
#include "softgpu/exec/lanes/lanes.h"
#include "softgpu/exec/matrix/matrix.h"
#include "softgpu/guest.h"

#include <pthread.h>
#include <string.h>

static sg_matrix_multiplier multiplier;

static void choose_multiplier(void)
{
    multiplier = sg_matrix_multiply_plain;
#if defined SG_MATRIX_LEVELS
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        multiplier = sg_matrix_multiply_avx512;
    else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("f16c"))
        multiplier = sg_matrix_multiply_avx2;
#endif
}

/* --- any kind --- */

/** What a kernel computed as an address. */
static unsigned char *guest(uint64_t address)
{
    return sg_guest_pointer((void *)(uintptr_t)address); // NOLINT
}

static bool is_wide(const struct sg_matrix_kind *kind)
{
    return kind->operation <= SG_MATRIX_STORE && kind->a == SG_MATRIX_F64;
}

/* A lane's registers of a matrix, from its columns or back to them; columns that are not used are 0. */
static void move_lane(const struct sg_matrix_view *view, const uint32_t columns[16], bool wide, uint32_t lane,
                      uint32_t words[16], bool back)
{
    for (uint32_t i = 0; i < (wide ? 8 : 16); i++) {
        if (columns[i] == 0)
            continue;
        void *at = wide ? (void *)(sg_matrix_doublewords(view, columns[i]) + lane)
                        : (void *)(sg_matrix_words(view, columns[i]) + lane);
        uint32_t *own = words + (wide ? 2 * i : i);
        memcpy(back ? at : own, back ? own : at, wide ? sizeof(uint64_t) : sizeof(uint32_t));
    }
}

static void do_by_lanes(struct sg_matrix_scratch *scratch, const struct sg_matrix_view *view, uint32_t lanes,
                        const struct sg_matrix_op *op)
{
    struct sg_matrix_request made[SG_WARP_SIZE], *requests[SG_WARP_SIZE] = {NULL};
    bool wide = is_wide(&op->kind);
    SG_FOR_LANES(lane, lanes)
    {
        struct sg_matrix_fragments *fragments = &scratch->fragments[lane];
        memset(fragments, 0, sizeof(*fragments));
        move_lane(view, op->a, wide, lane, fragments->a, false);
        move_lane(view, op->b, wide, lane, fragments->b, false);
        move_lane(view, op->c, wide, lane, fragments->c, false);
        made[lane] =
            (struct sg_matrix_request){.kind = op->kind, .stride = op->stride, .fragments = fragments};
        if (op->metadata)
            fragments->metadata = sg_matrix_words(view, op->metadata)[lane];
        if (op->strides != SG_MATRIX_STRIDE)
            made[lane].stride = sg_matrix_words(view, op->strides)[lane];
        if (op->address)
            made[lane].address = guest(sg_matrix_doublewords(view, op->address)[lane]);
        requests[lane] = &made[lane];
    }
    sg_matrix_resolve_same(scratch, requests, &op->kind);
    SG_FOR_LANES(lane, lanes)
    move_lane(view, op->d, wide, lane, scratch->fragments[lane].c, true);
}

/* --- loads and stores of a whole warp --- */

/* The address and the stride in bytes, if they are the same for all lanes. */
static bool find_place(const struct sg_matrix_view *view, const struct sg_matrix_op *op, uint32_t bytes,
                       unsigned char **address, uint64_t *stride)
{
    const uint64_t *addresses = sg_matrix_doublewords(view, op->address);
    const uint32_t *strides = op->strides != SG_MATRIX_STRIDE ? sg_matrix_words(view, op->strides) : NULL;
    uint64_t differs = 0;
    for (uint32_t lane = 1; lane < SG_WARP_SIZE; lane++)
        differs |= addresses[lane] ^ addresses[0];
    for (uint32_t lane = 1; strides && lane < SG_WARP_SIZE; lane++)
        differs |= strides[lane] ^ strides[0];
    *address = guest(addresses[0]);
    *stride = (uint64_t)(strides ? strides[0] : op->stride) * bytes;
    return !differs;
}

/* Bytes of an element, or 0 for those that are parts of bytes. */
static uint32_t element_bytes(uint8_t type)
{
    switch (type) {
    case SG_MATRIX_F64:
        return 8;
    case SG_MATRIX_TF32:
    case SG_MATRIX_F32:
    case SG_MATRIX_S32:
        return 4;
    case SG_MATRIX_F16:
    case SG_MATRIX_BF16:
        return 2;
    case SG_MATRIX_S8:
    case SG_MATRIX_U8:
        return 1;
    default:
        return 0;
    }
}

/* A register of the lanes from lane `lane` on. */
static unsigned char *registers_at(const struct sg_matrix_view *view, uint32_t column, uint32_t bytes,
                                   uint32_t lane)
{
    return bytes == 8 ? (unsigned char *)(sg_matrix_doublewords(view, column) + lane)
                      : (unsigned char *)(sg_matrix_words(view, column) + lane);
}

static void move_bytes(unsigned char *own, unsigned char *at, uint32_t bytes, bool load)
{
    memcpy(load ? own : at, load ? at : own, bytes);
}

/* The four lanes of one g have neighbours along k. */
static void move_factor(const struct sg_matrix_view *view, const struct sg_matrix_op *op,
                        const uint32_t *columns, unsigned char *address, uint64_t stride, uint32_t bytes,
                        bool load)
{
    const struct sg_matrix_kind *kind = &op->kind;
    uint32_t width = bytes == 8 ? 8 : 4, per = width / bytes,
             blocks = (kind->c_d == 0 ? kind->m : kind->n) / 8u;
    uint32_t unique = blocks * (kind->k_quarter / per);
    /* along k memory is consecutive in a by rows and in b by columns */
    bool along = ((kind->flags & SG_MATRIX_COLUMNS) != 0) == (kind->c_d == 1);
    for (uint32_t r = 0; r < kind->b; r++) {
        uint32_t x = 8 * (r % unique % blocks), y = 4 * per * (r % unique / blocks);
        for (uint32_t g = 0; g < 8; g++) {
            unsigned char *own = registers_at(view, columns[r], bytes, 4 * g);
            unsigned char *at = along ? address + (x + g) * stride + (size_t)y * bytes
                                      : address + y * stride + (size_t)(x + g) * bytes;
            if (along && width == 4)
                move_bytes(own, at, 16, load);
            else if (along)
                move_bytes(own, at, 32, load);
            else
                for (uint32_t i = 0; i < 4 * per; i++, at += stride, own += bytes)
                    move_bytes(own, at, bytes, load);
        }
    }
}

/* Even columns of a row are in one register and odd ones in the next. */
static void move_sum(const struct sg_matrix_view *view, const struct sg_matrix_op *op,
                     const uint32_t *columns, unsigned char *address, uint64_t stride, uint32_t bytes,
                     bool load)
{
    const struct sg_matrix_kind *kind = &op->kind;
    bool by_columns = (kind->flags & SG_MATRIX_COLUMNS) != 0;
    uint64_t down = by_columns ? bytes : stride, across = by_columns ? stride : bytes;
    for (uint32_t i = 0; i < kind->b; i++) {
        uint32_t blocks = kind->m / 8u;
        unsigned char *own = registers_at(view, columns[i], bytes, 0);
        unsigned char *corner =
            address + 8 * (i / 2 % blocks) * down + (8 * (i / 2 / blocks) + i % 2) * across;
        for (uint32_t lane = 0; lane < SG_WARP_SIZE; lane++, own += bytes)
            move_bytes(own, corner + lane / 4 * down + (uint64_t)(lane % 4 * 2) * across, bytes, load);
    }
}

static bool move_fragment(const struct sg_matrix_view *view, const struct sg_matrix_op *op)
{
    unsigned char *address;
    uint64_t stride;
    bool load = op->kind.operation == SG_MATRIX_LOAD;
    uint32_t bytes = element_bytes(op->kind.a);
    const uint32_t *columns = load ? op->d : op->c;
    if (!bytes || !find_place(view, op, bytes, &address, &stride))
        return false;
    if (op->kind.c_d < 2)
        move_factor(view, op, columns, address, stride, bytes, load);
    else if (bytes == 4)
        move_sum(view, op, columns, address, stride, 4, load); /* the size is a constant in each */
    else if (bytes == 8)
        move_sum(view, op, columns, address, stride, 8, load);
    else
        return false;
    return true;
}

/* --- matrices of 8 rows of 16 bytes --- */

static void transpose_words(uint32_t *words)
{
    uint16_t from[8][8], to[8][8];
    memcpy(from, words, sizeof(from));
    for (uint32_t i = 0; i < 8; i++)
        for (uint32_t j = 0; j < 8; j++)
            to[j][i] = from[i][j];
    memcpy(words, to, sizeof(to));
}

static void load_rows(const struct sg_matrix_view *view, const struct sg_matrix_op *op)
{
    uint32_t words[4][SG_WARP_SIZE]; /* a column may also be that of the addresses' registers */
    const uint64_t *addresses = sg_matrix_doublewords(view, op->address);
    for (uint32_t r = 0; r < op->kind.m; r++) {
        for (uint32_t row = 0; row < 8; row++)
            memcpy(&words[r][(size_t)4 * row], guest(addresses[8 * r + row]), 16);
        if ((op->kind.flags & SG_MATRIX_COLUMNS) != 0)
            transpose_words(words[r]);
    }
    for (uint32_t r = 0; r < op->kind.m; r++)
        memcpy(sg_matrix_words(view, op->d[r]), words[r], sizeof(words[r]));
}

static void store_rows(const struct sg_matrix_view *view, const struct sg_matrix_op *op)
{
    const uint64_t *addresses = sg_matrix_doublewords(view, op->address);
    for (uint32_t r = 0; r < op->kind.m; r++) {
        uint32_t words[SG_WARP_SIZE];
        memcpy(words, sg_matrix_words(view, op->c[r]), sizeof(words));
        if ((op->kind.flags & SG_MATRIX_COLUMNS) != 0)
            transpose_words(words);
        for (uint32_t row = 0; row < 8; row++)
            memcpy(guest(addresses[8 * r + row]), &words[(size_t)4 * row], 16);
    }
}

static bool do_whole(struct sg_matrix_scratch *scratch, const struct sg_matrix_view *view,
                     const struct sg_matrix_op *op)
{
    switch (op->kind.operation) {
    case SG_MATRIX_MULTIPLY:
        return multiplier(scratch, view, op);
    case SG_MATRIX_LOAD:
    case SG_MATRIX_STORE:
        return move_fragment(view, op);
    case SG_MATRIX_LOAD_ROWS:
        load_rows(view, op);
        return true;
    case SG_MATRIX_STORE_ROWS:
        store_rows(view, op);
        return true;
    default: {
        uint32_t words[SG_WARP_SIZE];
        memcpy(words, sg_matrix_words(view, op->c[0]), sizeof(words));
        transpose_words(words);
        memcpy(sg_matrix_words(view, op->d[0]), words, sizeof(words));
        return true;
    }
    }
}

void sg_lanes_matrices(const struct sg_run *run, uint32_t warp, uint32_t lanes, const struct sg_point *point)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const struct sg_loop_code *code = run->grid->launch->code;
    const struct sg_matrix_view view = {run->loop->lanes.context, run->loop->lanes.stride,
                                        warp * SG_WARP_SIZE};
    pthread_once(&once, choose_multiplier);
    for (uint32_t i = point->a; i < point->a + point->b; i++)
        if (lanes != SG_ALL_LANES || !do_whole(run->slot->matrices, &view, &code->matrices[i]))
            do_by_lanes(run->slot->matrices, &view, lanes, &code->matrices[i]);
}
