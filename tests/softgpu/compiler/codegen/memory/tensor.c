/*
 * tensor.c - copies of boxes of tensors, element by element against what the map says: boxes that stick out
 * on all sides, strides of elements, swizzled shared memory, stores, reductions, maps that are not right.
 */
#include "tests/softgpu/compiler/harness.h"

#include "softgpu/exec/exec.h"
#include "softgpu/tensor_map.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#define BOX    8192u /* bytes of shared memory */
#define TENSOR 65536u

enum { U8, U16, U32, S32, U64, S64, F16, F32, F64, BF16 };

static _Alignas(128) unsigned char tensor[TENSOR], before[TENSOR], box[BOX];
static _Alignas(64) struct sg_tensor_map map;

struct shape {
    uint32_t rank, size; /* of an element */
    uint32_t dims[5], boxes[5], steps[5];
    uint8_t type, swizzle;
};

static void make_map(const struct shape *shape)
{
    uint64_t stride =
        ((uint64_t)shape->dims[0] * shape->size + 15) / 16 * 16 + 32; /* rows have room behind them */
    map = (struct sg_tensor_map){
        .address = (uintptr_t)tensor, .magic = SG_TENSOR_MAGIC, .kind = SG_TENSOR_TILED};
    map.type = shape->type;
    map.swizzle = shape->swizzle;
    map.rank = (uint8_t)shape->rank;
    for (uint32_t i = 0; i < shape->rank; i++) {
        map.last[i] = shape->dims[i] - 1;
        map.box[i] = (uint16_t)shape->boxes[i];
        map.steps[i] = (uint8_t)shape->steps[i];
        if (i + 1 < shape->rank) {
            map.strides[i] = stride;
            stride *= shape->dims[i + 1];
        }
    }
    cr_assert_leq(stride, TENSOR);
    uint32_t random = 99;
    for (uint32_t i = 0; i < TENSOR; i++) {
        random = random * 1664525 + 1013904223;
        tensor[i] = before[i] = (unsigned char)(random >> 24);
    }
}

static uint32_t rows_of(const struct shape *shape, uint32_t i)
{
    return (shape->boxes[i] + shape->steps[i] - 1) / shape->steps[i];
}

static uint32_t box_bytes(const struct shape *shape)
{
    uint32_t bytes = shape->boxes[0] * shape->size;
    for (uint32_t i = 1; i < shape->rank; i++)
        bytes *= rows_of(shape, i);
    return bytes;
}

/* Where byte `at` of the box lies in shared memory. */
static uint32_t place_of(const struct shape *shape, uint32_t at)
{
    uint32_t groups = 1u << shape->swizzle, row = at / 128 % groups, chunk = at / 16 % 8;
    return at / 128 * 128 + (chunk / groups * groups + (chunk % groups ^ row)) * 16 + at % 16;
}

/* The offset in the tensor of the element whose byte is `at` of the box, or -1: it is outside. */
static int64_t source_of(const struct shape *shape, const int32_t *coordinates, uint32_t at)
{
    uint32_t element = at / shape->size, width = shape->boxes[0];
    int64_t x = coordinates[0] + (int64_t)(element % width), offset = x * shape->size + at % shape->size;
    bool inside = x >= 0 && x < shape->dims[0];
    element /= width;
    for (uint32_t i = 1; i < shape->rank; i++) {
        int64_t c = coordinates[i] + (int64_t)(element % rows_of(shape, i)) * shape->steps[i];
        inside &= c >= 0 && c < shape->dims[i];
        offset += c * (int64_t)map.strides[i - 1];
        element /= rows_of(shape, i);
    }
    return inside ? offset : -1;
}

/* Runs `body` by one thread, with %map, coordinates %c0 …, shared memory `sv`, which is `box`. */
static int run_tensor(const char *body, const int32_t coordinates[5])
{
    char *text = NULL;
    cr_assert(
        asprintf(
            &text,
            ".visible .entry k(.param .u64 pmap, .param .u64 pbox, .param .align 4 .b8 pc[20]) {\n"
            ".reg .b64 %%map, %%box, %%d<4>; .reg .b32 %%i, %%c<5>, %%r<4>; .reg .pred %%p<4>; .shared "
            ".align 1024 "
            ".b8 sv[%u]; .shared .align 8 .b64 bar;\n"
            "ld.param.u64 %%map, [pmap]; ld.param.u64 %%box, [pbox]; ld.param.u32 %%c0, [pc]; ld.param.u32 "
            "%%c1, "
            "[pc+4]; ld.param.u32 %%c2, [pc+8]; ld.param.u32 %%c3, [pc+12]; ld.param.u32 %%c4, [pc+16];\n"
            "mov.u32 %%i, 0; IN: cvt.u64.u32 %%d0, %%i; add.u64 %%d1, %%box, %%d0; ld.global.u32 %%r1, "
            "[%%d1]; "
            "mov.u32 %%r2, sv; add.u32 %%r2, %%r2, %%i; st.shared.u32 [%%r2], %%r1; add.u32 %%i, %%i, 4; "
            "setp.lt.u32 %%p0, %%i, %u; @%%p0 bra IN;\n"
            "mbarrier.init.shared.b64 [bar], 1;\n%s\n"
            "mov.u32 %%i, 0; OUT: cvt.u64.u32 %%d0, %%i; add.u64 %%d1, %%box, %%d0; mov.u32 %%r2, sv; "
            "add.u32 "
            "%%r2, %%r2, %%i; ld.shared.u32 %%r1, [%%r2]; st.global.u32 [%%d1], %%r1; add.u32 %%i, %%i, 4; "
            "setp.lt.u32 %%p0, %%i, %u; @%%p0 bra OUT;\nret;\n}\n",
            BOX, BOX, body, BOX) > 0);
    struct sg_program *program = program_of(text);
    struct {
        const void *map, *box;
        int32_t coordinates[5];
    } params = {&map, box, {0}};
    memcpy(params.coordinates, coordinates, sizeof(params.coordinates));
    int fault = run_grid(program, 1, 1, &params);
    free_program(program);
    free(text);
    return fault;
}

static const char *vector_of(uint32_t rank)
{
    static const char *const vectors[] = {"{%c0}", "{%c0, %c1}", "{%c0, %c1, %c2}", "{%c0, %c1, %c2, %c3}",
                                          "{%c0, %c1, %c2, %c3, %c4}"};
    return vectors[rank - 1];
}

static const struct shape shapes[] = {
    {1, 4, {37}, {16}, {1}, U32, 0},
    {2, 4, {50, 9}, {8, 6}, {1, 1}, F32, 1},
    {2, 1, {70, 30}, {64, 12}, {1, 1}, U8, 2},
    {2, 2, {100, 40}, {64, 16}, {1, 1}, F16, 3},
    {2, 8, {12, 20}, {16, 16}, {1, 1}, U64, 3},
    {3, 4, {20, 8, 5}, {12, 7, 4}, {1, 2, 3}, S32, 0},
    {5, 2, {17, 3, 4, 3, 5}, {16, 2, 3, 2, 3}, {1, 1, 2, 1, 1}, BF16, 1},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static const int32_t corners[][5] = {{0, 0, 0, 0, 0},  {3, 1, 1, 1, 1},   {-5, -2, -1, -1, -2},
                                     {11, 4, 3, 2, 3}, {200, 0, 0, 0, 0}, {0, -50, 0, 0, 0}};
#define CORNERS (sizeof(corners) / sizeof(corners[0]))

Test(tensor, boxes_loaded)
{
    for (size_t s = 0; s < SHAPES; s++)
        for (size_t c = 0; c < CORNERS; c++) {
            const struct shape *shape = &shapes[s];
            char body[1024];
            make_map(shape);
            memset(box, 0xee, sizeof(box));
            snprintf(body, sizeof(body),
                     "mbarrier.arrive.expect_tx.shared.b64 _, [bar], %u;\n"
                     "cp.async.bulk.prefetch.tensor.%ud.L2.global.tile [%%map, %s];\n"
                     "cp.async.bulk.tensor.%ud.%s.global.tile.mbarrier::complete_tx::bytes [sv], [%%map, "
                     "%s], [bar];\n"
                     "mbarrier.test_wait.parity.shared.b64 %%p1, [bar], 0; @!%%p1 trap;",
                     box_bytes(shape), shape->rank, vector_of(shape->rank), shape->rank,
                     c % 2 == 0 ? "shared::cluster" : "shared::cta", vector_of(shape->rank));
            cr_assert_eq(run_tensor(body, corners[c]), 0, "%s", body);
            for (uint32_t at = 0; at < BOX; at++) {
                if (at >= box_bytes(shape)) {
                    if (at >= (box_bytes(shape) + 1023) / 1024 * 1024)
                        cr_assert_eq(box[at], 0xee, "byte %u behind the box", at);
                    continue;
                }
                int64_t source = source_of(shape, corners[c], at);
                cr_assert_eq(box[place_of(shape, at)], source < 0 ? 0 : before[source],
                             "shape %zu, corner %zu, byte %u", s, c, at);
            }
        }
}

Test(tensor, boxes_stored)
{
    for (size_t s = 0; s < SHAPES; s++)
        for (size_t c = 0; c < CORNERS; c++) {
            const struct shape *shape = &shapes[s];
            char body[256];
            make_map(shape);
            for (uint32_t i = 0; i < BOX; i++)
                box[i] = (unsigned char)(i * 7 + i / 256);
            snprintf(body, sizeof(body),
                     "cp.async.bulk.tensor.%ud.global.shared::cta.bulk_group [%%map, %s], [sv]; "
                     "cp.async.bulk.commit_group; "
                     "cp.async.bulk.wait_group 0;",
                     shape->rank, vector_of(shape->rank));
            cr_assert_eq(run_tensor(body, corners[c]), 0, "%s", body);
            for (uint32_t at = 0; at < box_bytes(shape); at++) {
                int64_t to = source_of(shape, corners[c], at);
                if (to < 0)
                    continue;
                cr_assert_eq(tensor[to], box[place_of(shape, at)], "shape %zu, corner %zu, byte %u", s, c,
                             at);
                tensor[to] = before[to];
            }
            cr_assert_eq(memcmp(tensor, before, TENSOR), 0, "shape %zu, corner %zu: more has been stored", s,
                         c);
        }
}

static uint64_t word_at(const unsigned char *bytes, uint32_t size)
{
    uint64_t word = 0;
    memcpy(&word, bytes, size);
    return word;
}

Test(tensor, boxes_reduced)
{
    static const struct {
        const char *operation;
        uint8_t type;
        uint32_t size;
        uint64_t value, old, result;
    } cases[] = {
        {"add", U32, 4, 7, UINT32_MAX, 6},
        {"add", S64, 8, 7, UINT64_MAX, 6},
        {"min", S32, 4, 0xfffffff0, 3, 0xfffffff0},
        {"min", U32, 4, 0xfffffff0, 3, 3},
        {"max", S64, 8, UINT64_MAX, 1, 1},
        {"max", U64, 8, UINT64_MAX, 1, UINT64_MAX},
        {"inc", U32, 4, 5, 5, 0},
        {"inc", U32, 4, 5, 4, 5},
        {"dec", U32, 4, 5, 0, 5},
        {"dec", U32, 4, 5, 3, 2},
        {"and", U32, 4, 0xff00ff, 0x12345678, 0x340078},
        {"or", U64, 8, 0xff00, 0x1234, 0xff34},
        {"xor", U32, 4, 0xffff, 0x1234, 0xedcb},
        {"add", F32, 4, 0x3f800000, 0x40000000, 0x40400000},
        {"add", F64, 8, 0x3ff0000000000000, 0x4000000000000000, 0x4008000000000000},
        {"add", F16, 2, 0x3c00, 0x4000, 0x4200},
        {"add", BF16, 2, 0x3f80, 0x4000, 0x4040},
        {"min", F16, 2, 0xc000, 0x3c00, 0xc000},
        {"max", BF16, 2, 0x4000, 0x7fc0, 0x4000},
    };
    for (size_t n = 0; n < sizeof(cases) / sizeof(cases[0]); n++) {
        struct shape shape = {2, cases[n].size, {30, 6}, {16, 4}, {1, 1}, cases[n].type, 0};
        const int32_t corner[5] = {20, 3, 0, 0, 0};
        char body[256];
        make_map(&shape);
        for (uint32_t at = 0; at < TENSOR; at += shape.size)
            memcpy(tensor + at, &cases[n].old, shape.size);
        for (uint32_t at = 0; at < BOX; at += shape.size)
            memcpy(box + at, &cases[n].value, shape.size);
        snprintf(
            body, sizeof(body),
            "cp.reduce.async.bulk.tensor.2d.global.shared::cta.%s.bulk_group [%%map, {%%c0, %%c1}], [sv];",
            cases[n].operation);
        cr_assert_eq(run_tensor(body, corner), 0, "%s", body);
        uint32_t changed = 0;
        for (uint32_t at = 0; at < TENSOR; at += shape.size) {
            uint64_t word = word_at(tensor + at, shape.size);
            changed += word == cases[n].result && word != cases[n].old;
            cr_assert(word == cases[n].old || word == cases[n].result, "%s: %#lx", body, (unsigned long)word);
        }
        cr_expect_eq(changed, cases[n].result == cases[n].old ? 0 : 10 * 3, "%s: %u", body, changed);
    }
}

/* What the device cannot do ends the kernel; nothing is guessed. */
Test(tensor, maps_refused)
{
    static const struct shape shape = {2, 4, {50, 9}, {8, 6}, {1, 1}, F32, 0};
    static const int32_t corner[5] = {0};
    static const char load[] = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                               "[sv], [%map, {%c0, %c1}], [bar];";
    for (int n = 0; n < 6; n++) {
        make_map(&shape);
        switch (n) {
        case 0:
            map.magic = 0;
            break;
        case 1:
            map.rank = 3;
            break;
        case 2:
            map.kind = SG_TENSOR_IM2COL;
            break;
        case 3:
            map.interleave = 1;
            break;
        case 4:
            map.fill = 1;
            break;
        default:
            map.type = 13;
            break;
        }
        cr_expect_eq(run_tensor(load, corner), SG_FAULT_ILLEGAL_INSTRUCTION, "%d", n);
    }
    make_map(&shape);
    cr_expect_eq(
        run_tensor(
            "cp.reduce.async.bulk.tensor.2d.global.shared::cta.and.bulk_group [%map, {%c0, %c1}], [sv];",
            corner),
        SG_FAULT_ILLEGAL_INSTRUCTION);
}

Test(tensor, maps_made_in_shared_memory)
{
    static const struct shape shape = {1, 4, {40}, {16}, {1}, U32, 0};
    const int32_t corner[5] = {4, 0, 0, 0, 0};
    make_map(&shape);
    struct sg_tensor_map wanted = map;
    memcpy(box, &map, sizeof(map));
    memset(&map, 0, sizeof(map));
    cr_assert_eq(
        run_tensor("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
                   "[%map], [sv], "
                   "128; fence.proxy.tensormap::generic.acquire.gpu [%map], 128; prefetch.tensormap [%map];\n"
                   "mbarrier.arrive.expect_tx.shared.b64 _, [bar], 64; "
                   "cp.async.bulk.tensor.1d.shared::cluster.global."
                   "mbarrier::complete_tx::bytes [sv], [%map, {%c0}], [bar];",
                   corner),
        0);
    cr_expect_eq(memcmp(&map, &wanted, sizeof(map)), 0);
    cr_expect_eq(memcmp(box, before + 16, 64), 0);
}

#define REPLACE(field, type, operands)                                                                       \
    "tensormap.replace.tile." field ".shared::cta.b1024." type " [sv], " operands ";\n"

/* All fields, of what was zeros before. */
Test(tensor, maps_made_of_nothing)
{
    static const struct shape shape = {2, 4, {40, 6}, {16, 2}, {1, 2}, F32, 0};
    const int32_t corner[5] = {4, 1, 0, 0, 0};
    char body[2048];
    make_map(&shape);
    struct sg_tensor_map wanted = map;
    memset(box, 0, sizeof(map));
    memset(&map, 0, sizeof(map));
    snprintf(
        body, sizeof(body),
        REPLACE("global_address", "b64", "%llu") REPLACE("rank", "b32", "1") REPLACE(
            "box_dim", "b32", "0, 16") REPLACE("box_dim", "b32", "1, 2") REPLACE("global_dim", "b32", "0, 40")
            REPLACE("global_dim", "b32", "1, 6") REPLACE("global_stride", "b64", "0, %llu")
                REPLACE("element_stride", "b32", "0, 1") REPLACE("element_stride", "b32",
                                                                 "1, 2") REPLACE("elemtype", "b32", "7")
                    REPLACE("interleave_layout", "b32", "0") REPLACE("swizzle_mode", "b32", "0") REPLACE(
                        "fill_mode", "b32",
                        "0") "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync."
                             "aligned "
                             "[%%map], [sv], 128; fence.proxy.tensormap::generic.acquire.gpu [%%map], 128;\n"
                             "mbarrier.arrive.expect_tx.shared.b64 _, [bar], 64; "
                             "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                             "[sv], [%%map, {%%c0, %%c1}], [bar];",
        (unsigned long long)wanted.address, (unsigned long long)wanted.strides[0]);
    cr_assert_eq(run_tensor(body, corner), 0);
    cr_expect_eq(memcmp(&map, &wanted, sizeof(map)), 0);
    cr_expect_eq(memcmp(box, before + wanted.strides[0] + 16, 64), 0);
}

/* Their types have other numbers in PTX than in the API. */
Test(tensor, types_of_maps_that_are_changed)
{
    static const uint8_t api[14] = {0, 1, 2, 3, 4, 5, 6, 7, 10, 8, 9, 11, 12, 13};
    static const struct shape shape = {1, 4, {40}, {16}, {1}, U32, 0};
    const int32_t corner[5] = {0};
    for (unsigned i = 0; i < sizeof(api); i++) {
        char body[512];
        make_map(&shape);
        struct sg_tensor_map wanted = map;
        wanted.type = api[i];
        wanted.swizzle = 3;
        memcpy(box, &map, sizeof(map));
        snprintf(
            body, sizeof(body),
            REPLACE("elemtype", "b32", "%u") REPLACE(
                "swizzle_mode", "b32",
                "3") "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
                     "[%%map], [sv], 128;",
            i);
        cr_assert_eq(run_tensor(body, corner), 0);
        cr_expect_eq(memcmp(&map, &wanted, sizeof(map)), 0, "type %u", i);
    }
}
