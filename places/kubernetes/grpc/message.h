/*
 * message.h - what services have in common: answers made of protobuf messages, and the memory that such messages are made of.
 */
#ifndef RG_PLACES_KUBERNETES_GRPC_MESSAGE_H
#define RG_PLACES_KUBERNETES_GRPC_MESSAGE_H

#include "places/kubernetes/grpc/server.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

/** The message as the answer. */
enum rg_grpc_status rg_grpc_pack(const ProtobufCMessage *message, struct rg_grpc_answer *answer);
/** Failures that every service has. */
enum rg_grpc_status rg_grpc_malformed(struct rg_grpc_answer *answer);
enum rg_grpc_status rg_grpc_no_memory(struct rg_grpc_answer *answer);

/** Everything that a message is made of, freed at once; zeroed: nothing. */
struct rg_grpc_arena {
    void **items;
    size_t n;
};

/** Takes an item by malloc, and gives it back. NULL: it was NULL, or there is no memory, and the item was freed. */
void *rg_grpc_hold(struct rg_grpc_arena *arena, void *item);
/** A copy of the text. */
char *rg_grpc_hold_text(struct rg_grpc_arena *arena, const char *text);
void rg_grpc_let_go(struct rg_grpc_arena *arena);

#endif
