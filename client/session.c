/*
 * session.c - beginning and end of the session.
 *
 * The happy path of rg_session_start: connect to REMOTE_GPU_SERVER, say hello, map operation numbers, start the
 * sender thread. What fails is told once on stderr with the reason and what to do; the application sees a machine
 * without a CUDA device.
 */
#include "client/session.h"

#include "client/command.h"
#include "client/device.h"
#include "client/nvml.h"
#include "client/optimisations.h"
#include "client/query.h"
#include "client/receiver.h"
#include "client/stats.h"
#include "client/transfer.h"
#include "client/visible.h"
#include "common/cleanup.h"
#include "common/log.h"
#include "transport/control.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rg_session rg_sessions[RG_SERVERS_MAX];
unsigned rg_n_sessions;
_Atomic CUresult rg_sessions_ended = CUDA_ERROR_NOT_INITIALIZED;
atomic_bool rg_initialised;

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static bool tried;
static CUresult outcome;

static void after_fork_in_child(void)
{
    atomic_store(&rg_sessions_ended, CUDA_ERROR_NOT_INITIALIZED);
    tried = true;
    outcome = CUDA_ERROR_NOT_INITIALIZED;
    /* The connections are the parent's: drop our copies of their descriptors, so that the parent's end still ends
     * them. */
    for (unsigned i = 0; i < rg_n_sessions; i++) {
        atomic_store(&rg_sessions[i].ended, CUDA_ERROR_NOT_INITIALIZED);
        atomic_store(&rg_sessions[i].over, true);
        rg_conn_abandon(rg_sessions[i].conn);
    }
}

/* Our number of each operation → the server's. */
static void map_operations(struct rg_session *session)
{
    const struct rg_server_hello *hello = &session->hello;
    if (memcmp(hello->api_digest, rg_api_digest, sizeof rg_api_digest) == 0) {
        for (unsigned op = 1; op < RG_OP_COUNT; op++)
            session->op_numbers[op] = (uint16_t)op;
        return;
    }
    unsigned unknown = 0;
    for (unsigned op = 1; op < RG_OP_COUNT; op++) {
        for (uint32_t number = 1; number < hello->n_opcode_names && !session->op_numbers[op]; number++)
            if (strcmp(hello->opcode_names[number], rg_op_names[op]) == 0)
                session->op_numbers[op] = (uint16_t)number;
        unknown += !session->op_numbers[op];
    }
    rg_info("the server is of another build (%s); %u of %u operations are not known to it", hello->software,
            unknown, RG_OP_COUNT - 1);
}

/* Which of the server's devices the session is for: those that NVML has shown, as many as were asked for, and of them
 * what CUDA_VISIBLE_DEVICES leaves. */
static void choose_devices(const char *server, struct rg_client_hello *hello)
{
    const char *gpus = getenv("REMOTE_GPU_GPUS");
    if (gpus && *gpus)
        hello->gpus = (uint32_t)strtoul(gpus, NULL, 10);
    hello->n_gpu_indices = rg_nvml_shown(server, hello->gpu_indices);
    uint32_t visible[RG_DEVICES_MAX], shown[RG_DEVICES_MAX], n;
    if (!rg_visible_devices(visible, RG_DEVICES_MAX, &n))
        return;
    if (hello->gpus && !hello->n_gpu_indices) { /* the server chooses which: only how many can be narrowed */
        hello->gpus = n < hello->gpus ? n : hello->gpus;
        return;
    }
    const uint32_t n_shown = hello->n_gpu_indices;
    memcpy(shown, hello->gpu_indices, sizeof shown);
    hello->gpus = 0;
    hello->n_gpu_indices = 0;
    for (uint32_t i = 0; i < n && (!n_shown || visible[i] < n_shown); i++)
        hello->gpu_indices[hello->n_gpu_indices++] = n_shown ? shown[visible[i]] : visible[i];
}

static bool say_hello(struct rg_session *session)
{
    const char *server = session->server;
    struct rg_control hello, answer;
    rg_client_hello_init(&hello, RG_PURPOSE_SESSION);
    memcpy(hello.client_hello.api_digest, rg_api_digest, sizeof rg_api_digest);
    choose_devices(server, &hello.client_hello);
    enum rg_status status = rg_control_send(session->conn, &hello);
    if (status == RG_OK)
        status = rg_control_receive(session->conn, 60000, &answer);
    if (status != RG_OK) {
        rg_error("%s did not complete the handshake (%s); is it a remote-gpud?", server,
                 rg_status_string(status));
        return false;
    }
    if (answer.kind == RG_CONTROL_SERVER_HELLO) {
        session->hello_message = answer; /* keeps the memory that hello points to */
        session->hello = answer.server_hello;
        return true;
    }
    if (answer.kind == RG_CONTROL_REFUSAL)
        rg_error("%s refused: %s", server, answer.refusal.reason);
    else
        rg_error("%s answered the handshake with something else", server);
    rg_control_fini(&answer);
    return false;
}

/* Connects to one server and says hello; what fails is told. */
static bool connect_to(struct rg_session *session, const char *server)
{
    snprintf(session->server, sizeof session->server, "%s", server);
    char why[256] = "";
    if (rg_transport_connect(server, NULL, why, sizeof why, &session->conn) != RG_OK) {
        rg_error("cannot reach the server %s: %s; check the address (-s or REMOTE_GPU_SERVER) and that "
                 "remote-gpud "
                 "runs there",
                 server, why);
        return false;
    }
    if (say_hello(session))
        return true;
    rg_conn_destroy(session->conn);
    session->conn = NULL;
    return false;
}

/* The first server of the list (separated by commas) that takes us. */
static bool connect_to_any(struct rg_session *session, const char *servers)
{
    RG_CLEANUP_FREE char *list = strdup(servers);
    char *rest = list, *server;
    while (rest && (server = strsep(&rest, ",")))
        if (*server && connect_to(session, server))
            return true;
    return false;
}

static CUresult start(void)
{
    rg_optimisations_read();
    uint32_t visible[RG_DEVICES_MAX], n;
    if (rg_visible_devices(visible, RG_DEVICES_MAX, &n) && n == 0) {
        rg_info("CUDA_VISIBLE_DEVICES leaves no device");
        return CUDA_ERROR_NO_DEVICE;
    }
    const char *servers = getenv("REMOTE_GPU_SERVER");
    struct rg_session *session = &rg_sessions[0];
    if (!connect_to_any(session, servers && *servers ? servers : RG_DEFAULT_SERVER))
        return CUDA_ERROR_NO_DEVICE;
    map_operations(session);
    rg_receiver_init(session);
    if (rg_command_start(session) != RG_OK)
        return CUDA_ERROR_OUT_OF_MEMORY;
    rg_n_sessions = 1;
    rg_devices_list();
    pthread_atfork(NULL, NULL, after_fork_in_child);
    rg_stats_start();
    rg_info("session %llu on %s (%s): %u device(s), driver %u.%u", (unsigned long long)session->hello.session,
            session->server, rg_conn_transport(session->conn), session->hello.n_devices,
            session->hello.driver.version / 1000, session->hello.driver.version % 1000 / 10);
    return CUDA_SUCCESS;
}

CUresult rg_session_start(void)
{
    if (tried)
        return outcome;
    pthread_mutex_lock(&start_lock);
    if (!tried) {
        outcome = start();
        tried = true;
    }
    pthread_mutex_unlock(&start_lock);
    return outcome;
}

void rg_session_end(struct rg_session *session, CUresult error, const char *format, ...)
{
    if (atomic_exchange(&session->over, true))
        return;
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    rg_error("%s", text);
    atomic_store(&session->ended, error);
    bool last = true;
    for (unsigned i = 0; i < rg_n_sessions; i++)
        last &= atomic_load(&rg_sessions[i].ended) != CUDA_SUCCESS;
    if (last) {
        outcome = error;
        atomic_store(&rg_sessions_ended, error);
    }
    rg_conn_interrupt(session->conn);
    rg_transfers_drop(session);
    rg_receiver_wake_all(session);
}

int rg_driver_version(void)
{
    uint32_t oldest = UINT32_MAX;
    for (unsigned i = 0; i < rg_n_sessions; i++)
        if (rg_sessions[i].hello.driver.version < oldest)
            oldest = rg_sessions[i].hello.driver.version;
    return (int)oldest;
}

bool rg_error_is_sticky(CUresult error)
{
    switch (error) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
        return true;
    default:
        return false;
    }
}

void rg_session_async_error(struct rg_session *session, CUresult error, unsigned op)
{
    const char *name = op < RG_OP_COUNT ? rg_op_names[op] : "an unknown call";
    rg_info("%s failed after it had returned: error %d", name, (int)error);
    if (rg_error_is_sticky(error)) {
        atomic_store(&session->sticky, error);
        return;
    }
    CUresult none = CUDA_SUCCESS;
    atomic_compare_exchange_strong(&session->latched, &none, error);
}

CUresult rg_session_take_latched(struct rg_session *session)
{
    if (atomic_load_explicit(&session->latched, memory_order_relaxed) == CUDA_SUCCESS)
        return atomic_load_explicit(&session->sticky, memory_order_relaxed);
    return atomic_exchange(&session->latched, CUDA_SUCCESS);
}
