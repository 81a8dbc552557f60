/*
 * out_of_order.c - records that take long by themselves stand aside (server/core/out_of_order.c): others'
 * pass them, what they make is there when their answer is, and what they use stays as long. The driver takes
 * as long as the test likes.
 */
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"

#include <pthread.h>
#include <string.h>

static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n";

/* --- a driver whose calls last -------------------------------------------------------------------------- */

static atomic_int ended;

static const CUmodule a_module = (CUmodule)(void *)0x7000;
static const CUfunction a_function = (CUfunction)(void *)0x7100;
static const CUlinkState a_link = (CUlinkState)(void *)0x7200;
static const CUlibrary a_library = (CUlibrary)(void *)0x7300;

static CUresult load(CUmodule *module, const void *image)
{
    CHECK(strncmp(image, ptx, sizeof ptx - 1) == 0);
    stub_pass();
    *module = a_module;
    return CUDA_SUCCESS;
}

static CUresult load_library(CUlibrary *library, const void *code, CUjit_option *options, void **values,
                             unsigned n, CUlibraryOption *library_options, void **library_values,
                             unsigned n_library)
{
    (void)code, (void)options, (void)values, (void)n, (void)library_options, (void)library_values,
        (void)n_library;
    stub_pass();
    *library = a_library;
    return CUDA_SUCCESS;
}

static CUresult get_function(CUfunction *function, CUmodule module, const char *name)
{
    CHECK(module == a_module);
    stub_pass();
    *function = a_function;
    return strcmp(name, "name") == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND; /* it is read now */
}

static CUresult get_kernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    CHECK(library == a_library && strcmp(name, "name") == 0);
    *kernel = (CUkernel)(void *)0x7400;
    return CUDA_SUCCESS;
}

static CUresult function_of(CUfunction *function, CUkernel kernel)
{
    CHECK(kernel == (CUkernel)(void *)0x7400);
    stub_pass();
    *function = a_function;
    return CUDA_SUCCESS;
}

static CUresult unload(CUmodule module)
{
    CHECK(module == a_module && atomic_fetch_add(&ended, 1) == 0);
    return CUDA_SUCCESS;
}

static CUresult link_create(unsigned n, CUjit_option *options, void **values, CUlinkState *state)
{
    (void)n, (void)options, (void)values;
    *state = a_link;
    return CUDA_SUCCESS;
}

static CUresult link_complete(CUlinkState state, void **cubin, size_t *size)
{
    CHECK(state == a_link);
    stub_pass();
    CHECK(atomic_load(&ended) == 0);
    *cubin = (void *)(uintptr_t)ptx;
    *size = sizeof ptx;
    return CUDA_SUCCESS;
}

static CUresult link_destroy(CUlinkState state)
{
    CHECK(state == a_link && atomic_fetch_add(&ended, 1) == 0);
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
    rg_driver.cuModuleLoadData = load;
    rg_driver.cuLibraryLoadData = load_library;
    rg_driver.cuModuleGetFunction = get_function;
    rg_driver.cuLibraryGetKernel = get_kernel;
    rg_driver.cuKernelGetFunction = function_of;
    rg_driver.cuModuleUnload = unload;
    rg_driver.cuLinkCreate_v2 = link_create;
    rg_driver.cuLinkComplete = link_complete;
    rg_driver.cuLinkDestroy = link_destroy;
    rg_driver.cuDevicePrimaryCtxRelease_v2 = release_context;
    atomic_store(&ended, 0);
}

/* --- sessions ------------------------------------------------------------------------------------------- */

static struct client *begin(void)
{
    use_driver();
    struct client *c = client_create();
    enter_context(c);
    put(c, RG_OP_rgThreadSetContext, 1, 0, "8", handle(RG_KIND_CONTEXT, 0));
    put(c, RG_OP_rgThreadSetContext, 2, 0, "8", handle(RG_KIND_CONTEXT, 0));
    return c;
}

static uint64_t send_image(struct client *c)
{
    static uint64_t id = 500;
    id++;
    put(c, RG_OP_rgImageData, 0, 0, "8888", id, (uint64_t)sizeof ptx, (uint64_t)0, (uint64_t)sizeof ptx);
    send_bulk(c, ptx, sizeof ptx);
    return id;
}

static void put_load(struct client *c, uint32_t token, uint64_t made)
{
    put(c, RG_OP_rgModuleLoad, 0, token, "8488888", send_image(c), 0, (uint64_t)0, (uint64_t)0, made,
        (uint64_t)0, (uint64_t)0);
}

static void put_library_load(struct client *c, uint32_t token, uint64_t made)
{
    put(c, RG_OP_rgLibraryLoad, 0, token, "8448888888", send_image(c), 0, 0, (uint64_t)0, (uint64_t)0, made,
        (uint64_t)0, (uint64_t)0, (uint64_t)0, (uint64_t)0);
}

static void put_get(struct client *c, uint32_t thread, uint32_t token, uint64_t made, uint64_t module)
{
    put(c, RG_OP_rgModuleGetFunction, thread, token, "88s", made, module, "name");
}

/* What was put last is being executed, and others' records pass. */
static void begin_aside(struct client *c, unsigned n)
{
    stub_hold(true);
    await(c);
    send_batch(c);
    stub_wait_held(n);
    CALL(c, RG_OP_cuEventCreate, 1, CUDA_SUCCESS, "48", 0, handle(RG_KIND_EVENT, (uint32_t)(100 + c->seq)));
}

/*
 * What was put last ends something that a record standing aside uses: it waits for that, and then both
 * succeed.
 */
static void expect_to_wait(struct client *c)
{
    send_batch(c);
    expect_nothing(c);
    CHECK(atomic_load(&ended) == 0);
    stub_hold(false);
    for (int i = 0; i < 2; i++)
        CHECK(receive(c, 20000) && c->got.kind == RG_MESSAGE_REPLY && c->got.reply.result == CUDA_SUCCESS);
    CHECK(atomic_load(&ended) == 1);
}

static void test_load(void)
{
    struct client *c = begin();
    const uint64_t module = handle(RG_KIND_MODULE, 7), function = handle(RG_KIND_FUNCTION, 8);
    put_load(c, 5, module);
    begin_aside(c, 1);
    CALL(c, RG_OP_rgModuleGetFunction, 1, CUDA_ERROR_INVALID_HANDLE, "88s", function, module, "name");
    stub_hold(false);
    expect_reply(c, 5, CUDA_SUCCESS);
    CALL(c, RG_OP_rgModuleGetFunction, 1, CUDA_SUCCESS, "88s", function, module, "name");
    CALL(c, RG_OP_rgModuleGetFunction, 0, CUDA_ERROR_NOT_FOUND, "88s", handle(RG_KIND_FUNCTION, 9), module,
         "none");
    CHECK(client_destroy(c) == 0);
}

/* A record that its client thread sends others behind stays in its place. */
static void test_in_its_place(void)
{
    struct client *c = begin();
    const uint64_t module = handle(RG_KIND_MODULE, 7);
    stub_hold(true);
    put_load(c, 5, module);
    put_get(c, 0, 6, handle(RG_KIND_FUNCTION, 8), module);
    send_batch(c);
    stub_wait_held(1);
    put(c, RG_OP_cuEventCreate, 1, 7, "48", 0, handle(RG_KIND_EVENT, 9));
    send_batch(c);
    expect_nothing(c);
    stub_hold(false);
    expect_reply(c, 5, CUDA_SUCCESS);
    expect_reply(c, 6, CUDA_SUCCESS);
    expect_reply(c, 7, CUDA_SUCCESS);
    CHECK(client_destroy(c) == 0);
}

/* What two find at the same time has one handle. */
static void test_found(void)
{
    struct client *c = begin();
    const uint64_t library = handle(RG_KIND_LIBRARY, 7), kernel = handle(RG_KIND_KERNEL, 8);
    put_library_load(c, 5, library);
    begin_aside(c, 1);
    stub_hold(false);
    expect_reply(c, 5, CUDA_SUCCESS);
    CALL(c, RG_OP_rgLibraryGetKernel, 1, CUDA_SUCCESS, "88s", kernel, library, "name");
    put(c, RG_OP_rgKernelGetFunction, 0, 6, "88", handle(RG_KIND_FUNCTION, 9), kernel);
    begin_aside(c, 1);
    put(c, RG_OP_rgKernelGetFunction, 2, 7, "88", handle(RG_KIND_FUNCTION, 10), kernel);
    begin_aside(c, 2);
    stub_hold(false);
    uint64_t found[2];
    for (int i = 0; i < 2; i++) {
        CHECK(receive(c, 20000) && c->got.kind == RG_MESSAGE_REPLY && c->got.reply.result == CUDA_SUCCESS);
        found[i] = output_u64(c);
    }
    CHECK(found[0] == found[1]);
    CALL(c, RG_OP_rgKernelGetFunction, 1, CUDA_SUCCESS, "88", handle(RG_KIND_FUNCTION, 11), kernel);
    CHECK(output_u64(c) == found[0]);
    CHECK(client_destroy(c) == 0);
}

/*
 * A module does not end while a function is looked up in it; then the function has ended too, and what else
 * it has.
 */
static void test_unload(void)
{
    struct client *c = begin();
    const uint64_t module = handle(RG_KIND_MODULE, 7), function = handle(RG_KIND_FUNCTION, 8);
    put_load(c, 5, module);
    send_batch(c);
    expect_reply(c, 5, CUDA_SUCCESS);
    CALL(c, RG_OP_cuModuleGetTexRef, 0, CUDA_SUCCESS, "88s", handle(RG_KIND_TEXREF, 9), module, "name");
    CALL(c, RG_OP_cuTexRefSetFlags, 0, CUDA_SUCCESS, "48", 0, handle(RG_KIND_TEXREF, 9));
    put_get(c, 0, 6, function, module);
    begin_aside(c, 1);
    put(c, RG_OP_cuModuleUnload, 1, 7, "8", module);
    expect_to_wait(c);
    CALL(c, RG_OP_cuFuncLoad, 1, CUDA_ERROR_INVALID_HANDLE, "8", function);
    CALL(c, RG_OP_cuTexRefSetFlags, 1, CUDA_ERROR_INVALID_HANDLE, "48", 0, handle(RG_KIND_TEXREF, 9));
    CHECK(client_destroy(c) == 0);
}

/* Nor does a context while something is loaded into it. */
static void test_context(void)
{
    struct client *c = begin();
    const uint64_t module = handle(RG_KIND_MODULE, 7);
    put_load(c, 5, module);
    begin_aside(c, 1);
    put(c, RG_OP_cuDevicePrimaryCtxRelease_v2, 1, 7, "4", 0);
    expect_to_wait(c);
    CALL(c, RG_OP_cuLibraryUnload, 1, CUDA_ERROR_INVALID_HANDLE, "8", handle(RG_KIND_LIBRARY, 7));
    CALL(c, RG_OP_cuDevicePrimaryCtxRetain, 1, CUDA_SUCCESS, "48", 0, handle(RG_KIND_CONTEXT, 3));
    put(c, RG_OP_rgThreadSetContext, 1, 0, "8", handle(RG_KIND_CONTEXT, 3));
    CALL(c, RG_OP_cuModuleUnload, 1, CUDA_ERROR_INVALID_HANDLE, "8", module);
    CHECK(client_destroy(c) == 0);
}

/*
 * Nor the module's own context, where the client thread of who uses it has another; and what was found in it
 * ends with it.
 */
static void test_other_context(void)
{
    struct client *c = begin();
    const uint64_t module = handle(RG_KIND_MODULE, 7), function = handle(RG_KIND_FUNCTION, 8);
    put_load(c, 5, module);
    send_batch(c);
    expect_reply(c, 5, CUDA_SUCCESS);
    CALL(c, RG_OP_cuCtxCreate_v2, 2, CUDA_SUCCESS, "448", 0, 0, handle(RG_KIND_CONTEXT, 3));
    put(c, RG_OP_rgThreadSetContext, 2, 0, "8", handle(RG_KIND_CONTEXT, 3));
    put_get(c, 2, 6, function, module);
    begin_aside(c, 1);
    put(c, RG_OP_cuDevicePrimaryCtxRelease_v2, 1, 7, "4", 0);
    expect_to_wait(c);
    CALL(c, RG_OP_cuFuncLoad, 2, CUDA_ERROR_INVALID_HANDLE, "8", function);
    CHECK(client_destroy(c) == 0);
}

/* Nor a linker state while it links, whose logs are ours. */
static void test_link(void)
{
    struct client *c = begin();
    const uint64_t state = handle(RG_KIND_LINK, 7);
    CALL(c, RG_OP_rgLinkCreate, 0, CUDA_SUCCESS, "488888", 0, (uint64_t)100, (uint64_t)100, state,
         (uint64_t)0, (uint64_t)0);
    put(c, RG_OP_rgLinkComplete, 0, 6, "8", state);
    begin_aside(c, 1);
    put(c, RG_OP_cuLinkDestroy, 1, 7, "8", state);
    expect_to_wait(c);
    CHECK(client_destroy(c) == 0);
}

/* The client has said that nothing would follow. */
static void test_violation(void)
{
    struct client *c = begin();
    put_load(c, 5, handle(RG_KIND_MODULE, 7));
    begin_aside(c, 1);
    put(c, RG_OP_cuEventCreate, 0, 0, "48", 0, handle(RG_KIND_EVENT, 9));
    send_batch(c);
    CHECK(receive(c, 20000) && c->got.kind == RG_MESSAGE_CONTROL &&
          strstr((char *)c->got.output, "another call"));
    stub_hold(false);
    CHECK(client_destroy(c) == 1);
}

/* A handle that is in use is found out when what was made for it is entered. */
static void test_handle_in_use(void)
{
    struct client *c = begin();
    const uint64_t module = handle(RG_KIND_MODULE, 7);
    put_load(c, 5, module);
    begin_aside(c, 1);
    stub_hold(false);
    expect_reply(c, 5, CUDA_SUCCESS);
    put_load(c, 6, module);
    begin_aside(c, 1);
    stub_hold(false);
    expect_reply(c, 6, CUDA_SUCCESS);
    put(c, RG_OP_cuEventCreate, 1, 0, "48", 0, handle(RG_KIND_EVENT, 9));
    send_batch(c);
    expect_violation(c, "in use");
}

static void *open_at_the_end(void *worker)
{
    while (!rg_worker_over(worker))
        usleep(1000);
    stub_hold(false);
    return NULL;
}

/* The client goes away meanwhile. */
static void test_left(void)
{
    struct client *c = begin();
    pthread_t thread;
    put_library_load(c, 5, handle(RG_KIND_LIBRARY, 7));
    begin_aside(c, 1);
    CHECK(pthread_create(&thread, NULL, open_at_the_end, c->worker) == 0);
    CHECK(client_destroy(c) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

int main(void)
{
    test_load();
    test_in_its_place();
    test_found();
    test_unload();
    test_context();
    test_other_context();
    test_link();
    test_violation();
    test_handle_in_use();
    test_left();
    return 0;
}
