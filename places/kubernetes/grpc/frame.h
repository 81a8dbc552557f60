/*
 * frame.h - messages of gRPC within the data of an HTTP/2 stream: a byte that says whether the message is compressed, its size
 * as 32 bits, high byte first, and the message. Pure.
 *
 * The format is gRPC's (github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md).
 */
#ifndef RG_PLACES_KUBERNETES_GRPC_FRAME_H
#define RG_PLACES_KUBERNETES_GRPC_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Status codes of gRPC, as far as they are answered. */
enum rg_grpc_status {
    RG_GRPC_OK = 0,
    RG_GRPC_INVALID_ARGUMENT = 3,
    RG_GRPC_RESOURCE_EXHAUSTED = 8,
    RG_GRPC_UNIMPLEMENTED = 12,
    RG_GRPC_INTERNAL = 13,
};

#define RG_GRPC_FRAME 5 /* bytes before a message */

/**
 * The one message of a call that is all of `data`. RG_GRPC_INTERNAL: it is not exactly one whole message;
 * RG_GRPC_UNIMPLEMENTED: it is compressed.
 */
enum rg_grpc_status rg_grpc_unframe(const uint8_t *data, size_t size, const uint8_t **message,
                                    size_t *message_size);
/** What goes before a message of `size` bytes, which fit in 32 bits. */
void rg_grpc_frame(uint8_t out[RG_GRPC_FRAME], size_t size);
/** A text as grpc-message has it: what is not printable ASCII, and '%', as %XX. Cut where `room` ends. */
void rg_grpc_escape(const char *text, char *out, size_t room);

#endif
