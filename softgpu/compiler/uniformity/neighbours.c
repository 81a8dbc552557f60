/*
 * neighbours.c - lanes that read what their neighbours have written, without any barrier: see uniformity.h.
 *
 * Addresses are taken apart into sums of registers times numbers (address.h). Where those of a store and of a load differ
 * by a number alone, and that is a multiple of what lies between a thread's place and the next one's, the
 * load is of what another lane stores:
 *
 *     a[tid] = x;  y = a[tid + 1];
 *
 * The same is true of one place that all lanes load from where each stores to its own (a[tid] = x; y = a[3]).
 * On a GPU all lanes have stored by then (cuSOLVER's tables of pairs are made so). In shared memory, which
 * has few other uses for it, a store behind a load of what a lower lane stores is told in the same way.
 *
 * So are stores to it whose places others have stored to before, which theirs are to outlast:
 *
 *     a[tid] = 0;  a[index[tid]] = x;
 *
 * A place that is computed may be any of the same array. What it is to outlast is a value as all lanes or all
 * places get it, as when an array is cleared, or one at a lane's own place: stores of computed values to
 * computed places do not meet each other, as programs exchange tiles so.
 */
#include "softgpu/compiler/ir/flow.h"
#include "softgpu/compiler/ir/traits.h"
#include "softgpu/compiler/uniformity/address.h"
#include "softgpu/compiler/uniformity/uniformity.h"

#define ACCESSES_MAX 1024u /* of each kind, that are looked at in a function */
#define PLACES_MAX   64u   /* that are followed */
#define WARP         32

struct access {
    uint32_t insn;
    bool linear;  /* the address */
    int64_t step; /* from each thread to the next, of a linear one */
    struct sg_address address;
    uint64_t crossed; /* the places that it must not pass before the lanes are together */
    uint64_t own;     /* the bit of its own place, if it is followed */
};

struct accesses {
    uint32_t n, room;
    struct access *at;
};

struct search {
    const struct sg_ptx_function *function;
    const struct sg_uniformity *uniformities;
    struct sg_writers writers;
    uint32_t n_places;
    struct accesses loads, stores;
    struct accesses scattered; /* stores to shared memory whose places are computed, or one for all lanes */
};

/* Is it an access to memory that lanes have in common? */
static bool is_common(const struct sg_insn *insn)
{
    enum sg_op op = insn->form->op;
    uint8_t space = SG_MOD(insn, SG_GROUP_SPACE);
    return (op == SG_OP_LD || op == SG_OP_ST) &&
           (space == SG_MOD_SHARED || space == SG_MOD_GLOBAL || space == 0);
}

static bool is_shared(const struct sg_insn *insn)
{
    return SG_MOD(insn, SG_GROUP_SPACE) == SG_MOD_SHARED;
}

static void note_access(struct search *search, uint32_t index)
{
    const struct sg_insn *insn = &search->function->insns[index];
    if (!is_common(insn)) /* others may have no operands */
        return;
    bool load = insn->form->op == SG_OP_LD;
    const struct sg_operand *at = &insn->operands[load];
    struct sg_uniformity uniformity = {.kind = SG_UNIFORMITY_AFFINE};
    if (at->kind == SG_OPERAND_REG)
        uniformity = search->uniformities[at->reg];
    const bool linear = uniformity.kind == SG_UNIFORMITY_AFFINE;
    const bool scattered = !load && (!linear || uniformity.step == 0);
    struct accesses *to = load ? &search->loads : scattered ? &search->scattered : &search->stores;
    if (to->n == to->room || (load && !linear) || (scattered && !is_shared(insn)))
        return;
    struct access *access = &to->at[to->n];
    *access = (struct access){.insn = index,
                              .linear = linear,
                              .step = linear ? uniformity.step : 0,
                              .address = sg_address_of(&search->writers, at)};
    if (at->kind == SG_OPERAND_REG)
        access->address.number += at->value;
    to->n += access->address.known || scattered; /* that may be anywhere in any case */
}

/* How many lanes further up does a lane load what is stored; 0: its own, or nothing is known. */
static int64_t lanes_between(const struct access *store, const struct access *load)
{
    uint32_t common = 0;
    struct sg_address apart = sg_address_difference(&load->address, &store->address, &common);
    const int64_t bytes = (int64_t)apart.number;
    if (!apart.known || bytes == INT64_MIN) /* whose quotient by -1 there is not */
        return 0;
    if (apart.n == 0 && load->step == store->step)
        return bytes % store->step == 0 && bytes / store->step > -WARP && bytes / store->step < WARP
                   ? bytes / store->step
                   : 0;
    /* one place for all lanes, of those that each have one of their own */
    for (uint32_t i = 0; i < apart.n; i++)
        for (uint32_t n = 0; n < load->address.n; n++)
            if (apart.term[i].root == load->address.term[n].root)
                return 0;
    return load->step == 0 && common > 0 ? 1 : 0;
}

static bool follow(struct search *search, struct access *access)
{
    if (access->own == 0 && search->n_places < PLACES_MAX)
        access->own = (uint64_t)1 << search->n_places++;
    return access->own != 0;
}

static void find_crossings(struct search *search)
{
    for (uint32_t l = 0; l < search->loads.n; l++)
        for (uint32_t s = 0; s < search->stores.n; s++) {
            struct access *load = &search->loads.at[l], *store = &search->stores.at[s];
            int64_t lanes = lanes_between(store, load);
            if (lanes != 0 && follow(search, store))
                load->crossed |= store->own;
            if (lanes < 0 && is_shared(&search->function->insns[load->insn]) && follow(search, load))
                store->crossed |= load->own;
        }
}

/* The .shared variable with a place, 0: none is known; those of the dynamic part all begin at one place. */
static uint64_t array_of(const struct access *access)
{
    for (uint32_t i = 0; i < access->address.n; i++)
        if (access->address.term[i].root > UINT32_MAX) { /* no register */
            const struct sg_var *var = (const struct sg_var *)(uintptr_t)access->address.term[i].root;
            return var->unsized ? 1 : access->address.term[i].root;
        }
    return 0;
}

/* The only register or number that is stored, if it is the same in all lanes; NULL. */
static const struct sg_operand *only_value(const struct search *search, const struct access *store)
{
    const struct sg_operand *value = &search->function->insns[store->insn].operands[1];
    const struct sg_operand *first = value->kind == SG_OPERAND_VECTOR ? value->items : value;
    for (uint32_t i = 1; value->kind == SG_OPERAND_VECTOR && i < value->count; i++)
        if (value->items[i].kind != first->kind || value->items[i].reg != first->reg ||
            value->items[i].value != first->value)
            return NULL;
    struct sg_uniformity uniformity = sg_uniformity_of(search->uniformities, first);
    return uniformity.kind == SG_UNIFORMITY_AFFINE && uniformity.step == 0 ? first : NULL;
}

static bool is_same_value(const struct sg_operand *a, const struct sg_operand *b)
{
    return a != NULL && b != NULL && a->kind == b->kind && a->kind == SG_OPERAND_REG && a->reg == b->reg;
}

static int64_t bytes_of(const struct sg_insn *insn)
{
    const struct sg_operand *value = &insn->operands[1];
    return (int64_t)sg_type_bytes((enum sg_type)insn->types[0]) *
           (value->kind == SG_OPERAND_VECTOR ? value->count : 1);
}

/* Is it the same in all lanes? (Not what is linear but for the number that it is a remainder of.) */
static bool is_uniform(const struct search *search, const struct sg_address *sum)
{
    bool uniform = true;
    for (uint32_t i = 0; i < sum->n; i++)
        if (sum->term[i].root <= UINT32_MAX) {
            const struct sg_uniformity *root = &search->uniformities[sum->term[i].root];
            uniform &= root->kind == SG_UNIFORMITY_AFFINE && root->step == 0;
        }
    return uniform;
}

/* May what a lane stores be where a higher one has stored before? (Lower ones have been there anyway.) */
static bool overwrites(const struct search *search, const struct access *before, const struct access *store)
{
    const struct sg_insn *first = &search->function->insns[before->insn];
    const struct sg_insn *second = &search->function->insns[store->insn];
    const uint64_t arrays[] = {array_of(before), array_of(store)};
    const bool own = before->linear && before->step != 0;
    const struct sg_operand *value = only_value(search, before);
    uint32_t common = 0;
    if (before == store || !is_shared(second) ||
        (arrays[0] != arrays[1] && arrays[0] != 0 && arrays[1] != 0) ||
        is_same_value(value, only_value(search, store)))
        return false;
    struct sg_address apart = sg_address_difference(&store->address, &before->address, &common);
    if (!apart.known)
        return value != NULL || own;
    if (apart.n == 0 && before->linear && store->linear && before->step == store->step) {
        /* bytes from the first place of a lane to the second of another, that is so many further down */
        for (int64_t lanes = 1; own && lanes < WARP; lanes++) {
            int64_t from = (int64_t)apart.number - lanes * before->step;
            if (from < bytes_of(first) && from > -bytes_of(second))
                return true;
        }
        return false;
    }
    if (apart.n == 0 || (own && before->step == store->step && is_uniform(search, &apart))) /* other rows */
        return false;
    return value != NULL || (own && common > 0);
}

/* Stores that others are to outlast: see above. The rest is not compared, nor what there are no places left for. */
static bool may_be_overwritten(const struct search *search, const struct access *before)
{
    return is_shared(&search->function->insns[before->insn]) &&
           ((before->linear && before->step != 0) || only_value(search, before) != NULL) &&
           (before->own != 0 || search->n_places < PLACES_MAX);
}

static void find_overwritten_by(struct search *search, struct access *before, struct accesses *stores)
{
    for (uint32_t s = 0; s < stores->n && may_be_overwritten(search, before); s++)
        if (overwrites(search, before, &stores->at[s]) && follow(search, before))
            stores->at[s].crossed |= before->own;
}

static void find_overwritten(struct search *search)
{
    struct accesses *const stores[] = {&search->stores, &search->scattered};
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t b = 0; b < stores[i]->n; b++) {
            find_overwritten_by(search, &stores[i]->at[b], stores[0]);
            find_overwritten_by(search, &stores[i]->at[b], stores[1]);
        }
}

/* The places that lanes have been at since they were together, behind an instruction, which it marks. */
static uint64_t step(struct sg_insn *insn, const struct access *access, uint64_t state)
{
    if (sg_is_meeting(insn))
        return 0;
    if (access != NULL && (access->crossed & state) != 0)
        insn->aligns = true;
    /* where a guard is false the lanes were not brought together */
    return (access != NULL ? access->own : 0) | (insn->aligns && insn->guard == 0 ? 0 : state);
}

static void mark(struct sg_arena *arena, struct sg_ptx_function *function, const struct search *search)
{
    struct sg_flow flow = {0};
    const struct access **by_insn = SG_NEW_ARRAY(arena, const struct access *, function->n_insns + 1);
    for (uint32_t i = 0; i < search->loads.n; i++)
        by_insn[search->loads.at[i].insn] = &search->loads.at[i];
    for (uint32_t i = 0; i < search->stores.n; i++)
        by_insn[search->stores.at[i].insn] = &search->stores.at[i];
    for (uint32_t i = 0; i < search->scattered.n; i++)
        by_insn[search->scattered.at[i].insn] = &search->scattered.at[i];
    sg_flow_build(arena, function, &flow);
    uint64_t *in = SG_NEW_ARRAY(arena, uint64_t, flow.n_blocks + 1);
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t block = 0; block < flow.n_blocks; block++) {
            uint64_t state = in[block];
            uint32_t to;
            for (uint32_t i = flow.first[block]; i < flow.first[block + 1]; i++)
                state = step(&function->insns[i], by_insn[i], state);
            for (uint32_t i = 0; sg_flow_successor(&flow, block, i, &to); i++)
                if (to != UINT32_MAX && (state & ~in[to]) != 0) {
                    in[to] |= state;
                    changed = true;
                }
        }
    }
}

static struct accesses room_for(struct sg_arena *arena, uint32_t n)
{
    const uint32_t room = n < ACCESSES_MAX ? n : ACCESSES_MAX;
    return (struct accesses){.room = room, .at = SG_NEW_ARRAY(arena, struct access, room)};
}

void sg_analyse_neighbours(struct sg_arena *arena, struct sg_ptx_function *function)
{
    uint32_t loads = 0, stores = 0;
    for (uint32_t i = 0; i < function->n_insns; i++) {
        loads += is_common(&function->insns[i]) && function->insns[i].form->op == SG_OP_LD;
        stores += is_common(&function->insns[i]) && function->insns[i].form->op == SG_OP_ST;
    }
    if (stores == 0)
        return;
    struct search *search = SG_NEW_ARRAY(arena, struct search, 1);
    search->function = function;
    search->loads = room_for(arena, loads);
    search->stores = room_for(arena, stores);
    search->scattered = room_for(arena, stores);
    search->writers = sg_writers_find(arena, function);
    search->uniformities = sg_uniformity_compute(arena, function, SG_AMONG_WARP);
    for (uint32_t i = 0; i < function->n_insns; i++)
        note_access(search, i);
    find_crossings(search);
    find_overwritten(search);
    if (search->n_places > 0)
        mark(arena, function, search);
}
