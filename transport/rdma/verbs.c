/*
 * verbs.c - see verbs.h: the functions of libibverbs and librdmacm, each passing on to the library's.
 *
 * What headers define inline (posting, polling) goes through the context that a library made and needs nothing here. Each function
 * is looked up by the version whose structures the headers declare; of those, two came later and are done without: ibv_reg_mr_iova2
 * (rdma-core 28), for which ibv_reg_mr does here, and ibv_reg_dmabuf_mr (rdma-core 34), without which there are no dma-bufs.
 *
 * The definitions are weak, so that a test can have functions of its own in their place.
 */
#include "transport/rdma/verbs.h"

#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#undef ibv_reg_mr /* a macro before the function */

#define VERBS_LIBRARY  "libibverbs.so.1"
#define RDMACM_LIBRARY "librdmacm.so.1"

/* X(result, name, version, parameters, arguments), of the functions that every rdma-core has */
#define VERBS(X)                                                                                             \
    X(int, ibv_dealloc_pd, "IBVERBS_1.1", (struct ibv_pd * pd), (pd))                                        \
    X(int, ibv_dereg_mr, "IBVERBS_1.1", (struct ibv_mr * mr), (mr))                                          \
    X(int, ibv_destroy_comp_channel, "IBVERBS_1.0", (struct ibv_comp_channel * channel), (channel))          \
    X(int, ibv_destroy_cq, "IBVERBS_1.1", (struct ibv_cq * cq), (cq))                                        \
    X(int, ibv_get_cq_event, "IBVERBS_1.1",                                                                  \
      (struct ibv_comp_channel * channel, struct ibv_cq * *cq, void **cq_context),                           \
      (channel, cq, cq_context))                                                                             \
    X(const char *, ibv_get_device_name, "IBVERBS_1.1", (struct ibv_device * device), (device))              \
    X(const char *, ibv_wc_status_str, "IBVERBS_1.1", (enum ibv_wc_status status), (status))                 \
    X(struct ibv_comp_channel *, ibv_create_comp_channel, "IBVERBS_1.0", (struct ibv_context * context),     \
      (context))                                                                                             \
    X(struct ibv_cq *, ibv_create_cq, "IBVERBS_1.1",                                                         \
      (struct ibv_context * context, int cqe, void *cq_context, struct ibv_comp_channel *channel,            \
       int comp_vector),                                                                                     \
      (context, cqe, cq_context, channel, comp_vector))                                                      \
    X(struct ibv_mr *, ibv_reg_mr, "IBVERBS_1.1",                                                            \
      (struct ibv_pd * pd, void *addr, size_t length, int access), (pd, addr, length, access))               \
    X(struct ibv_pd *, ibv_alloc_pd, "IBVERBS_1.1", (struct ibv_context * context), (context))               \
    X(void, ibv_ack_cq_events, "IBVERBS_1.1", (struct ibv_cq * cq, unsigned int n), (cq, n))

#define RDMACM(X)                                                                                            \
    X(__be16, rdma_get_src_port, "RDMACM_1.0", (struct rdma_cm_id * id), (id))                               \
    X(const char *, rdma_event_str, "RDMACM_1.0", (enum rdma_cm_event_type event), (event))                  \
    X(int, rdma_accept, "RDMACM_1.0", (struct rdma_cm_id * id, struct rdma_conn_param * param), (id, param)) \
    X(int, rdma_ack_cm_event, "RDMACM_1.0", (struct rdma_cm_event * event), (event))                         \
    X(int, rdma_bind_addr, "RDMACM_1.0", (struct rdma_cm_id * id, struct sockaddr * addr), (id, addr))       \
    X(int, rdma_connect, "RDMACM_1.0", (struct rdma_cm_id * id, struct rdma_conn_param * param),             \
      (id, param))                                                                                           \
    X(int, rdma_create_id, "RDMACM_1.0",                                                                     \
      (struct rdma_event_channel * channel, struct rdma_cm_id * *id, void *context,                          \
       enum rdma_port_space ps),                                                                             \
      (channel, id, context, ps))                                                                            \
    X(int, rdma_create_qp, "RDMACM_1.0",                                                                     \
      (struct rdma_cm_id * id, struct ibv_pd * pd, struct ibv_qp_init_attr * attributes),                    \
      (id, pd, attributes))                                                                                  \
    X(int, rdma_destroy_id, "RDMACM_1.0", (struct rdma_cm_id * id), (id))                                    \
    X(int, rdma_disconnect, "RDMACM_1.0", (struct rdma_cm_id * id), (id))                                    \
    X(int, rdma_get_cm_event, "RDMACM_1.0",                                                                  \
      (struct rdma_event_channel * channel, struct rdma_cm_event * *event), (channel, event))                \
    X(int, rdma_listen, "RDMACM_1.0", (struct rdma_cm_id * id, int backlog), (id, backlog))                  \
    X(int, rdma_migrate_id, "RDMACM_1.0", (struct rdma_cm_id * id, struct rdma_event_channel * channel),     \
      (id, channel))                                                                                         \
    X(int, rdma_reject, "RDMACM_1.0", (struct rdma_cm_id * id, const void *data, uint8_t size),              \
      (id, data, size))                                                                                      \
    X(int, rdma_resolve_addr, "RDMACM_1.0",                                                                  \
      (struct rdma_cm_id * id, struct sockaddr * source, struct sockaddr * destination, int timeout_ms),     \
      (id, source, destination, timeout_ms))                                                                 \
    X(int, rdma_resolve_route, "RDMACM_1.0", (struct rdma_cm_id * id, int timeout_ms), (id, timeout_ms))     \
    X(int, rdma_set_option, "RDMACM_1.0",                                                                    \
      (struct rdma_cm_id * id, int level, int option, void *value, size_t size),                             \
      (id, level, option, value, size))                                                                      \
    X(struct rdma_event_channel *, rdma_create_event_channel, "RDMACM_1.0", (void), ())                      \
    X(void, rdma_destroy_event_channel, "RDMACM_1.0", (struct rdma_event_channel * channel), (channel))      \
    X(void, rdma_destroy_qp, "RDMACM_1.0", (struct rdma_cm_id * id), (id))

#define POINTER(result, name, version, parameters, arguments) result(*name) parameters;
static struct {
    VERBS(POINTER)
    RDMACM(POINTER)
    struct ibv_mr *(*ibv_reg_mr_iova2)(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                       unsigned int access);
    struct ibv_mr *(*ibv_reg_dmabuf_mr)(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
                                        int fd, int access);
} library;

#define PASS_ON(result, name, version, parameters, arguments)                                                \
    __attribute__((weak)) result name parameters                                                             \
    {                                                                                                        \
        return library.name arguments;                                                                       \
    }
VERBS(PASS_ON)
RDMACM(PASS_ON)

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                unsigned int access);
__attribute__((weak)) struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
                                                      uint64_t iova, unsigned int access)
{
    if (library.ibv_reg_mr_iova2)
        return library.ibv_reg_mr_iova2(pd, addr, length, iova, access);
    if (iova == (uintptr_t)addr)
        return library.ibv_reg_mr(pd, addr, length, (int)access);
    errno = EOPNOTSUPP;
    return NULL;
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                                 int access);
__attribute__((weak)) struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
                                                       uint64_t iova, int fd, int access)
{
    if (library.ibv_reg_dmabuf_mr)
        return library.ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, access);
    errno = EOPNOTSUPP;
    return NULL;
}

struct function {
    const char *name, *version;
    size_t slot; /* offset in `library` */
    bool optional;
};

#define ENTRY(result, name, version, parameters, arguments)                                                  \
    {#name, version, offsetof(__typeof__(library), name), false},
static const struct function verbs_functions[] = {
    VERBS(ENTRY) /* */
    {"ibv_reg_mr_iova2", "IBVERBS_1.8", offsetof(__typeof__(library), ibv_reg_mr_iova2), true},
    {"ibv_reg_dmabuf_mr", "IBVERBS_1.12", offsetof(__typeof__(library), ibv_reg_dmabuf_mr), true},
};
static const struct function rdmacm_functions[] = {RDMACM(ENTRY)};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char reason[512]; /* empty: both are open */

static bool open_library(const char *name, const struct function *functions, size_t n)
{
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        snprintf(reason, sizeof reason,
                 "%s cannot be loaded (%s); RDMA needs libibverbs1, librdmacm1 and ibverbs-providers "
                 "(Debian), or libibverbs and "
                 "librdmacm (Red Hat)",
                 name, dlerror());
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        void *address = dlvsym(handle, functions[i].name, functions[i].version);
        if (!address && !functions[i].optional) {
            snprintf(reason, sizeof reason,
                     "the %s of this machine has no %s (%s): it is not rdma-core's, or too old; install "
                     "rdma-core's libraries",
                     name, functions[i].name, functions[i].version);
            return false;
        }
        memcpy((char *)&library + functions[i].slot, &address, sizeof address);
    }
    return true;
}

static void open_both(void)
{
    if (open_library(VERBS_LIBRARY, verbs_functions, sizeof verbs_functions / sizeof *verbs_functions))
        (void)open_library(RDMACM_LIBRARY, rdmacm_functions,
                           sizeof rdmacm_functions / sizeof *rdmacm_functions);
}

__attribute__((visibility("default"))) enum rg_status rg_rdma_verbs_open(char *why, size_t why_size)
{
    pthread_once(&once, open_both);
    if (!reason[0])
        return RG_OK;
    rg_explain(why, why_size, "%s", reason);
    return RG_ERR_UNSUPPORTED;
}
