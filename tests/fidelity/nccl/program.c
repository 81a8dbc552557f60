/* program.c - see program.h. */
#include "tests/fidelity/nccl/program.h"

#include "tests/fidelity/nccl/reduce.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unsigned char *model[RANKS_MAX];
struct comm comms[COMMS_MAX];
int n_wrong, n_calls_drawn;

static uint64_t state;

static size_t any(size_t below)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (size_t)(state >> 33) % below;
}

void wrong(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    n_wrong++;
}

int member_of(const struct comm *comm, int rank)
{
    for (int i = 0; i < comm->n; i++)
        if (comm->members[i] == rank)
            return i;
    return -1;
}

int factor_of(int rank)
{
    return 1 + rank % 3;
}

/* --- elements --------------------------------------------------------------------------------------------- */

static bool is_floating(ncclDataType_t type)
{
    return type >= ncclFloat16;
}

static bool is_signed(ncclDataType_t type)
{
    return type == ncclInt8 || type == ncclInt32 || type == ncclInt64;
}

/* Twice a whole number, or half of one …: as many bits as the small types have. */
static unsigned encode_small(double value, int exponent, int mantissa)
{
    int shift = 0;
    for (; value != (double)(int)value; shift++)
        value *= 2;
    const unsigned bits = small_float((int)value, exponent, mantissa);
    return bits - (value != 0 ? (unsigned)shift << mantissa : 0);
}

void encode(ncclDataType_t type, unsigned char *to, double value)
{
    int exponent, mantissa;
    const size_t width = rg_nccl_type_size(type);
    if (has_small_floats(type, &exponent, &mantissa)) {
        const unsigned bits = encode_small(value, exponent, mantissa);
        memcpy(to, &bits, width);
    } else if (type == ncclFloat32) {
        const float single = (float)value;
        memcpy(to, &single, width);
    } else if (type == ncclFloat64) {
        memcpy(to, &value, width);
    } else {
        const int64_t integer = (int64_t)value;
        memcpy(to, &integer, width);
    }
}

static int64_t load_integer(ncclDataType_t type, const unsigned char *from)
{
    uint64_t value = 0;
    const size_t width = rg_nccl_type_size(type);
    memcpy(&value, from, width);
    if (is_signed(type) && width < 8 && value >> (8 * width - 1))
        value |= ~0ull << (8 * width);
    return (int64_t)value;
}

static double load_floating(ncclDataType_t type, const unsigned char *from)
{
    int exponent, mantissa;
    float single;
    double value;
    unsigned bits = 0;
    memcpy(&bits, from, rg_nccl_type_size(type) < 4 ? 2 : 4);
    if (has_small_floats(type, &exponent, &mantissa)) { /* normal, as only such are drawn */
        const int scale =
            (int)(bits >> mantissa & ((1u << exponent) - 1)) - (1 << (exponent - 1)) + 1 - mantissa;
        const double size = ldexp((double)((bits & ((1u << mantissa) - 1)) | 1u << mantissa), scale);
        return bits >> (exponent + mantissa) & 1 ? -size : size;
    }
    memcpy(&single, from, sizeof single);
    if (type == ncclFloat32)
        return (double)single;
    memcpy(&value, from, sizeof value);
    return value;
}

/* --- drawing ---------------------------------------------------------------------------------------------- */

void draw_begin(unsigned long seed, int ranks)
{
    state = seed;
    for (int i = 0; i < 8; i++)
        (void)any(1);
    comms[0].n = ranks;
    for (int rank = 0; rank < ranks; rank++) {
        comms[0].members[rank] = rank;
        model[rank] = malloc(ARENA);
        for (size_t i = 0; i < ARENA; i++)
            model[rank][i] = (unsigned char)any(256);
    }
}

enum step draw_step(void)
{
    const size_t step = any(20);
    int live = 0;
    for (int i = 1; i < COMMS_MAX; i++)
        live += comms[i].n > 0;
    return step < 2 ? STEP_SPLIT : step == 2 && live ? STEP_DESTROY : step == 3 ? STEP_COMPARE : STEP_GROUP;
}

int draw_destroyed(void)
{
    int comm = 1 + (int)any(COMMS_MAX - 1);
    while (!comms[comm].n)
        comm = 1 + comm % (COMMS_MAX - 1);
    comms[comm].n = 0;
    return comm;
}

/* The ranks of a colour, by key and then by rank, are a communicator of their own. */
static void gather_color(struct split *split, int color, int number)
{
    const struct comm *parent = &comms[split->parent];
    struct comm *part = &comms[number];
    part->n = 0;
    for (int key = 0; key < RANKS_MAX; key++)
        for (int i = 0; i < parent->n; i++)
            if (split->colors[i] == color && split->keys[i] == key) {
                part->members[part->n++] = parent->members[i];
                split->comms[i] = number;
            }
}

bool draw_split(struct split *split)
{
    *split = (struct split){.blocking = any(3) > 0};
    do
        split->parent = (int)any(COMMS_MAX);
    while (!comms[split->parent].n);
    for (int i = 0; i < comms[split->parent].n; i++) {
        split->colors[i] = (int)any(3) - 1;
        split->keys[i] = (int)any(RANKS_MAX);
        split->comms[i] = -1;
    }
    int unused[2], n_unused = 0;
    for (int number = 1; number < COMMS_MAX && n_unused < 2; number++)
        if (!comms[number].n)
            unused[n_unused++] = number;
    for (int color = 0; color < 2 && n_unused == 2; color++)
        gather_color(split, color, unused[color]);
    return n_unused == 2;
}

/* Few, about what goes with one message, about a part of a large call, or any. */
static size_t draw_count(size_t width)
{
    switch (any(8)) {
    case 0:
        return any(4);
    case 1:
        return 4096 / width - 1 + any(3);
    case 2:
        return ((size_t)512 << 10) / width - 1 + any(3);
    case 3:
        return any(((size_t)1 << 20) / width);
    default:
        return 1 + any(3000);
    }
}

static size_t blocks_of(const struct call *call, bool sends)
{
    const size_t n = (size_t)comms[call->comm].n;
    return call->kind == (sends ? REDUCE_SCATTER : ALL_GATHER) ? n : 1;
}

size_t given_bytes(const struct call *call)
{
    return call->count * rg_nccl_type_size(call->type) * blocks_of(call, true);
}

static size_t taken_bytes(const struct call *call)
{
    return call->count * rg_nccl_type_size(call->type) * blocks_of(call, false);
}

bool gives(const struct call *call, int member)
{
    return (call->kind != BROADCAST && call->kind != MESSAGE) || member == call->root;
}

static bool takes(const struct call *call, int member)
{
    return call->kind == REDUCE ? member == call->root : call->kind != MESSAGE || member == call->to;
}

static bool reduces(const struct call *call)
{
    return call->kind == ALL_REDUCE || call->kind == REDUCE || call->kind == REDUCE_SCATTER;
}

/* Parts of the arenas that no other call of the group has; false: there is no room. */
static bool place(struct call *call, size_t used[RANKS_MAX])
{
    const struct comm *comm = &comms[call->comm];
    const bool in_place = call->kind != MESSAGE && any(2);
    for (int i = 0; i < comm->n; i++) {
        const int rank = comm->members[i];
        const size_t at = (used[rank] + any(64) * 8 + 7) / 8 * 8, given = given_bytes(call),
                     taken = taken_bytes(call);
        const size_t large = given > taken ? given : taken, own = (size_t)i * (large / (size_t)comm->n);
        const size_t end = at + (in_place ? large : given + 8 + taken);
        if (end + 64 > ARENA)
            return false;
        call->send[rank] = at + (in_place && call->kind == ALL_GATHER ? own : 0);
        call->receive[rank] =
            !in_place ? at + (given + 7) / 8 * 8 : at + (call->kind == REDUCE_SCATTER ? own : 0);
        used[rank] = end;
    }
    return true;
}

/* New values for what ranks give. */
static void draw_values(const struct call *call)
{
    const struct comm *comm = &comms[call->comm];
    const size_t width = rg_nccl_type_size(call->type), count = given_bytes(call) / width;
    static const double factors[] = {-2, -1, 1, 2}; /* whose products are no zeros, which have signs */
    for (int i = 0; i < comm->n; i++) {
        const int rank = comm->members[i];
        for (size_t k = 0; k < count && gives(call, i); k++) {
            const double value = is_floating(call->type) ? factors[any(4)] : (double)any(1 << 20);
            encode(call->type, model[rank] + call->send[rank] + k * width, value);
        }
    }
}

/* Averages of floating types are exact only of so many ranks. */
static bool is_power_of_two(int n)
{
    return (n & (n - 1)) == 0;
}

static void draw_call(struct call *call)
{
    static const ncclDataType_t types[] = {ncclInt8,   ncclUint8,   ncclInt32,   ncclUint32,  ncclInt64,
                                           ncclUint64, ncclFloat16, ncclFloat32, ncclFloat64, ncclBfloat16};
    *call = (struct call){.kind = (enum kind)any(6), .type = types[any(sizeof types / sizeof types[0])]};
    do
        call->comm = (int)any(COMMS_MAX);
    while (!comms[call->comm].n);
    const int n = comms[call->comm].n;
    call->root = (int)any((size_t)n);
    call->to = (int)any((size_t)n);
    call->count = draw_count(rg_nccl_type_size(call->type));
    const int op = (int)any(ncclNumOps + 1);
    call->op = op == ncclNumOps ? PRE_MUL_SUM : op;
    if (op == ncclAvg && is_floating(call->type) && !is_power_of_two(n))
        call->op = ncclSum;
    call->uploads = (reduces(call) && is_floating(call->type)) || any(2);
}

void draw_group(struct group *group)
{
    size_t used[RANKS_MAX] = {0};
    const int wanted = 1 + (int)any(CALLS_MAX);
    *group = (struct group){.depth = 1 + (int)any(2), .by_rank = any(2)};
    for (int i = 0; i < wanted; i++) {
        struct call *call = &group->calls[group->n];
        draw_call(call);
        if (!place(call, used))
            continue;
        if (call->uploads)
            draw_values(call);
        group->n++;
        n_calls_drawn++;
    }
}

/* --- computing -------------------------------------------------------------------------------------------- */

static double combine_floating(const struct call *call, size_t at)
{
    const struct comm *comm = &comms[call->comm];
    const size_t width = rg_nccl_type_size(call->type);
    double result = 0;
    for (int i = 0; i < comm->n; i++) {
        const int rank = comm->members[i];
        const double x = load_floating(call->type, model[rank] + call->send[rank] + at * width) *
                         (call->op == PRE_MUL_SUM ? factor_of(rank) : 1);
        result = i == 0                 ? x
                 : call->op == ncclProd ? result * x
                 : call->op == ncclMax  ? (x > result ? x : result)
                 : call->op == ncclMin  ? (x < result ? x : result)
                                        : result + x;
    }
    return call->op == ncclAvg ? result / comm->n : result;
}

static uint64_t combine_integers(const struct call *call, size_t at)
{
    const struct comm *comm = &comms[call->comm];
    const size_t width = rg_nccl_type_size(call->type);
    const bool is_less_signed = is_signed(call->type);
    uint64_t result = 0;
    for (int i = 0; i < comm->n; i++) {
        const int rank = comm->members[i];
        const uint64_t x = (uint64_t)load_integer(call->type, model[rank] + call->send[rank] + at * width) *
                           (call->op == PRE_MUL_SUM ? (uint64_t)factor_of(rank) : 1);
        const bool less = is_less_signed ? (int64_t)x < (int64_t)result : x < result;
        result = i == 0                 ? x
                 : call->op == ncclProd ? result * x
                 : call->op == ncclMax  ? (less ? result : x)
                 : call->op == ncclMin  ? (less ? x : result)
                                        : result + x;
    }
    if (call->op != ncclAvg)
        return result;
    const int64_t sum = load_integer(call->type, (const unsigned char *)&result); /* as it wraps */
    return is_less_signed ? (uint64_t)(sum / comm->n) : (uint64_t)sum / (unsigned)comm->n;
}

/* All that is reduced, into `to`. */
static void reduce_call(const struct call *call, unsigned char *to)
{
    const size_t width = rg_nccl_type_size(call->type), count = given_bytes(call) / width;
    for (size_t at = 0; at < count; at++) {
        if (is_floating(call->type)) {
            encode(call->type, to + at * width, combine_floating(call, at));
        } else {
            const uint64_t value = combine_integers(call, at);
            memcpy(to + at * width, &value, width);
        }
    }
}

void compute(const struct call *call)
{
    static unsigned char results[ARENA];
    const struct comm *comm = &comms[call->comm];
    const int sender = comm->members[call->root];
    const size_t given = given_bytes(call), taken = taken_bytes(call);
    if (reduces(call))
        reduce_call(call, results);
    else if (call->kind == ALL_GATHER)
        for (int i = 0; i < comm->n; i++)
            memcpy(results + (size_t)i * given, model[comm->members[i]] + call->send[comm->members[i]],
                   given);
    else
        memcpy(results, model[sender] + call->send[sender], given);
    for (int i = 0; i < comm->n; i++)
        if (takes(call, i))
            memcpy(model[comm->members[i]] + call->receive[comm->members[i]],
                   results + (call->kind == REDUCE_SCATTER ? (size_t)i * taken : 0), taken);
}
