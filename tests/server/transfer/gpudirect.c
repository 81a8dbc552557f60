/*
 * gpudirect.c - bulk data straight to and from the GPU's memory (server/transfer/gpudirect.h), over a driver
 * and a transport of the test's own: which way is taken, what is done when a step of it fails, and that
 * registrations end before the memory does. No GPU and no network device has a part in it.
 */
#include "tests/server/raw_client.h"
#include "tests/server/stub_driver.h"
#include "transport/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#define SIZE  (1u << 20)
#define WHOLE (4u << 20) /* of the one allocation, which does not begin with a page */

/* What driver and transport are like in a test, and what was asked of them. */
static struct setting {
    int dmabuf_supported, rdma_supported, flush;
    unsigned paths;
    CUresult export;
    int refuse_dmabuf, refuse_peer; /* errno of registering */
    bool pool, managed, mapped;     /* the memory is of another kind */
    uint64_t id;                    /* of the memory */
} now;
static char trace[4096];
static unsigned char *device; /* the GPU's memory */
static int exported = -1;
static void *registered;
static size_t registered_size;
static int some_object;

static void __attribute__((format(printf, 1, 2))) note(const char *format, ...)
{
    const size_t used = strlen(trace);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(trace + used, sizeof trace - used, format, arguments);
    va_end(arguments);
}

/* --- the driver ----------------------------------------------------------------------------------------- */

static CUresult device_attribute(int *value, CUdevice_attribute which, CUdevice of)
{
    (void)of;
    *value = which == CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED                      ? now.dmabuf_supported
             : which == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED            ? now.rdma_supported
             : which == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS ? now.flush
                                                                                 : 0;
    return CUDA_SUCCESS;
}
static CUresult address_range(CUdeviceptr *base, size_t *size, CUdeviceptr at)
{
    const CUdeviceptr first = (CUdeviceptr)(uintptr_t)device;
    if (at < first || at >= first + WHOLE)
        return CUDA_ERROR_INVALID_VALUE;
    *base = first;
    *size = WHOLE;
    return CUDA_SUCCESS;
}
static CUresult pointer_attribute(void *out, CUpointer_attribute which, CUdeviceptr at)
{
    (void)at;
    if (which == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
        *(unsigned *)out = CU_MEMORYTYPE_DEVICE;
    else if (which == CU_POINTER_ATTRIBUTE_IS_MANAGED)
        *(unsigned *)out = now.managed;
    else if (which == CU_POINTER_ATTRIBUTE_BUFFER_ID)
        *(unsigned long long *)out = now.id;
    else if (which == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE)
        *(CUmemoryPool *)out = now.pool ? (CUmemoryPool)(void *)&some_object : NULL;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
static CUresult retain_allocation(CUmemGenericAllocationHandle *out, void *at)
{
    (void)at;
    *out = 1;
    return now.mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
static CUresult export_range(void *handle, CUdeviceptr at, size_t size, CUmemRangeHandleType type,
                             unsigned long long flags)
{
    note("export ");
    CHECK(type == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD && flags == 0);
    CHECK(at % 4096 == 0 && size % 4096 == 0); /* as the driver demands */
    CHECK(at <= (uintptr_t)device && at + size >= (uintptr_t)device + WHOLE && size <= WHOLE + 8192);
    if (now.export != CUDA_SUCCESS)
        return now.export;
    exported = open("/dev/null", O_RDWR | O_CLOEXEC);
    CHECK(exported >= 0);
    *(int *)handle = exported;
    return CUDA_SUCCESS;
}
static CUresult copy_in(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    (void)stream;
    if (!strstr(trace, "staged-in "))
        note("staged-in ");
    memcpy((void *)(uintptr_t)to, from, size);
    return CUDA_SUCCESS;
}
static CUresult copy_out(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
    (void)stream;
    if (!strstr(trace, "staged-out "))
        note("staged-out ");
    memcpy(to, (const void *)(uintptr_t)from, size);
    return CUDA_SUCCESS;
}
static CUresult flush_writes(CUflushGPUDirectRDMAWritesTarget target, CUflushGPUDirectRDMAWritesScope scope)
{
    CHECK(target == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX &&
          scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
    note("flush ");
    return CUDA_SUCCESS;
}
static CUresult release(CUdeviceptr at)
{
    CHECK(at == (uintptr_t)device);
    note("free ");
    return CUDA_SUCCESS;
}
static CUresult release_primary(CUdevice of)
{
    (void)of;
    note("context-ends ");
    return CUDA_SUCCESS;
}

static void use_driver(void)
{
    stub_driver_use(stub_succeed);
    rg_driver.cuDeviceGetAttribute = device_attribute;
    rg_driver.cuDevicePrimaryCtxRelease_v2 = release_primary;
    rg_driver.cuMemGetAddressRange_v2 = address_range;
    rg_driver.cuPointerGetAttribute = pointer_attribute;
    rg_driver.cuMemRetainAllocationHandle = retain_allocation;
    rg_driver.cuMemGetHandleForAddressRange = export_range;
    rg_driver.cuFlushGPUDirectRDMAWrites = flush_writes;
    rg_driver.cuMemcpyHtoDAsync_v2 = copy_in;
    rg_driver.cuMemcpyDtoHAsync_v2 = copy_out;
    rg_driver.cuMemFree_v2 = release;
}

/* --- the transport: mem, as if a network device were behind it ------------------------------------------ */

static unsigned fake_paths(struct rg_conn *conn)
{
    (void)conn;
    return now.paths;
}
static enum rg_status fake_register(struct rg_conn *conn, void *base, size_t size, int fd, uint64_t offset)
{
    (void)conn;
    CHECK(offset == 0 && !registered);
    note(fd >= 0 ? "register-dmabuf " : "register-peer ");
    if (fd >= 0)
        CHECK(fd == exported && fcntl(fd, F_GETFD) >= 0);
    else
        CHECK(base == device && size == WHOLE);
    errno = fd >= 0 ? now.refuse_dmabuf : now.refuse_peer;
    if (errno)
        return errno == EOPNOTSUPP ? RG_ERR_UNSUPPORTED : RG_ERR_NO_MEMORY;
    registered = base;
    registered_size = size;
    return RG_OK;
}
static void fake_unregister(struct rg_conn *conn, void *base)
{
    (void)conn;
    if (base != registered)
        return; /* a staging buffer */
    note("unregister ");
    registered = NULL;
}
static bool fake_places(struct rg_conn *conn, const void *memory, size_t size)
{
    (void)conn;
    return registered && (const char *)memory >= (char *)registered &&
           (const char *)memory + size <= (char *)registered + registered_size;
}

static void take_device_memory(struct rg_transport_ops *ops)
{
    ops->device_paths = fake_paths;
    ops->register_device = fake_register;
    ops->unregister_memory = fake_unregister;
    ops->writes_directly = fake_places;
}

/* --- the tests ------------------------------------------------------------------------------------------ */

static struct client *begin(const struct setting *setting, const char *direct)
{
    now = *setting;
    trace[0] = 0;
    if (direct)
        setenv("REMOTE_GPU_DIRECT", direct, 1);
    else
        unsetenv("REMOTE_GPU_DIRECT");
    struct client *c = client_create_with(false, take_device_memory);
    enter_context(c);
    return c;
}

static void put_in(struct client *c, unsigned char value)
{
    static unsigned char data[SIZE];
    memset(data, value, SIZE);
    put(c, RG_OP_rgCopyIn, 0, 0, "888848", (uint64_t)(uintptr_t)device + 512, (uint64_t)SIZE, (uint64_t)SIZE,
        (uint64_t)1, 1, (uint64_t)0);
    send_bulk(c, data, SIZE);
}

static void get_out(struct client *c, unsigned char value)
{
    CALL(c, RG_OP_rgCopyOut, 0, CUDA_SUCCESS, "888888", (uint64_t)(uintptr_t)device + 512, (uint64_t)SIZE,
         (uint64_t)SIZE, (uint64_t)1, (uint64_t)0, (uint64_t)0);
    CHECK(c->got.bulk_size == SIZE && c->got.bulk[0] == value && c->got.bulk[SIZE - 1] == value);
}

static void expect(const char *what, const char *expected)
{
    if (strcmp(trace, expected) != 0) {
        fprintf(stderr, "%s: \"%s\" where \"%s\" was expected\n", what, trace, expected);
        _exit(1);
    }
    CHECK(exported < 0 || fcntl(exported, F_GETFD) < 0); /* what was exported has been closed */
    exported = -1;
}

/* A copy each way, twice, and the end of the memory. */
static void check(const char *what, const struct setting *setting, const char *direct, const char *expected)
{
    struct client *c = begin(setting, direct);
    put_in(c, 1);
    get_out(c, 1);
    put_in(c, 2);
    get_out(c, 2);
    put(c, RG_OP_cuMemFree_v2, 0, 0, "8", (uint64_t)(uintptr_t)device);
    CALL(c, RG_OP_cuCtxSynchronize, 0, CUDA_SUCCESS, "");
    expect(what, expected);
    CHECK(client_destroy(c) == 0);
}

static const struct setting able = {
    .dmabuf_supported = 1, .rdma_supported = 1, .paths = RG_DEVICE_DMABUF | RG_DEVICE_PEER};

static void test_ways(void)
{
    struct setting s = able;
    check("dma-buf", &s, NULL, "export register-dmabuf unregister free ");
    check("dma-buf, as asked for", &s, "dmabuf", "export register-dmabuf unregister free ");
    check("peer memory, as asked for", &s, "peer", "register-peer unregister free ");
    check("staging, as asked for", &s, "staging", "staged-in staged-out free ");
    check("something that is none", &s, "sideways", "staged-in staged-out free ");
    s.flush = CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST;
    check("what was written is made visible", &s, NULL,
          "export register-dmabuf flush flush unregister free ");
}

/*
 * What is missing is not tried. (Whether nvidia_peermem is loaded is this machine's: peer memory is asked for
 * by name.)
 */
static void test_missing(void)
{
    struct setting s = able;
    s.rdma_supported = 0;
    s.paths = 0;
    check("a transport without", &s, NULL, "staged-in staged-out free ");
    check("a transport without, asked for", &s, "peer", "staged-in staged-out free ");
    s.paths = RG_DEVICE_PEER;
    check("a network device without dma-buf", &s, NULL, "staged-in staged-out free ");
    s = able;
    s.dmabuf_supported = s.rdma_supported = 0;
    check("a GPU without", &s, NULL, "staged-in staged-out free ");
    s.rdma_supported = 1;
    check("a GPU without dma-buf, which was asked for", &s, "dmabuf", "staged-in staged-out free ");
    rg_driver.cuMemGetHandleForAddressRange = rg_driver_absent.cuMemGetHandleForAddressRange;
    s = able;
    check("a driver without dma-buf, which was asked for", &s, "dmabuf", "staged-in staged-out free ");
    rg_driver.cuMemGetHandleForAddressRange = export_range;
}

/* Each step fails: the data takes the way through the server's memory, and the step is not tried again. */
static void test_failures(void)
{
    struct setting s = able;
    s.rdma_supported = 0; /* no peer memory behind it */
    s.export = CUDA_ERROR_NOT_SUPPORTED;
    check("the driver exports nothing", &s, NULL, "export staged-in staged-out free ");
    s.export = CUDA_ERROR_INVALID_VALUE;
    check("the driver does not export this", &s, NULL, "export staged-in staged-out free ");
    s.export = CUDA_SUCCESS;
    s.refuse_dmabuf = EOPNOTSUPP;
    check("the network device takes no dma-buf", &s, NULL,
          "export register-dmabuf staged-in staged-out free ");
    s.refuse_dmabuf = ENOMEM;
    check("the network device has no room", &s, "dmabuf",
          "export register-dmabuf staged-in staged-out free ");
    s.refuse_peer = EFAULT;
    check("the address means nothing to it", &s, "peer", "register-peer staged-in staged-out free ");
}

/* Memory that may go away without a word is not registered. */
static void test_other_memory(void)
{
    struct setting s = able;
    s.pool = true;
    check("of a pool", &s, NULL, "staged-in staged-out free ");
    s.pool = false;
    s.managed = true;
    check("managed", &s, NULL, "staged-in staged-out free ");
    s.managed = false;
    s.mapped = true;
    check("virtual", &s, NULL, "staged-in staged-out free ");
}

/* What the stream has yet to do comes first: the data waits for it in page-locked memory. */
static void test_busy(void)
{
    struct client *c = begin(&able, NULL);
    atomic_store(&stub_busy, true);
    put_in(c, 3);
    CALL(c, RG_OP_cuCtxSynchronize, 0, CUDA_SUCCESS, "");
    expect("a stream with work", "export register-dmabuf staged-in ");
    CHECK(device[512] == 3);
    atomic_store(&stub_busy, false);
    get_out(c, 3);
    expect("a stream without", "export register-dmabuf staged-in ");
    CHECK(client_destroy(c) == 0);
}

/* Memory goes with what it belongs to, a module, and other memory comes to lie there. */
static void test_replaced(void)
{
    struct client *c = begin(&able, NULL);
    put_in(c, 6);
    get_out(c, 6);
    now.id++;
    put_in(c, 7);
    get_out(c, 7);
    expect("other memory", "export register-dmabuf unregister export register-dmabuf ");
    CHECK(client_destroy(c) == 0);
}

/* A context ends with memory in it, and a session with a context in it. */
static void test_ends(void)
{
    struct client *c = begin(&able, NULL);
    put_in(c, 4);
    CALL(c, RG_OP_cuDevicePrimaryCtxRelease_v2, 0, CUDA_SUCCESS, "4", 0);
    expect("a context that ends", "export register-dmabuf unregister context-ends ");
    CHECK(client_destroy(c) == 0);
    c = begin(&able, NULL);
    put_in(c, 5);
    CALL(c, RG_OP_cuCtxSynchronize, 0, CUDA_SUCCESS, "");
    CHECK(registered);
    CHECK(client_destroy(c) == 0 && !registered);
    CHECK(strstr(trace, "unregister context-ends "));
}

int main(void)
{
    unsigned char *memory =
        mmap(NULL, WHOLE + 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    device = memory + 256;
    use_driver();
    test_ways();
    test_missing();
    test_failures();
    test_other_memory();
    test_busy();
    test_replaced();
    test_ends();
    return 0;
}
