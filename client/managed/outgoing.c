/* outgoing.c - see outgoing.h. */
#include "client/managed/outgoing.h"

#include "client/core/queue.h"
#include "common/base/limits.h"
#include "proto/wire.h"

void rg_outgoing_begin(struct rg_outgoing *out, struct rg_session *session, uint64_t context)
{
    out->session = session;
    out->context = context;
    out->n = 0;
    out->bytes = 0;
}

void rg_outgoing_send(struct rg_outgoing *out)
{
    struct rg_answer answer = {.type = RG_ANSWER_MANAGED_IN, .id = out->context};
    if (out->n)
        rg_queue_answer(out->session, &answer, out->parts, (int)(2 * out->n), NULL);
    out->n = 0;
    out->bytes = 0;
}

void rg_outgoing_add_from(struct rg_outgoing *out, uint64_t address, const void *data, uint64_t size)
{
    const size_t head = sizeof out->heads[0];
    while (size) {
        if (out->n == sizeof out->heads / head || out->bytes + head >= RG_BULK_MAX)
            rg_outgoing_send(out);
        const uint64_t room = RG_BULK_MAX - out->bytes - head, part = size < room ? size : room;
        out->heads[out->n][0] = address;
        out->heads[out->n][1] = part;
        out->parts[2 * out->n] = (struct iovec){out->heads[out->n], head};
        out->parts[2 * out->n + 1] = (struct iovec){(void *)(uintptr_t)data, part};
        out->n++;
        out->bytes += head + part;
        address += part;
        data = (const unsigned char *)data + part;
        size -= part;
    }
}

void rg_outgoing_add(struct rg_outgoing *out, uint64_t address, uint64_t size)
{
    rg_outgoing_add_from(out, address, (const void *)(uintptr_t)address, size);
}
