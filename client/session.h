/*
 * session.h - the one session of this process: how it begins, what it is, how it ends.
 *
 * The session is made by the first call that needs the server (cuInit, or a question before it) and lives until the
 * process ends. Its parts: the command stream (command.h) that carries calls to the worker, the receiver
 * (receiver.h) that takes what comes back, the lanes (lane.h) of the application's threads.
 *
 * It can end early: the connection breaks, the server ends it, a fork leaves it behind. From then on every call
 * returns the same error; nothing of the application is touched.
 */
#ifndef RG_CLIENT_SESSION_H
#define RG_CLIENT_SESSION_H

#include "generated/proto/ops.h"
#include "proto/control.h"
#include "transport/transport.h"

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct rg_session {
    struct rg_conn *conn;
    char server[256]; /* as the user named it */
    struct rg_server_hello hello;
    struct rg_control hello_message;  /* owns hello's memory */
    uint16_t op_numbers[RG_OP_COUNT]; /* ours → the server's; 0: the server does not know it */
    /* CUDA_SUCCESS while calls are possible; set once, read without a lock by every call */
    _Atomic CUresult ended;
    /* the context's sticky error once one is known, else CUDA_SUCCESS */
    _Atomic CUresult sticky;
    /* error of a call that nobody waited for, to be returned by the next that waits */
    _Atomic CUresult latched;
};

extern struct rg_session rg_session;

/**
 * Connects if that has not happened yet. CUDA_SUCCESS, or the error that this and every later attempt returns
 * (CUDA_ERROR_NO_DEVICE: no server, or it refused; told once on stderr with the reason). Any thread.
 */
CUresult rg_session_start(void);
/** Marks the session as over, tells the user why (one line, once), wakes all who wait. Any thread. */
void rg_session_end(CUresult error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** Notes an error that the worker reported for an earlier call. */
void rg_session_async_error(CUresult error, unsigned op);
/** Takes the latched error, if there is one. */
CUresult rg_session_take_latched(void);
/** Whether an error of the context stays until the context is gone. */
bool rg_error_is_sticky(CUresult error);
/** cuInit was called and succeeded. */
extern atomic_bool rg_initialised;

#endif
