/* warm.c - see warm.h. */
#include "server/handshake/warm.h"

#include "common/base/log.h"
#include "common/base/packet.h"
#include "common/sync/scoped_lock.h"
#include "server/handshake/prepare.h"
#include "server/shares/warm_places.h"
#include "server/shares/worker/share.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Whether somebody came first: a session, or one that needs the memory. Under its lock, which is a leaf. */
static struct {
    pthread_mutex_t lock;
    bool adopted, gives_way;
    int socket;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .socket = -1};

/*
 * A device's: leaves when a session there has run out of memory. What is in the socket by then is still received, and whoever
 * sends later is told that nobody is there.
 */
static void *watch(void *data)
{
    const struct rg_share_account *account = data;
    rg_warm_await_pressure(&account->device);
    RG_SCOPED_LOCK(&state.lock);
    if (!state.adopted) {
        state.gives_way = true;
        (void)shutdown(state.socket, SHUT_RD);
    }
    return NULL;
}

/* Without a watch it keeps what it has: it is not to be warm then. */
static bool start_watches(int socket)
{
    state.socket = socket;
    for (uint32_t i = 0; i < rg_share.n_devices; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, watch, &rg_share.accounts[i]) != 0)
            return false;
        (void)pthread_detach(thread);
    }
    return true;
}

/* Where only one process may have a context, a worker without a session has none. */
static uint64_t may_have(uint64_t wanted, uint32_t n_devices)
{
    uint64_t may = 0;
    for (uint32_t i = 0; i < n_devices && i < 64; i++) {
        CUdevice device;
        int mode = CU_COMPUTEMODE_DEFAULT;
        if ((wanted >> i & 1) && rg_driver.cuDeviceGet(&device, (int)i) == CUDA_SUCCESS &&
            rg_driver.cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device) == CUDA_SUCCESS &&
            mode == CU_COMPUTEMODE_DEFAULT)
            may |= 1ull << i;
    }
    return may;
}

/* Nobody hears it where a session came first, or where the monitor has gone: what is in the socket says which. */
static void say_ready(int socket)
{
    const struct rg_warm_ready ready = {.version = RG_WARM_VERSION, .contexts = rg_prepared_contexts()};
    if (!rg_packet_send(socket, &ready, sizeof ready, NULL, 0))
        rg_debug("nobody waits for this worker to be ready");
}

static enum rg_status take(const struct rg_warm_adoption *adoption, unsigned n_fds, struct rg_hello *hello,
                           struct rg_warm_session *out)
{
    if (adoption->version != RG_WARM_VERSION || adoption->n_fds != n_fds || n_fds < RG_WARM_KEYS) {
        rg_packet_close(out->fds, n_fds);
        return RG_ERR_PROTOCOL;
    }
    for (unsigned i = n_fds; i < RG_WARM_FDS; i++)
        out->fds[i] = -1;
    hello->session = adoption->session;
    hello->no_rdma = adoption->rdma == 0;
    hello->hello_fd = out->fds[RG_WARM_HELLO];
    return rg_share_move(out->fds[RG_WARM_SHARE], adoption->session);
}

/* The monitor has sent something, or has closed the socket. */
static enum rg_status receive(int socket, struct rg_hello *hello, struct rg_warm_session *out,
                              int *leave_status)
{
    struct rg_warm_adoption adoption;
    unsigned n_fds = 0;
    RG_SCOPED_LOCK(&state.lock);
    const enum rg_status status =
        rg_packet_receive(socket, MSG_DONTWAIT, &adoption, sizeof adoption, out->fds, RG_WARM_FDS, &n_fds);
    if (status == RG_OK) {
        state.adopted = true;
        return take(&adoption, n_fds, hello, out);
    }
    if (status == RG_ERR_CLOSED && state.gives_way)
        *leave_status = RG_WARM_GAVE_WAY;
    return status;
}

enum rg_status rg_warm_wait(struct rg_hello *hello, const struct rg_shape *shape, uint64_t contexts,
                            int socket, int signal_fd, struct rg_warm_session *out, int *leave_status)
{
    char why[512] = "";
    enum rg_status status = rg_prepare_driver(hello, shape, why, sizeof why);
    *leave_status = 0;
    if (status != RG_OK) {
        rg_error("a warm worker: %s", why);
        return status;
    }
    if (!start_watches(socket)) {
        rg_error("a warm worker: no memory or threads for it");
        return RG_ERR_NO_MEMORY;
    }
    rg_prepare_contexts(may_have(contexts, hello->n_devices), hello->n_devices);
    say_ready(socket);
    for (;;) {
        struct pollfd fds[2] = {{.fd = socket, .events = POLLIN}, {.fd = signal_fd, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return RG_ERR_IO;
        if (fds[0].revents) {
            status = receive(socket, hello, out, leave_status);
            if (status != RG_ERR_TIMEOUT)
                return status;
        } else if (fds[1].revents) {
            return RG_ERR_CLOSED;
        }
    }
}
