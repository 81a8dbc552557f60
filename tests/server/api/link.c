/*
 * link.c - the linker on the worker: what a driver is given of the bytes that a client sends, whatever it
 * says that they are, and what goes with a linker state while a record that adds to it waits for its bytes.
 * The driver is the test's own; meant for the address sanitizer.
 */
#include "common/cache/digest.h"
#include "common/cuda/image.h"
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

#include <elf.h>
#include <stdatomic.h>
#include <string.h>

static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n";

/* --- a driver that links -------------------------------------------------------------------------------- */

static atomic_uint added, destroyed, ended;
static unsigned given_type;
static size_t given_size;
static unsigned char given[512]; /* the first bytes of what was added last */
static char *log_of[4];          /* of the states: where the driver writes what it has to say */
static void **size_of_log[4];    /* and how long that is, as long as the state lives */
static size_t n_states;

static CUresult link_create(unsigned n, CUjit_option *options, void **values, CUlinkState *state)
{
    CHECK(n_states < sizeof log_of / sizeof log_of[0]);
    for (unsigned i = 0; i < n; i++)
        if (options[i] == CU_JIT_INFO_LOG_BUFFER)
            log_of[n_states] = values[i];
        else if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES)
            size_of_log[n_states] = &values[i];
    *state = (CUlinkState)(void *)(0x7200 + 64 * n_states++);
    return CUDA_SUCCESS;
}

static CUresult link_add(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
                         unsigned n, CUjit_option *options, void **values)
{
    (void)name, (void)n, (void)options, (void)values;
    const size_t index = ((uintptr_t)(void *)state - 0x7200) / 64;
    CHECK(index < n_states && atomic_load(&destroyed) == 0 && atomic_load(&ended) == 0);
    given_type = type;
    given_size = size;
    for (size_t i = 0; i < size; i++) { /* all of it is there */
        const unsigned char byte = ((const unsigned char *)data)[i];
        if (i < sizeof given)
            given[i] = byte;
    }
    if (log_of[index])
        strcpy(log_of[index], "added");
    if (size_of_log[index])
        *size_of_log[index] = (void *)(uintptr_t)sizeof "added";
    atomic_fetch_add(&added, 1);
    return CUDA_SUCCESS;
}

static CUresult link_destroy(CUlinkState state)
{
    CHECK(state);
    atomic_fetch_add(&destroyed, 1);
    return CUDA_SUCCESS;
}

static CUresult release_context(CUdevice device)
{
    CHECK(device == 0);
    atomic_fetch_add(&ended, 1);
    return CUDA_SUCCESS;
}

static void use_driver(void)
{
    stub_driver_use(stub_succeed);
    rg_driver.cuLinkCreate_v2 = link_create;
    rg_driver.cuLinkAddData_v2 = link_add;
    rg_driver.cuLinkDestroy = link_destroy;
    rg_driver.cuDevicePrimaryCtxRelease_v2 = release_context;
    memset(log_of, 0, sizeof log_of);
    n_states = 0;
    atomic_store(&added, 0);
    atomic_store(&destroyed, 0);
    atomic_store(&ended, 0);
}

/* --- sessions ------------------------------------------------------------------------------------------- */

static const uint64_t zero;
static uint64_t state; /* of the session */

static void create_link(struct client *c)
{
    CALL(c, RG_OP_rgLinkCreate, 0, CUDA_SUCCESS, "488888", 0, (uint64_t)100, (uint64_t)100, state, zero,
         zero);
}

/* A session with a linker state in the device's primary context. */
static struct client *begin(void)
{
    use_driver();
    struct client *c = client_create();
    state = handle(RG_KIND_LINK, 7);
    enter_context(c);
    create_link(c);
    return c;
}

static void put_add(struct client *c, uint32_t thread, uint32_t token, unsigned type, uint64_t image)
{
    put(c, RG_OP_rgLinkAdd, thread, token, "4848888", type, image, 0, state, zero, zero, zero);
}

static uint64_t send_image(struct client *c, const void *data, size_t size)
{
    static uint64_t id = 500;
    put(c, RG_OP_rgImageData, 0, 0, "8888", ++id, (uint64_t)size, zero, (uint64_t)size);
    send_bulk(c, data, size);
    return id;
}

/* --- what a driver is given ----------------------------------------------------------------------------- */

struct wrapper {
    uint32_t magic, version;
    const void *container;
    const void *const *prelinked;
};

struct container {
    uint32_t magic;
    uint16_t version, header_size;
    uint64_t size;
    unsigned char payload[48];
};

static const struct container good = {RG_CUDA_CONTAINER_MAGIC, 1, 16, 48, {1, 2, 3}};

static void expect_refused(struct client *c, unsigned type, const void *data, size_t size, CUresult result)
{
    put_add(c, 0, 9, type, send_image(c, data, size));
    send_batch(c);
    expect_reply(c, 9, (int)result);
    CHECK(atomic_load(&added) == 0);
}

static void expect_given(struct client *c, unsigned type, const void *data, size_t size, size_t begins,
                         size_t seen)
{
    put_add(c, 0, 9, type, send_image(c, data, size));
    send_batch(c);
    expect_reply(c, 9, CUDA_SUCCESS);
    CHECK(atomic_exchange(&added, 0) == 1 && given_type == type && given_size == seen);
    const size_t there = size - begins < seen ? size - begins : seen;
    CHECK(memcmp(given, (const char *)data + begins, there < sizeof given ? there : sizeof given) == 0);
}

/* No pointer of the client's means anything here, whatever the bytes are said to be. */
static void test_pointers(void)
{
    static const CUresult said[] = {CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_INVALID_PTX,
                                    CUDA_ERROR_INVALID_IMAGE,     CUDA_ERROR_NO_BINARY_FOR_GPU,
                                    CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU};
    struct client *c = begin();
    struct {
        struct wrapper wrapper;
        struct container container;
    } bytes = {{RG_CUDA_WRAPPER_MAGIC, 1, &good, NULL}, good};
    for (unsigned type = 0; type < 6; type++)
        for (uint32_t version = 0; version < 4; version++) {
            bytes.wrapper.version = version;
            expect_refused(c, type, &bytes, sizeof bytes, said[type]);
            expect_refused(c, type, &bytes, sizeof bytes.wrapper, said[type]);
            expect_refused(c, type, &bytes, 4, said[type]);
        }
    static const uint32_t old[8] = {0x1ee55a01, 4}; /* as wrappers were long ago: pointers, all of it */
    for (unsigned type = 0; type < 6; type++)
        expect_refused(c, type, old, sizeof old, said[type]);
    expect_refused(c, 6, ptx, sizeof ptx, CUDA_ERROR_INVALID_VALUE);
    expect_refused(c, UINT32_MAX, ptx, sizeof ptx, CUDA_ERROR_INVALID_VALUE);
    CHECK(client_destroy(c) == 0);
}

/* What has a size of its own ends where it says, and within the bytes that came. */
static void test_sizes(void)
{
    struct client *c = begin();
    unsigned char bytes[256] = {0};
    memcpy(bytes, &good, sizeof good);
    for (unsigned type = 0; type < 6; type++)
        expect_given(c, type, bytes, sizeof bytes, 0, sizeof good);
    struct container longer = good;
    longer.size = 1u << 20;
    for (unsigned type = 0; type < 6; type++) {
        put_add(c, 0, 9, type, send_image(c, &longer, sizeof longer));
        send_batch(c);
        CHECK(receive(c, 20000) && c->got.kind == RG_MESSAGE_REPLY && c->got.reply.result != CUDA_SUCCESS);
        CHECK(atomic_load(&added) == 0);
    }
    for (size_t size = 4; size < sizeof good;
         size++) /* nor do the zeros that are put behind them belong to it */
        expect_refused(c, CU_JIT_INPUT_FATBINARY, &good, size, CUDA_ERROR_INVALID_IMAGE);
    Elf64_Ehdr cubin = {.e_machine = 190};
    memcpy(cubin.e_ident, ELFMAG, SELFMAG);
    cubin.e_ident[EI_CLASS] = ELFCLASS64;
    cubin.e_ident[EI_DATA] = ELFDATA2LSB;
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, &cubin, sizeof cubin);
    expect_given(c, CU_JIT_INPUT_CUBIN, bytes, sizeof bytes, 0, sizeof cubin);
    cubin.e_shoff = 1u << 20;
    cubin.e_shnum = 9;
    cubin.e_shentsize = sizeof(Elf64_Shdr);
    expect_refused(c, CU_JIT_INPUT_CUBIN, &cubin, sizeof cubin, CUDA_ERROR_NO_BINARY_FOR_GPU);
    expect_refused(c, CU_JIT_INPUT_OBJECT, &cubin, sizeof cubin, CUDA_ERROR_NO_BINARY_FOR_GPU);
    expect_given(c, CU_JIT_INPUT_PTX, ptx, sizeof ptx, 0, sizeof ptx);
    expect_given(c, CU_JIT_INPUT_PTX, ptx, sizeof ptx - 1, 0, sizeof ptx); /* an end of its own */
    CHECK(client_destroy(c) == 0);
}

/*
 * Files of host code have no size of their own; what they may have in them are wrappers that are yet to get
 * an address.
 */
static void test_host_code(void)
{
    struct client *c = begin();
    struct {
        Elf64_Ehdr header;
        unsigned char between[6];
        unsigned char wrapper[sizeof(struct wrapper)];
        char more[50];
    } object = {.header = {.e_type = ET_REL, .e_machine = EM_X86_64}};
    memcpy(object.header.e_ident, ELFMAG, SELFMAG);
    object.header.e_ident[EI_CLASS] = ELFCLASS64;
    object.header.e_ident[EI_DATA] = ELFDATA2LSB;
    struct wrapper wrapper = {RG_CUDA_WRAPPER_MAGIC, 1, NULL, NULL};
    memcpy(object.wrapper, &wrapper, sizeof wrapper);
    expect_given(c, CU_JIT_INPUT_OBJECT, &object, sizeof object, 0, sizeof object);
    object.header.e_shoff = 1ull << 40; /* its sections are elsewhere in the process that reads them */
    object.header.e_shentsize = sizeof(Elf64_Shdr);
    expect_refused(c, CU_JIT_INPUT_OBJECT, &object, sizeof object, CUDA_ERROR_NO_BINARY_FOR_GPU);
    object.header.e_shoff = 0;
    wrapper.container = &good;
    memcpy(object.wrapper, &wrapper, sizeof wrapper);
    expect_refused(c, CU_JIT_INPUT_OBJECT, &object, sizeof object, CUDA_ERROR_NO_BINARY_FOR_GPU);
    wrapper = (struct wrapper){RG_CUDA_WRAPPER_MAGIC, 2, NULL, (const void *const *)&object};
    memcpy(object.wrapper, &wrapper, sizeof wrapper);
    expect_refused(c, CU_JIT_INPUT_LIBRARY, &object, sizeof object, CUDA_ERROR_NO_BINARY_FOR_GPU);
    expect_refused(c, CU_JIT_INPUT_FATBINARY, &object, sizeof object, CUDA_ERROR_INVALID_IMAGE);

    static const char archive[] = "!<arch>\nsome members\0and more",
                      thin[] = "!<thin>\n/etc/passwd/ and so on";
    expect_given(c, CU_JIT_INPUT_LIBRARY, archive, sizeof archive, 0, sizeof archive);
    struct {
        char head[8];
        uint64_t magic, version, more[4];
    } older = {
        .head = "!<arch>\n", .magic = 0x1ee55a01, .version = 4}; /* with a member that is made of pointers */
    expect_refused(c, CU_JIT_INPUT_LIBRARY, &older, sizeof older, CUDA_ERROR_NO_BINARY_FOR_GPU);
    expect_refused(c, CU_JIT_INPUT_LIBRARY, thin, sizeof thin, CUDA_ERROR_NO_BINARY_FOR_GPU);
    expect_refused(c, CU_JIT_INPUT_OBJECT, thin, sizeof thin, CUDA_ERROR_NO_BINARY_FOR_GPU);
    static const unsigned char bitcode[] = {0xed, 0x43, 0x4e, 0x7f, 1, 2, 3, 4, 5};
    expect_given(c, CU_JIT_INPUT_NVVM, bitcode, sizeof bitcode, 0, sizeof bitcode);
    CHECK(client_destroy(c) == 0);
}

/* Containers of objects that are still to be linked: the pointers to them are the worker's own. */
static void test_parts(void)
{
    struct client *c = begin();
    struct container two[2] = {good, good};
    two[1].payload[0] = 77;
    const uint64_t image = send_image(c, two, sizeof two), offset = sizeof good;
    CALL(c, RG_OP_rgImageParts, 0, CUDA_SUCCESS, "8488", image, 1, (uint64_t)1, offset);
    put_add(c, 0, 9, CU_JIT_INPUT_FATBINARY, image);
    send_batch(c);
    expect_reply(c, 9, CUDA_SUCCESS);
    struct wrapper wrapper;
    CHECK(given_size == sizeof wrapper);
    memcpy(&wrapper, given, sizeof wrapper);
    CHECK(wrapper.magic == RG_CUDA_WRAPPER_MAGIC && wrapper.version == 2 && wrapper.container &&
          wrapper.prelinked);

    struct { /* what is no container has no objects behind it */
        char text[64];
        struct container container;
    } other = {.container = good};
    strcpy(other.text, ptx);
    const uint64_t mixed = send_image(c, &other, sizeof other);
    CALL(c, RG_OP_rgImageParts, 0, CUDA_SUCCESS, "8488", mixed, 1, (uint64_t)1, (uint64_t)64);
    put_add(c, 0, 9, CU_JIT_INPUT_FATBINARY, mixed);
    send_batch(c);
    expect_reply(c, 9, CUDA_ERROR_INVALID_IMAGE);
    const uint64_t none = send_image(c, ptx, sizeof ptx);
    CALL(c, RG_OP_rgImageParts, 0, CUDA_ERROR_INVALID_IMAGE, "848", none, 0, zero);
    CHECK(client_destroy(c) == 0);
}

/* --- while bytes are waited for ------------------------------------------------------------------------- */

/*
 * A record of client thread 2, whose context is another, adds to the state and stands aside until the bytes
 * of its image come.
 */
static void begin_waiting(struct client *c)
{
    const struct rg_digest digest = rg_digest_of_bytes(&(struct rg_digest_part){ptx, sizeof ptx}, 1);
    CALL(c, RG_OP_cuCtxCreate_v2, 2, CUDA_SUCCESS, "448", 0, 0, handle(RG_KIND_CONTEXT, 9));
    put(c, RG_OP_rgThreadSetContext, 2, 0, "8", handle(RG_KIND_CONTEXT, 9));
    put(c, RG_OP_rgThreadSetContext, 1, 0, "8", handle(RG_KIND_CONTEXT, 9));
    put(c, RG_OP_rgImageNamed, 2, 0, "888b", (uint64_t)1, (uint64_t)sizeof ptx, (uint64_t)5, digest.bytes,
        sizeof digest.bytes);
    put_add(c, 2, 8, CU_JIT_INPUT_PTX, 1);
    await(c);
    send_batch(c);
    expect_notice(c, RG_NOTICE_RENDEZVOUS, 5);
    CALL(c, RG_OP_cuEventCreate, 1, CUDA_SUCCESS, "48", 0, handle(RG_KIND_EVENT, 30)); /* others pass */
}

static void send_bytes(struct client *c)
{
    send_answer(c, RG_ANSWER_DATA, 5, 0, ptx, sizeof ptx);
}

/* What was put last waits for the record that waits, and then both succeed. */
static void expect_to_wait(struct client *c)
{
    send_batch(c);
    expect_nothing(c);
    CHECK(atomic_load(&added) == 0 && atomic_load(&destroyed) == 0 && atomic_load(&ended) == 0);
    send_bytes(c);
    for (int i = 0; i < 2; i++)
        CHECK(receive(c, 20000) && c->got.kind == RG_MESSAGE_REPLY && c->got.reply.result == CUDA_SUCCESS);
    CHECK(atomic_load(&added) == 1);
}

static void test_own_context(void)
{
    struct client *c = begin();
    begin_waiting(c);
    put(c, RG_OP_cuDevicePrimaryCtxRelease_v2, 1, 7, "4", 0);
    expect_to_wait(c);
    CHECK(atomic_load(&ended) == 1 &&
          atomic_load(&destroyed) == 1); /* the state has ended with its context */
    CALL(c, RG_OP_rgLinkComplete, 1, CUDA_ERROR_INVALID_HANDLE, "8", state);
    CHECK(client_destroy(c) == 0);

    c = begin(); /* all contexts of the device end at once */
    begin_waiting(c);
    put(c, RG_OP_cuDevicePrimaryCtxReset_v2, 1, 7, "4", 0);
    expect_to_wait(c);
    CHECK(client_destroy(c) == 0);

    c = begin();
    begin_waiting(c);
    put(c, RG_OP_cuLinkDestroy, 1, 7, "8", state);
    expect_to_wait(c);
    CHECK(client_destroy(c) == 0);
}

/* A state, and all that goes with it, is there until the client has ended it. */
static void test_place_in_use(void)
{
    static const enum rg_kind kinds[] = {RG_KIND_STREAM, RG_KIND_EVENT};
    for (unsigned i = 0; i < 2; i++) {
        struct client *c = begin();
        begin_waiting(c);
        put(c, kinds[i] == RG_KIND_STREAM ? RG_OP_cuStreamCreate : RG_OP_cuEventCreate, 1, 0, "48", 0,
            rg_handle_make(kinds[i], 7, 2));
        send_batch(c);
        expect_violation(c, "in use");
    }
    struct client *c = begin();
    CALL(c, RG_OP_cuLinkDestroy, 0, CUDA_SUCCESS, "8", state);
    atomic_store(&destroyed, 0);
    state = rg_handle_make(RG_KIND_LINK, 7, 2);
    create_link(c);
    CHECK(client_destroy(c) == 0);
}

/* A record that ends the session does not end the state before: the driver's is given back with all others. */
static void test_violation(void)
{
    struct client *c = begin();
    atomic_store(&destroyed, 0);
    put(c, RG_OP_cuLinkDestroy, 0, 0, "88", state, (uint64_t)0);
    send_batch(c);
    expect_violation(c, "too many bytes");
    CHECK(atomic_load(&destroyed) == 1);
}

int main(void)
{
    setenv("REMOTE_GPU_IMAGE_CACHE", "off", 1);
    test_pointers();
    test_sizes();
    test_host_code();
    test_parts();
    test_own_context();
    test_place_in_use();
    test_violation();
    return 0;
}
