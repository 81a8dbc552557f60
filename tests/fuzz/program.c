/* program.c - see program.h. And the custom mutator, which works on steps, and makes records that decode. */
#include "tests/fuzz/program.h"
#include "proto/kinds.h"
#include "proto/wire.h"
#include "tests/check.h"
#include "tests/fuzz/fuzzer.h"

#include <stdlib.h>

uint32_t fuzz_hash(const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash;
}

/* The operation of that hash, or where it would be; operations are put in once. */
static const struct fuzz_operation **place_of(uint32_t hash)
{
    enum { PLACES = 4096 };
    static const struct fuzz_operation *places[PLACES];
    uint32_t at = hash % PLACES;
    while (places[at] && fuzz_hash(places[at]->name) != hash)
        at = (at + 1) % PLACES;
    return &places[at];
}

const struct fuzz_operation *fuzz_operation_of(uint32_t hash)
{
    static unsigned known;
    for (; known < fuzz_n_operations; known++) {
        const struct fuzz_operation **place = place_of(fuzz_hash(fuzz_operations[known].name));
        *place = *place ? *place : &fuzz_operations[known];
    }
    const struct fuzz_operation *found = *place_of(hash);
    return found ? found : &fuzz_operations[hash % fuzz_n_operations];
}

static unsigned get_u8(struct rg_reader *in)
{
    unsigned char value;
    rg_get_into(in, &value, 1);
    return value;
}

static size_t get_sized(struct rg_reader *in, const unsigned char **data)
{
    uint16_t size;
    rg_get_into(in, &size, sizeof size);
    const size_t there = size < rg_left(in) ? size : rg_left(in);
    if (in->bad)
        return 0;
    *data = in->at;
    return rg_get(in, there) ? there : 0;
}

bool fuzz_step_get(struct rg_reader *in, struct fuzz_step *out)
{
    static const unsigned char nothing[64];
    if (in->bad || rg_left(in) == 0)
        return false;
    *out = (struct fuzz_step){.kind = (enum fuzz_step_kind)(get_u8(in) % FUZZ_STEPS), .data = nothing};
    const size_t head =
        out->kind == FUZZ_ANSWER ? sizeof(struct rg_answer) : sizeof(struct rg_message_header);
    switch (out->kind) {
    case FUZZ_RECORD:
        out->operation = rg_get_u32(in);
        out->thread = (unsigned char)get_u8(in);
        out->flags = (unsigned char)get_u8(in);
        out->size = get_sized(in, &out->data);
        break;
    case FUZZ_SEND:
        out->flags = (unsigned char)get_u8(in);
        out->size = get_sized(in, &out->data);
        break;
    case FUZZ_ANSWER:
    case FUZZ_RAW:
        out->head = rg_get(in, head);
        if (!out->head)
            return false;
        out->size = get_sized(in, &out->data);
        break;
    case FUZZ_MODE:
        out->mode = (unsigned char)get_u8(in);
        break;
    default:
        break;
    }
    return !in->bad;
}

/* --- changing inputs --------------------------------------------------------------------------------------- */

enum { STEPS_MAX = 256, RECORD_MAX = 4096 };

static uint64_t state;

static uint32_t chance(uint32_t n)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(state >> 33) % n;
}

/* A step where it stands in the input. */
struct place {
    size_t at, end;
    struct fuzz_step step;
};

static size_t find_steps(const uint8_t *data, size_t size, struct place *places)
{
    struct rg_reader in = rg_reader_of(data, size);
    size_t n = 0;
    (void)get_u8(&in);
    while (n < STEPS_MAX) {
        places[n].at = (size_t)(in.at - data);
        if (!fuzz_step_get(&in, &places[n].step))
            break;
        places[n].end = (size_t)(in.at - data);
        n++;
    }
    return n;
}

/* Of a kind, one of the handles that earlier records have made; else one that may have been. */
static uint64_t some_handle(unsigned kind, const struct place *places, size_t n)
{
    uint64_t found[16];
    size_t n_found = 0;
    for (size_t i = 0; i < n; i++) {
        if (places[i].step.kind != FUZZ_RECORD)
            continue;
        const struct fuzz_operation *operation = fuzz_operation_of(places[i].step.operation);
        struct rg_reader in = rg_reader_of(places[i].step.data, places[i].step.size);
        for (unsigned f = 0; f < operation->n_fields && n_found < 16; f++) {
            const struct fuzz_field *field = &operation->fields[f];
            if (field->type == '4')
                (void)rg_get_u32(&in);
            else if (field->type == '8' || field->type == 'h')
                (void)rg_get_u64(&in);
            else if (field->type == 'i')
                (void)rg_get(&in, field->size);
            else if (field->type != 'n')
                break;
            else if (field->size == kind)
                found[n_found++] = rg_get_u64(&in);
            else
                (void)rg_get_u64(&in);
        }
    }
    if (n_found && chance(8))
        return found[chance((uint32_t)n_found)];
    if (kind == RG_KIND_STREAM && chance(2))
        return chance(3); /* one of the default streams */
    /* Those that a session has from the beginning; indices are those of all kinds. */
    const uint32_t first = kind == RG_KIND_STREAM ? 1 : kind == RG_KIND_EVENT ? 2 : 0;
    return rg_handle_make((enum rg_kind)kind, chance(8) ? first : chance(64), 1);
}

static uint64_t some_number(void)
{
    static const uint64_t numbers[] = {0,
                                       1,
                                       2,
                                       3,
                                       4,
                                       8,
                                       16,
                                       32,
                                       64,
                                       100,
                                       256,
                                       300,
                                       4096,
                                       65536,
                                       1u << 20,
                                       1u << 31,
                                       0xffffffffu,
                                       0x300000000000,
                                       0x700000000000,
                                       0x700000010000,
                                       UINT64_MAX,
                                       UINT64_MAX - 4095,
                                       1ull << 40};
    return chance(3)   ? chance(6)
           : chance(4) ? numbers[chance(sizeof numbers / sizeof *numbers)]
                       : (uint64_t)chance(1u << 30) << chance(34);
}

/* Bytes of a structure: words that mean something here and there. */
static void put_bytes(struct rg_writer *w, size_t size, const struct place *places, size_t n)
{
    unsigned char *start = w->at;
    memset(start, 0, size);
    for (size_t at = 0; at + 4 <= size; at += 4) {
        const uint64_t value = chance(6)   ? chance(4)
                               : chance(3) ? some_number()
                                           : some_handle(chance(RG_KIND_COUNT), places, n);
        if (chance(3) == 0)
            memcpy(start + at, &value, size - at < 8 || chance(2) ? 4 : 8);
    }
    w->at += size;
}

/* The parameters of an operation, which decode; returns their size. `places`: the steps before. */
static size_t make_parameters(const struct fuzz_operation *operation, unsigned char *out,
                              const struct place *places, size_t n)
{
    struct rg_writer w = {out};
    uint64_t values[64] = {0};
    for (unsigned f = 0; f < operation->n_fields && f < 64; f++) {
        const struct fuzz_field *field = &operation->fields[f];
        bool counts = false; /* it says how many elements another parameter has */
        for (unsigned i = f + 1; i < operation->n_fields; i++)
            counts |= operation->fields[i].type == 'a' && operation->fields[i].counted == (int)f;
        uint64_t value = counts ? chance(5) : some_number();
        size_t size = (size_t)(w.at - out);
        switch (field->type) {
        case '4':
            rg_put_u32(&w, (uint32_t)value);
            value = (uint32_t)value;
            break;
        case '8':
            rg_put_u64(&w, value);
            break;
        case 'h':
            rg_put_u64(&w, some_handle((unsigned)field->size, places, n));
            break;
        case 'n':
            rg_put_u64(&w, rg_handle_make((enum rg_kind)field->size, 3 + chance(60), 1));
            break;
        case 's':
            rg_put_string(&w, chance(8) ? "name" : chance(2) ? NULL : "");
            break;
        case 'i':
        case 'o':
            if (field->type == 'o')
                rg_put_u32(&w, chance(4) != 0);
            if (field->size < RECORD_MAX - size - 64)
                put_bytes(&w, field->size, places, n);
            break;
        case 'a': {
            uint64_t count = field->counted >= 0 ? values[field->counted] : field->count;
            if (count > (RECORD_MAX - size - 64) / (field->size ? field->size : 1))
                count = 0;
            rg_put_u64(&w, count);
            put_bytes(&w, (size_t)count * field->size, places, n);
            break;
        }
        default:
            abort();
        }
        values[f] = value;
    }
    return (size_t)(w.at - out);
}

static size_t put_record(unsigned char *out, const struct place *places, size_t n)
{
    const struct fuzz_operation *operation = &fuzz_operations[chance(fuzz_n_operations)];
    struct rg_writer w = {out};
    const uint32_t hash = fuzz_hash(operation->name);
    rg_put(&w, &(unsigned char){FUZZ_RECORD}, 1);
    rg_put_u32(&w, hash);
    rg_put(&w, &(unsigned char){(unsigned char)(chance(5) ? 0 : chance(3))}, 1);
    rg_put(&w, &(unsigned char){(unsigned char)(chance(2) ? 0 : 1 + 2 * (chance(4) == 0))}, 1);
    const uint16_t size = (uint16_t)make_parameters(operation, w.at + 2, places, n);
    rg_put(&w, &size, 2);
    return (size_t)(w.at - out) + size;
}

static size_t put_other(unsigned char *out, const struct place *places, size_t n)
{
    struct rg_writer w = {out};
    const unsigned kind = chance(4) ? FUZZ_SEND : 2 + chance(FUZZ_STEPS - 2);
    uint16_t size = (uint16_t)(chance(2) ? 0 : chance(4) ? chance(64) : chance(400));
    rg_put(&w, &(unsigned char){(unsigned char)kind}, 1);
    if (kind == FUZZ_SEND || kind == FUZZ_MODE) {
        rg_put(&w, &(unsigned char){(unsigned char)chance(kind == FUZZ_SEND ? 2 : 32)}, 1);
    } else if (kind == FUZZ_ANSWER) {
        static const uint32_t types[] = {RG_ANSWER_HOST_DONE,   RG_ANSWER_DATA,      RG_ANSWER_MANAGED_IN,
                                         RG_ANSWER_MANAGED_OUT, RG_ANSWER_RECLAIMED, RG_ANSWER_TIMES};
        rg_put_u32(&w, types[chance(sizeof types / sizeof *types)]);
        rg_put_u32(&w, chance(4));
        rg_put_u64(&w, chance(2) ? some_number() : some_handle(RG_KIND_CONTEXT, places, n));
        rg_put_u64(&w, some_number());
        rg_put_u64(&w, chance(2) ? size : some_number());
        rg_put_u64(&w, some_handle(RG_KIND_CONTEXT, places, n));
    } else if (kind == FUZZ_RAW) {
        const struct rg_message_header header = {
            .kind = (uint16_t)chance(11), .version = RG_PROTOCOL_MAJOR, .count = chance(3), .seq = chance(9)};
        rg_put(&w, &header, sizeof header);
    }
    if (kind == FUZZ_SEND || kind == FUZZ_ANSWER || kind == FUZZ_RAW) {
        rg_put(&w, &size, 2);
        put_bytes(&w, size, places, n);
    }
    return (size_t)(w.at - out);
}

static size_t insert(uint8_t *data, size_t size, size_t max_size, size_t at, const void *what, size_t length)
{
    if (length > max_size - size)
        return size;
    memmove(data + at + length, data + at, size - at);
    memcpy(data + at, what, length);
    return size + length;
}

static size_t change_once(uint8_t *data, size_t size, size_t max_size)
{
    static struct place places[STEPS_MAX];
    static unsigned char made[3 * RECORD_MAX];
    if (size == 0) {
        if (max_size == 0)
            return 0;
        data[size++] = FUZZ_BEGIN_TIMED;
    }
    const size_t n = find_steps(data, size, places);
    const size_t i = n ? chance((uint32_t)n) : 0;
    struct place *place = &places[i];
    switch (n ? chance(11) : 0) {
    case 0:
    case 1:
    case 2:
    case 3: { /* one more record, most often at the end */
        const size_t k = chance(3) ? n : i;
        const size_t length = put_record(made, places, k);
        return insert(data, size, max_size, k < n ? places[k].at : n ? places[n - 1].end : 1, made, length);
    }
    case 4:
        return insert(data, size, max_size, place->at, made, put_other(made, places, i));
    case 5: /* one less */
        memmove(data + place->at, data + place->end, size - place->end);
        return size - (place->end - place->at);
    case 6: { /* one twice */
        const size_t length = place->end - place->at;
        if (length > sizeof made)
            return size;
        memcpy(made, data + place->at, length);
        return insert(data, size, max_size, places[chance((uint32_t)n)].at, made, length);
    }
    case 7: /* other parameters of the same operation */
        if (place->step.kind == FUZZ_RECORD) {
            const size_t before = (size_t)(place->step.data - data), old = place->step.size;
            const uint16_t now =
                (uint16_t)make_parameters(fuzz_operation_of(place->step.operation), made, places, i);
            if (old < now && now - old > max_size - size)
                return size;
            memmove(data + before + now, data + before + old, size - before - old);
            memcpy(data + before, made, now);
            memcpy(data + before - 2, &now, 2);
            return size - old + now;
        }
        /* fall through */
    case 8: /* bytes within a step */
        if (place->step.size) {
            (void)LLVMFuzzerMutate(data + (place->step.data - data), place->step.size, place->step.size);
            return size;
        }
        /* fall through */
    case 9:
        if (place->step.size >= 8) { /* one word */
            const uint64_t value = chance(2) ? some_number() : some_handle(chance(RG_KIND_COUNT), places, i);
            memcpy(data + (place->step.data - data) + chance((uint32_t)(place->step.size / 4 - 1)) * 4,
                   &value, chance(2) ? 4 : 8);
            return size;
        }
        data[0] = (uint8_t)chance(256);
        return size;
    default:
        return LLVMFuzzerMutate(data, size, max_size);
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    state = seed * 0x9e3779b97f4a7c15ull + 1;
    for (unsigned i = 1 + chance(4); i; i--)
        size = change_once(data, size, max_size);
    return size;
}
