/*
 * session.c - what the sessions are, and how one ends. The thread that finds the reason ends it: it says why,
 * interrupts the connection, waits until nothing is received into the application's memory, and wakes all who
 * wait. How they begin: client/connect/.
 */
#include "client/core/session.h"

#include "client/core/hooks.h"
#include "common/base/log.h"
#include "common/base/uncancelled.h"
#include "transport/memory.h"
#include "transport/resumable/resumable.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct rg_session rg_sessions[RG_SERVERS_MAX];
_Atomic unsigned rg_n_sessions;
unsigned rg_n_own_sessions;
_Atomic CUresult rg_sessions_ended = CUDA_ERROR_NOT_INITIALIZED;
CUresult rg_sessions_outcome;
atomic_bool rg_initialised;
atomic_bool rg_contexts_suspect;
atomic_bool rg_process_exits;

/*
 * The connection carries nothing any more, and nothing is received into memory of the application's: only
 * then do calls return because of it, and their memory is the application's again.
 */
static void stop(struct rg_session *session, CUresult error)
{
    rg_conn_interrupt(session->conn);
    rg_hooks.session_settles(session);
    atomic_store(&session->ended, error);
    bool last = true;
    for (unsigned i = 0; i < rg_n_own_sessions; i++)
        last &= !rg_session_lives(&rg_sessions[i]);
    if (last) {
        rg_sessions_outcome = error;
        atomic_store(&rg_sessions_ended, error);
    }
}

void rg_session_end(struct rg_session *session, CUresult error, const char *format, ...)
{
    RG_UNCANCELLED;
    RG_THREAD_OUTSIDE;
    if (!rg_session_lives(session))
        return;
    pthread_mutex_lock(&session->ending);
    const bool first = !atomic_exchange(&session->over, true);
    if (first) {
        char text[512];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        rg_error("%s", text);
        stop(session, error);
    }
    pthread_mutex_unlock(&session->ending);
    if (!first)
        return;
    rg_hooks.session_ended(session);
    rg_receiver_wake_all(session);
}

static void note_exit(void)
{
    atomic_store(&rg_process_exits, true);
}

/* Handlers run in the opposite order: this one before the CUDA runtime's, which the program registered before its first call. */
__attribute__((constructor)) static void await_exit(void)
{
    (void)atexit(note_exit);
}

/*
 * The end of the connection that follows is meant; calls that other destructors still make are served before
 * it.
 */
__attribute__((destructor(103))) static void leave(void)
{
    for (unsigned i = 0; i < rg_n_sessions; i++)
        if (!atomic_load(&rg_sessions[i].over))
            rg_resumable_goaway(rg_sessions[i].conn);
}

void rg_sessions_announce(void *memory, size_t size)
{
    for (unsigned i = 0; i < rg_n_sessions; i++) {
        enum rg_status status = rg_conn_register(rg_sessions[i].conn, memory, size);
        if (status == RG_ERR_NO_MEMORY)
            rg_info("%zu bytes of pinned memory cannot be locked for the network and will be copied (the "
                    "limit of locked memory: ulimit -l)",
                    size);
    }
}

void rg_sessions_withdraw(void *memory)
{
    for (unsigned i = 0; i < rg_n_sessions; i++)
        rg_conn_unregister(rg_sessions[i].conn, memory);
}

int rg_driver_version(void)
{
    uint32_t oldest = UINT32_MAX;
    for (unsigned i = 0; i < rg_n_own_sessions; i++)
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
        atomic_store(&rg_contexts_suspect, true);
        return;
    }
    CUresult none = CUDA_SUCCESS;
    atomic_compare_exchange_strong(&session->latched, &none, error);
}

CUresult rg_session_take_latched(struct rg_session *session)
{
    if (atomic_load_explicit(&session->latched, memory_order_relaxed) == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    return atomic_exchange(&session->latched, CUDA_SUCCESS);
}
