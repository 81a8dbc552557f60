/*
 * client.h - a call of gRPC to the kubelet: one message each way, over a unix socket, by a connection of its own.
 */
#ifndef RG_PLACES_KUBERNETES_GRPC_CLIENT_H
#define RG_PLACES_KUBERNETES_GRPC_CLIENT_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

/** The answer's message. */
struct rg_grpc_reply {
    uint8_t *message; /* by malloc, the caller's; NULL where there was a failure */
    size_t size;
};

/**
 * Calls `method` ("/package.Service/Method") of whoever listens on `socket`, and waits for the answer, at most `timeout_ns` for each
 * step. RG_ERR_UNREACHABLE: nobody listens there; RG_ERR_REFUSED: it has answered with a failure; else the connection failed. `why`
 * says what happened. Any thread.
 */
RG_MUST_CHECK enum rg_status rg_grpc_call(const char *socket, const char *method, const uint8_t *message,
                                          size_t size, uint64_t timeout_ns, struct rg_grpc_reply *reply,
                                          char *why, size_t why_size);

#endif
