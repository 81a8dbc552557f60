/* message.c - see message.h. */
#include "places/kubernetes/grpc/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum rg_grpc_status rg_grpc_pack(const ProtobufCMessage *message, struct rg_grpc_answer *answer)
{
    answer->size = protobuf_c_message_get_packed_size(message);
    answer->message = malloc(answer->size + 1);
    if (!answer->message)
        return rg_grpc_no_memory(answer);
    (void)protobuf_c_message_pack(message, answer->message);
    return RG_GRPC_OK;
}

enum rg_grpc_status rg_grpc_malformed(struct rg_grpc_answer *answer)
{
    snprintf(answer->why, sizeof answer->why, "the message is not of the type that the method takes");
    return RG_GRPC_INVALID_ARGUMENT;
}

enum rg_grpc_status rg_grpc_no_memory(struct rg_grpc_answer *answer)
{
    snprintf(answer->why, sizeof answer->why, "out of memory");
    return RG_GRPC_RESOURCE_EXHAUSTED;
}

void *rg_grpc_hold(struct rg_grpc_arena *arena, void *item)
{
    void **grown = item ? realloc(arena->items, (arena->n + 1) * sizeof *grown) : NULL;
    if (!grown) {
        free(item);
        return NULL;
    }
    arena->items = grown;
    return arena->items[arena->n++] = item;
}

char *rg_grpc_hold_text(struct rg_grpc_arena *arena, const char *text)
{
    return rg_grpc_hold(arena, strdup(text));
}

void rg_grpc_let_go(struct rg_grpc_arena *arena)
{
    for (size_t i = 0; i < arena->n; i++)
        free(arena->items[i]);
    free(arena->items);
    *arena = (struct rg_grpc_arena){0};
}
