/*
 * linking.c - programs that link device code in less usual ways: fat binaries by the wrapper that nvcc puts around them, small
 * and large ones, alone and with objects that are still to be linked; those in objects and libraries of host code; sizes that do not
 * fit; a linker state that one thread adds to, from another context than the state's, while another thread destroys that; and states
 * and contexts that are made while an earlier call's failure is not known yet.
 *
 *   linking all
 */
#include "tests/fidelity/must.h"

#include <elf.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call) printf("%s: %d\n", #call, (int)(call))

enum { ROUNDS = 12, OBJECTS = 40 };

static const char kernel[] =
    ".version 7.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry %s(.param .u64 p, .param .u32 v)\n{\n"
    ".reg .b64 %%rd<2>;\n.reg .b32 %%r<2>;\n"
    "ld.param.u64 %%rd1, [p];\nld.param.u32 %%r1, [v];\nst.global.u32 [%%rd1], %%r1;\n"
    "ret;\n}\n// %u\n";

/* As in a program that nvcc has made. */
struct wrapper {
    uint32_t magic, version;
    const void *container;
    const void *const *objects;
};

struct container {
    uint32_t magic;
    uint16_t version, header_size;
    uint64_t size;
    uint16_t kind, entry_version;
    uint32_t entry_header;
    uint64_t payload, unused[2], names, flags, unused_end[2];
    char text[];
};

/* A fat binary of one kernel, no other like it, with so many blanks behind it; `kind`: 1 for PTX. */
static struct container *fat_binary(const char *name, size_t blanks, uint16_t kind, size_t *size)
{
    static unsigned number;
    const size_t payload = (sizeof kernel + strlen(name) + 20 + blanks + 7) & ~(size_t)7;
    struct container *made = calloc(1, sizeof *made + payload);
    if (!made)
        exit(1);
    const int length = snprintf(made->text, payload, kernel, name, number++);
    memset(made->text + length, ' ', blanks);
    *made = (struct container){.magic = 0xba55ed50,
                               .version = 1,
                               .header_size = 16,
                               .size = sizeof *made - 16 + payload,
                               .kind = kind,
                               .entry_version = 0x0101,
                               .entry_header = 64,
                               .payload = payload,
                               .flags = 0x11};
    *size = sizeof *made + payload;
    return made;
}

static void launch(const void *image, const char *name, int value)
{
    CUmodule module;
    CUfunction function;
    CUdeviceptr memory;
    int result = -1;
    void *parameters[] = {&memory, &value};
    CHECK(cuModuleLoadData(&module, image));
    CHECK(cuModuleGetFunction(&function, module, name));
    CHECK(cuMemAlloc_v2(&memory, sizeof result));
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    CHECK(cuMemcpyDtoH_v2(&result, memory, sizeof result));
    CHECK(cuMemFree_v2(memory));
    CHECK(cuModuleUnload(module));
    printf("%s: %d\n", name, result);
}

/* --- fat binaries ---------------------------------------------------------------------------------------------------- */

static void link_one(CUjitInputType type, void *data, size_t size, const char *name)
{
    CUlinkState state;
    void *image;
    size_t image_size;
    CHECK(cuLinkCreate_v2(0, NULL, NULL, &state));
    TRY(cuLinkAddData_v2(state, type, data, size, name, 0, NULL, NULL));
    CUresult result = cuLinkComplete(state, &image, &image_size);
    printf("complete: %d\n", (int)result);
    if (result == CUDA_SUCCESS)
        launch(image, name, (int)strlen(name));
    CHECK(cuLinkDestroy(state));
}

static void wrapped(const char *name, size_t blanks)
{
    size_t size;
    struct container *container = fat_binary(name, blanks, 1, &size);
    struct wrapper wrapper = {0x466243b1, 1, container, NULL};
    link_one(CU_JIT_INPUT_FATBINARY, &wrapper, sizeof wrapper, name);
    link_one(CU_JIT_INPUT_FATBINARY, container, size, name);
    wrapper.version = 2;
    link_one(CU_JIT_INPUT_FATBINARY, &wrapper, sizeof wrapper, name);
    free(container);
}

/* What the device linker of nvcc leaves: machine code, and the objects that it was made of. */
static void objects_behind(void)
{
    size_t size;
    struct container *code = fat_binary("none", 0, 2, &size), *first = fat_binary("first_part", 0, 1, &size),
                     *second = fat_binary("second_part", 100000, 1, &size);
    const void *objects[] = {first, second, NULL};
    struct wrapper wrapper = {0x466243b1, 2, code, objects};
    link_one(CU_JIT_INPUT_FATBINARY, &wrapper, sizeof wrapper, "second_part");
    link_one(CU_JIT_INPUT_FATBINARY, &wrapper, sizeof wrapper, "first_part");
    free(code);
    free(first);
    free(second);
}

/* --- objects and libraries of host code ------------------------------------------------------------------------------ */

static const char names[] = "\0.names\0__nv_relfatbin\0.text";

/* An object as nvcc -dc makes it: a section of fat binaries, here two, and one of the host's. */
static unsigned char *object(const char *first, const char *second, size_t *size)
{
    enum { NAMES = 64, TEXT = 128, CODE = 136, SECTIONS = 4 };
    size_t a, b;
    struct container *one = fat_binary(first, 0, 1, &a), *two = fat_binary(second, 100, 1, &b);
    const size_t headers = CODE + a + 8 + b; /* with padding between them */
    *size = headers + SECTIONS * sizeof(Elf64_Shdr);
    unsigned char *made = calloc(1, *size);
    if (!made)
        exit(1);
    const Elf64_Ehdr header = {.e_ident = ELFMAG "\2\1\1",
                               .e_type = ET_REL,
                               .e_machine = EM_X86_64,
                               .e_version = 1,
                               .e_shoff = headers,
                               .e_ehsize = sizeof header,
                               .e_shentsize = sizeof(Elf64_Shdr),
                               .e_shnum = SECTIONS,
                               .e_shstrndx = 1};
    const Elf64_Shdr sections[SECTIONS] = {
        {0},
        {.sh_name = 1, .sh_type = SHT_STRTAB, .sh_offset = NAMES, .sh_size = sizeof names},
        {.sh_name = 23, .sh_type = SHT_PROGBITS, .sh_offset = TEXT, .sh_size = 8},
        {.sh_name = 8, .sh_type = SHT_PROGBITS, .sh_offset = CODE, .sh_size = headers - CODE}};
    memcpy(made, &header, sizeof header);
    memcpy(made + NAMES, names, sizeof names);
    memcpy(made + CODE, one, a);
    memcpy(made + CODE + a + 8, two, b);
    memcpy(made + headers, sections, sizeof sections);
    free(one);
    free(two);
    return made;
}

/* Appends a member to a library of `at` bytes; how many it has then. */
static size_t append(unsigned char *library, size_t at, const char *name, const void *data, size_t size)
{
    char header[61];
    snprintf(header, sizeof header, "%-16s%-12d%-6d%-6d%-8d%-10zu`\n", name, 0, 0, 0, 644, size);
    memcpy(library + at, header, 60);
    memcpy(library + at + 60, data, size);
    return at + 60 + size + size % 2;
}

static void link_well(CUjitInputType type, void *data, size_t size, const char *name)
{
    CUlinkState state;
    void *image;
    size_t image_size;
    CHECK(cuLinkCreate_v2(0, NULL, NULL, &state));
    CHECK(cuLinkAddData_v2(state, type, data, size, name, 0, NULL, NULL));
    CHECK(cuLinkComplete(state, &image, &image_size));
    launch(image, name, (int)strlen(name));
    CHECK(cuLinkDestroy(state));
}

static void host_code(void)
{
    size_t a, b, size;
    unsigned char *one = object("of_host", "beside_it", &a), *two = object("in_a_library", "at_its_end", &b);
    unsigned char *library = calloc(1, a + b + 1000);
    if (!library)
        exit(1);
    memcpy(library, "!<arch>\n", 8);
    size = append(library, 8, "/", "symbols", 7);
    size = append(library, size, "one.o/", one, a);
    size = append(library, size, "text.o/", "no object", 9);
    size = append(library, size, "two.o/", two, b);
    link_well(CU_JIT_INPUT_OBJECT, one, a, "of_host");
    link_well(CU_JIT_INPUT_OBJECT, one, a, "beside_it");
    link_well(CU_JIT_INPUT_LIBRARY, library, size, "beside_it");
    link_well(CU_JIT_INPUT_LIBRARY, library, size, "at_its_end");
    link_one(CU_JIT_INPUT_LIBRARY, library, size - 10, "cut off");
    link_one(CU_JIT_INPUT_LIBRARY, library, 75, "without objects");
    link_one(CU_JIT_INPUT_OBJECT, one, a - 10, "without its last section");
    free(one);
    free(two);
    free(library);
}

static void wrong(void)
{
    size_t size;
    struct container *container = fat_binary("unused", 0, 1, &size);
    struct wrapper wrapper = {0x466243b1, 1, container, NULL};
    link_one(CU_JIT_INPUT_FATBINARY, &wrapper, 8, "half a wrapper");
    link_one(CU_JIT_INPUT_CUBIN, &wrapper, sizeof wrapper, "no cubin");
    link_one(CU_JIT_INPUT_OBJECT, &wrapper, sizeof wrapper, "no object");
    link_one(CU_JIT_INPUT_LIBRARY, &wrapper, sizeof wrapper, "no library");
    link_one(CU_JIT_NUM_INPUT_TYPES, container, size, "no type");
    link_one(CU_JIT_INPUT_FATBINARY, container, 8, "half a header");
    link_one(CU_JIT_INPUT_FATBINARY, container, size - 1, "not all of it");
    wrapper.container = NULL;
    link_one(CU_JIT_INPUT_FATBINARY, &wrapper, sizeof wrapper, "around nothing");
    wrapper.container = container;
    container->version = 9;
    link_one(CU_JIT_INPUT_FATBINARY, &wrapper, sizeof wrapper, "around nonsense");
    free(container);
}

/* --- two contexts ------------------------------------------------------------------------------------------------------ */

static CUcontext own, other;
static CUlinkState shared;
static pthread_barrier_t turn;

/* Adds to the state as long as it is there. */
static void *add(void *unused)
{
    size_t size;
    CHECK(cuCtxSetCurrent(own));
    for (int i = 0; i < ROUNDS; i++) {
        struct container *container = fat_binary("added", 150000, 1, &size);
        struct wrapper wrapper = {0x466243b1, 1, container, NULL};
        (void)pthread_barrier_wait(&turn);
        const CUresult result = cuLinkAddData_v2(shared, CU_JIT_INPUT_FATBINARY, &wrapper, sizeof wrapper,
                                                 "added", 0, NULL, NULL);
        printf("%s", result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_HANDLE ? "" : "neither\n");
        free(container);
        (void)pthread_barrier_wait(&turn);
    }
    return unused;
}

/* Makes and ends so many objects that the handles of those that have ended are used again. */
static void churn(void)
{
    CUstream streams[OBJECTS];
    CUevent events[OBJECTS];
    for (int i = 0; i < OBJECTS; i++) {
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        CHECK(cuEventCreate(&events[i], 0));
        CHECK(cuEventRecord(events[i], streams[i]));
    }
    CHECK(cuCtxSynchronize());
    for (int i = 0; i < OBJECTS; i++) {
        CHECK(cuEventDestroy_v2(events[i]));
        CHECK(cuStreamDestroy_v2(streams[i]));
    }
}

static void two_contexts(void)
{
    pthread_t thread;
    CUcontext none;
    CUstream stream;
    CUevent event;
    pthread_barrier_init(&turn, NULL, 2);
    if (pthread_create(&thread, NULL, add, NULL) != 0)
        exit(1);
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(cuCtxCreate_v2(&other, 0, 0));
        CHECK(cuLinkCreate_v2(0, NULL, NULL, &shared));
        CHECK(cuStreamCreate(&stream, 0));
        CHECK(cuEventCreate(&event, 0));
        (void)pthread_barrier_wait(&turn);
        CHECK(cuCtxDestroy_v2(other));
        CHECK(cuCtxSetCurrent(own));
        churn();
        (void)pthread_barrier_wait(&turn);
        CHECK(cuLinkDestroy(shared));
        CHECK(cuStreamDestroy_v2(stream));
        CHECK(cuEventDestroy_v2(event));
        churn();
    }
    pthread_join(thread, NULL);
    /* a state needs no context to be destroyed in */
    for (int i = 0; i < 3; i++) {
        CHECK(cuLinkCreate_v2(0, NULL, NULL, &shared));
        CHECK(cuCtxPopCurrent_v2(&none));
        TRY(cuLinkDestroy(shared));
        TRY(cuLinkDestroy(shared));
        CHECK(cuCtxPushCurrent_v2(own));
        churn();
    }
    TRY(cuCtxSynchronize());
}

/* What is made is there, also where an earlier call turns out to have failed: its handle stands for nothing else. */
static void late_failures(void)
{
    CUdeviceptr memory;
    CUstream stream;
    CUcontext made;
    CHECK(cuStreamCreate(&stream, 0));
    for (int i = 0; i < 4; i++) {
        CHECK(cuMemAlloc_v2(&memory, 64));
        (void)cuMemFreeAsync(memory, stream);
        (void)cuMemFreeAsync(memory, stream);
        CHECK(cuLinkCreate_v2(0, NULL, NULL, &shared));
        (void)cuCtxSynchronize();
        churn();
        CHECK(cuLinkDestroy(shared));
        CHECK(cuMemAlloc_v2(&memory, 64));
        (void)cuMemFreeAsync(memory, stream);
        (void)cuMemFreeAsync(memory, stream);
        CHECK(cuCtxCreate_v2(&made, 0, 0));
        (void)cuCtxSynchronize();
        churn();
        CHECK(cuCtxDestroy_v2(made));
        CHECK(cuCtxSetCurrent(own));
    }
    (void)cuCtxSynchronize();
    CHECK(cuStreamDestroy_v2(stream));
    TRY(cuCtxSynchronize());
}

int main(void)
{
    own = use_first_device();
    wrapped("small", 0);
    wrapped("large", 300000);
    wrapped("very_large", 4300000); /* more than one part */
    objects_behind();
    host_code();
    wrong();
    two_contexts();
    late_failures();
    return 0;
}
