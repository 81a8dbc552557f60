/*
 * tensor.c - copies of boxes of tensors between global and shared memory, as a tensor map
 * (softgpu/tensor_map.h) describes them: cp.async.bulk.tensor and its reductions. A box is copied in chunks
 * of 16 bytes, the unit in which shared memory is swizzled; what lies outside of the tensor is 0 where it is
 * read, and left alone where it is written.
 *
 * A map that is none, of another rank than the instruction says, or of a kind that is not offered (im2col,
 * interleaved layouts, elements of 4 and 6 bits, NaN outside, swizzles with wider atoms) ends the launch as
 * an illegal instruction. Any thread of a kernel.
 */
#include "softgpu/exec/engine.h"
#include "softgpu/guest.h"
#include "softgpu/small_floats.h"
#include "softgpu/tensor_map.h"

#include "common/base/log.h"

#include <string.h>

#define CHUNK     16u
#define BOX_MAX   256u /* elements of a box in each dimension */
#define STEPS_MAX 8u

enum { U8, U16, U32, S32, U64, S64, F16, F32, F64, BF16, F32_FTZ, TF32, TF32_FTZ, TYPES };
static const uint8_t sizes[TYPES] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};

/* 16 bytes of the box and where they are in the tensor. */
struct chunk {
    unsigned char *shared;
    unsigned char *global;
    int64_t first; /* element of dimension 0 at `global` */
    uint64_t row;  /* elements of the row in the tensor; 0: none of it is there */
};

struct work {
    const struct sg_tensor_map *map;
    uint32_t operation, size; /* of an element */
};

static const char *refusal(const struct sg_tensor_map *map, uint32_t rank)
{
    if (map->magic != SG_TENSOR_MAGIC || map->rank != rank)
        return "there is no tensor map of that rank";
    if (map->kind != SG_TENSOR_TILED)
        return "tensors in im2col form are not supported";
    if (map->interleave != 0)
        return "interleaved tensors are not supported";
    if (map->type >= TYPES)
        return "tensors of 4 and 6 bits are not supported";
    if (map->fill != 0)
        return "filling with NaN is not supported";
    /* what cuTensorMapEncodeTiled makes is within these limits; what a kernel makes up may not be */
    for (uint32_t i = 0; i < rank; i++)
        if (map->box[i] == 0 || map->box[i] > BOX_MAX || map->steps[i] == 0 || map->steps[i] > STEPS_MAX)
            return "the tensor map is damaged";
    if (map->box[0] * (uint32_t)sizes[map->type] % CHUNK != 0)
        return "the tensor map is damaged";
    return map->swizzle > 3 ? "swizzling with atoms of more than 16 bytes is not supported" : NULL;
}

/* Bits 4 and up of an address in shared memory, exchanged by those from 7 on: 1, 2 or 3 of them. */
static unsigned char *swizzled(const struct sg_tensor_map *map, unsigned char *address)
{
    uintptr_t bits = (uintptr_t)address >> 3 & (((uintptr_t)1 << map->swizzle) - 1) << 4;
    return (unsigned char *)((uintptr_t)address ^ bits);
}

/* --- what is done with a chunk --- */

/* The elements [*first, *end) of the chunk that are in the tensor. */
static bool inside(const struct work *w, const struct chunk *c, uint32_t *first, uint32_t *end)
{
    int64_t count = CHUNK / w->size, from = c->first < 0 ? -c->first : 0;
    int64_t to = (int64_t)c->row - c->first;
    *first = (uint32_t)(from < count ? from : count);
    *end = (uint32_t)(to < 0 ? 0 : to < count ? to : count);
    return *first < *end;
}

static void load_chunk(const struct work *w, const struct chunk *c)
{
    _Alignas(CHUNK) unsigned char bytes[CHUNK] = {0};
    uint32_t first, end;
    if (inside(w, c, &first, &end))
        memcpy(bytes + first * w->size, c->global + (size_t)first * w->size, (size_t)(end - first) * w->size);
    if (w->map->type == F32_FTZ || w->map->type == TF32_FTZ) {
        for (uint32_t i = 0; i < CHUNK; i += 4) {
            uint32_t word;
            memcpy(&word, bytes + i, 4);
            word = (word & 0x7f800000) == 0 ? word & 0x80000000 : word;
            memcpy(bytes + i, &word, 4);
        }
    }
    memcpy(swizzled(w->map, c->shared), bytes, CHUNK);
}

static void store_chunk(const struct work *w, const struct chunk *c)
{
    uint32_t first, end;
    if (inside(w, c, &first, &end))
        memcpy(c->global + (size_t)first * w->size, swizzled(w->map, c->shared) + first * w->size,
               (size_t)(end - first) * w->size);
}

/* --- reductions --- */

static float small_to_float(uint8_t type, uint64_t bits)
{
    return type == F16 ? sg_float_of_half((uint32_t)bits) : sg_float_of_bfloat16((uint32_t)bits);
}

static uint64_t float_to_small(uint8_t type, float value)
{
    return type == F16 ? sg_half_of_float(value) : sg_bfloat16_of_float(value);
}

static uint64_t add(uint8_t type, uint64_t old, uint64_t value)
{
    float a, b;
    double x, y;
    uint32_t low = (uint32_t)old, more = (uint32_t)value;
    switch (type) {
    case F16:
    case BF16:
        return float_to_small(type, small_to_float(type, old) + small_to_float(type, value));
    case F32:
    case F32_FTZ:
    case TF32:
    case TF32_FTZ:
        memcpy(&a, &low, sizeof(a));
        memcpy(&b, &more, sizeof(b));
        a += b;
        memcpy(&low, &a, sizeof(low));
        return low;
    case F64:
        memcpy(&x, &old, sizeof(x));
        memcpy(&y, &value, sizeof(y));
        x += y;
        memcpy(&old, &x, sizeof(old));
        return old;
    default:
        return old + value;
    }
}

/* Which of two is smaller; of NaN and a number the number. */
static bool less(uint8_t type, uint64_t a, uint64_t b)
{
    if (type == F16 || type == BF16) {
        float x = small_to_float(type, a), y = small_to_float(type, b);
        return x < y || (y != y && x == x);
    }
    if (type == S32)
        return (int32_t)(uint32_t)a < (int32_t)(uint32_t)b;
    return type == S64 ? (int64_t)a < (int64_t)b : a < b;
}

static bool greater(uint8_t type, uint64_t a, uint64_t b)
{
    if (type == F16 || type == BF16) {
        float x = small_to_float(type, a), y = small_to_float(type, b);
        return x > y || (y != y && x == x);
    }
    return less(type, b, a);
}

static uint64_t reduced(const struct work *w, uint64_t old, uint64_t value)
{
    uint8_t type = w->map->type;
    switch (w->operation) {
    case SG_TENSOR_ADD:
        return add(type, old, value);
    case SG_TENSOR_MIN:
        return less(type, value, old) ? value : old;
    case SG_TENSOR_MAX:
        return greater(type, value, old) ? value : old;
    case SG_TENSOR_INC:
        return old >= value ? 0 : old + 1;
    case SG_TENSOR_DEC:
        return old == 0 || old > value ? value : old - 1;
    case SG_TENSOR_AND:
        return old & value;
    case SG_TENSOR_OR:
        return old | value;
    default:
        return old ^ value;
    }
}

/* In place, as other blocks may do the same at the same time. */
#define EXCHANGE(word_type, place)                                                                           \
    do {                                                                                                     \
        word_type *at_ = (word_type *)(void *)(place);                                                       \
        word_type old_ = __atomic_load_n(at_, __ATOMIC_RELAXED), new_;                                       \
        do                                                                                                   \
            new_ = (word_type)reduced(w, old_, value);                                                       \
        while (!__atomic_compare_exchange_n(at_, &old_, new_, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));    \
    } while (0)

static void reduce_chunk(const struct work *w, const struct chunk *c)
{
    uint32_t first, end;
    const unsigned char *from = swizzled(w->map, c->shared);
    if (!inside(w, c, &first, &end))
        return;
    for (uint32_t i = first; i < end; i++) {
        unsigned char *place = c->global + (size_t)i * w->size;
        uint64_t value = 0;
        memcpy(&value, from + i * w->size, w->size);
        if (w->size == 2)
            EXCHANGE(uint16_t, place);
        else if (w->size == 4)
            EXCHANGE(uint32_t, place);
        else
            EXCHANGE(uint64_t, place);
    }
}

/* --- the box --- */

static void do_chunk(const struct work *w, const struct chunk *c)
{
    if (w->operation == SG_TENSOR_LOAD)
        load_chunk(w, c);
    else if (w->operation == SG_TENSOR_STORE)
        store_chunk(w, c);
    else
        reduce_chunk(w, c);
}

/* One row of the box, of dimension 0; `global` is where the row of the tensor begins. */
static void do_row(const struct work *w, unsigned char *shared, unsigned char *global, int64_t first,
                   uint64_t row)
{
    uint32_t bytes = w->map->box[0] * w->size;
    for (uint32_t at = 0; at < bytes; at += CHUNK) {
        int64_t element = first + at / w->size;
        struct chunk chunk = {.shared = sg_guest_pointer(shared + at),
                              .global = sg_guest_pointer(global + element * (int64_t)w->size),
                              .first = element,
                              .row = row};
        do_chunk(w, &chunk);
    }
}

static bool reducible(const struct sg_tensor_map *map, uint32_t operation)
{
    bool whole = map->type >= U32 && map->type <= S64, small = map->type == F16 || map->type == BF16;
    switch (operation) {
    case SG_TENSOR_LOAD:
    case SG_TENSOR_STORE:
        return true;
    case SG_TENSOR_ADD:
        return map->type >= U32;
    case SG_TENSOR_MIN:
    case SG_TENSOR_MAX:
        return whole || small;
    case SG_TENSOR_INC:
    case SG_TENSOR_DEC:
        return map->type == U32;
    default:
        return whole;
    }
}

uint32_t sg_rt_tensor(struct sg_thread *t, uint32_t operation, uint32_t rank, const void *tensor_map,
                      void *shared, const int32_t *coordinates)
{
    struct sg_tensor_map map;
    memcpy(&map, tensor_map, sizeof(map));
    const char *why = refusal(&map, rank);
    if (!why && !reducible(&map, operation))
        why = "the operation does not fit the tensor's type";
    if (why) {
        rg_error("kernel %s: a copy of a tensor: %s", t->block->grid->launch->kernel_name, why);
        sg_rt_fault(t, SG_FAULT_ILLEGAL_INSTRUCTION);
    }
    const struct work work = {&map, operation, sizes[map.type]};
    const uint32_t row_bytes = map.box[0] * work.size;
    uint32_t count[5] = {0}, at[5] = {0}, rows = 1;
    for (uint32_t i = 1; i < rank; i++) {
        count[i] = (map.box[i] + map.steps[i] - 1u) / map.steps[i];
        rows *= count[i];
    }
    for (uint32_t row = 0; row < rows; row++) {
        uint64_t offset = 0;
        bool there = true;
        for (uint32_t i = 1; i < rank; i++) {
            int64_t place = (int64_t)coordinates[i] + (int64_t)at[i] * map.steps[i];
            there &= place >= 0 && place <= (int64_t)map.last[i];
            offset += (uint64_t)place * map.strides[i - 1];
        }
        do_row(&work, (unsigned char *)shared + (size_t)row * row_bytes,
               (unsigned char *)(uintptr_t)(map.address + offset), coordinates[0],
               there ? (uint64_t)map.last[0] + 1 : 0);
        for (uint32_t i = 1; i < rank && ++at[i] == count[i]; i++)
            at[i] = 0;
    }
    return rows * row_bytes;
}
