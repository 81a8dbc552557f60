/*
 * messages.c - control messages of any kind into bytes and back: the short ones here, each other in its own file.
 *
 * The protobuf structs are built on the stack, point into the typed message, and are packed behind the header in one allocation.
 * protobuf-c checks the encoding of what has come; these files check the content: each field against its limit, and nothing of a message
 * is handed out unless all of it is good. What the sender repeats more often than the limit is refused before anything is allocated for
 * it here.
 */
#include "proto/control/fields.h"

#include <stdlib.h>

#define REFUSAL_FIELDS(NUMBER, TEXT) RG_VERSION_FIELDS(NUMBER, TEXT) TEXT(reason)

/* --- packing -------------------------------------------------------------------------------------------- */

static enum rg_status pack_refusal(Rg__Control *control, const struct rg_refusal *from, void **data,
                                   size_t *size)
{
    Rg__Refusal refusal, *to = &refusal;
    rg__refusal__init(to);
    RG_PACK_FIELDS(REFUSAL_FIELDS)
    to->code = (Rg__Refusal__Code)from->code;
    control->body_case = RG__CONTROL__BODY_REFUSAL;
    control->refusal = to;
    return rg_pack_finish(control, data, size);
}

static enum rg_status pack_session_end(Rg__Control *control, const struct rg_session_end *from, void **data,
                                       size_t *size)
{
    Rg__SessionEnd end;
    rg__session_end__init(&end);
    end.reason = RG_TEXT(from->reason);
    control->body_case = RG__CONTROL__BODY_SESSION_END;
    control->session_end = &end;
    return rg_pack_finish(control, data, size);
}

static enum rg_status pack_move(Rg__Control *control, const struct rg_upgrade_message *from, void **data,
                                size_t *size)
{
    Rg__Move move;
    rg__move__init(&move);
    move.transport = RG_TEXT(from->transport);
    move.token = rg_bytes_of(from->token, from->has_token ? RG_UPGRADE_TOKEN : 0);
    move.rails = from->rails;
    move.rails_always = from->rails_always;
    control->body_case = RG__CONTROL__BODY_MOVE;
    control->move = &move;
    return rg_pack_finish(control, data, size);
}

static enum rg_status pack_resumed(Rg__Control *control, const struct rg_resumed *from, void **data,
                                   size_t *size)
{
    Rg__Resumed resumed;
    rg__resumed__init(&resumed);
    resumed.received = from->received;
    control->body_case = RG__CONTROL__BODY_RESUMED;
    control->resumed = &resumed;
    return rg_pack_finish(control, data, size);
}

static enum rg_status pack_answer(Rg__Control *control, const struct rg_management_answer *from, void **data,
                                  size_t *size)
{
    if (from->size > RG_ANSWER_SIZE_MAX)
        return RG_ERR_LIMIT;
    Rg__Answer answer;
    rg__answer__init(&answer);
    answer.data = rg_bytes_of(from->data, from->size);
    control->body_case = RG__CONTROL__BODY_ANSWER;
    control->answer = &answer;
    return rg_pack_finish(control, data, size);
}

static enum rg_status pack_joined(Rg__Control *control, const struct rg_joined *from, void **data,
                                  size_t *size)
{
    Rg__Joined joined;
    rg__joined__init(&joined);
    joined.certificate = rg_bytes_of(from->certificate, strlen(from->certificate));
    joined.authority = rg_bytes_of(from->authority, strlen(from->authority));
    joined.user = RG_TEXT(from->user);
    control->body_case = RG__CONTROL__BODY_JOINED;
    control->joined = &joined;
    return rg_pack_finish(control, data, size);
}

enum rg_status rg_control_pack(const struct rg_control *message, void **data, size_t *size)
{
    Rg__Control control;
    rg__control__init(&control);
    switch (message->kind) {
    case RG_CONTROL_CLIENT_HELLO:
        return rg_pack_client_hello(&control, &message->client_hello, data, size);
    case RG_CONTROL_SERVER_HELLO:
        return rg_pack_server_hello(&control, &message->server_hello, data, size);
    case RG_CONTROL_REFUSAL:
        return pack_refusal(&control, &message->refusal, data, size);
    case RG_CONTROL_INVENTORY:
        return rg_pack_inventory(&control, &message->inventory, data, size);
    case RG_CONTROL_SESSION_END:
        return pack_session_end(&control, &message->session_end, data, size);
    case RG_CONTROL_UPGRADE:
        return pack_move(&control, &message->upgrade, data, size);
    case RG_CONTROL_ANSWER:
        return pack_answer(&control, &message->answer, data, size);
    case RG_CONTROL_JOINED:
        return pack_joined(&control, &message->joined, data, size);
    case RG_CONTROL_RESUMED:
        return pack_resumed(&control, &message->resumed, data, size);
    }
    return RG_ERR_INVALID;
}

/* --- unpacking ------------------------------------------------------------------------------------------ */

static enum rg_status unpack_refusal(struct rg_refusal *to, const Rg__Refusal *from)
{
    /* a code of a newer server is shown by its sentence */
    unsigned code = (unsigned)from->code;
    const bool known = code <= RG_REFUSAL_INTERNAL || code == RG_REFUSAL_NO_SUCH_SESSION ||
                       code == RG_REFUSAL_LIMIT || code == RG_REFUSAL_QUOTA || code == RG_REFUSAL_SUSPENDED;
    to->code = known ? (enum rg_refusal_code)code : RG_REFUSAL_UNKNOWN;
    RG_UNPACK_FIELDS(REFUSAL_FIELDS)
    return RG_OK;
}

static enum rg_status unpack_move(struct rg_upgrade_message *to, const Rg__Move *from)
{
    RG_TRY(RG_GET_TEXT(to->transport, from->transport));
    to->has_token = from->token.len != 0;
    RG_TRY(rg_get_optional_bytes(to->token, RG_UPGRADE_TOKEN, &from->token));
    to->rails = from->rails;
    to->rails_always = from->rails_always;
    return RG_OK;
}

static enum rg_status unpack_answer(struct rg_management_answer *to, void **storage, const Rg__Answer *from)
{
    if (from->data.len > RG_ANSWER_SIZE_MAX)
        return RG_ERR_LIMIT;
    *storage = malloc(from->data.len + 1);
    if (!*storage)
        return RG_ERR_NO_MEMORY;
    if (from->data.len)
        memcpy(*storage, from->data.data, from->data.len);
    *to = (struct rg_management_answer){.data = *storage, .size = (uint32_t)from->data.len};
    return RG_OK;
}

/* Text of several lines that a certificate is: not empty, printable ASCII and line ends. */
static enum rg_status get_pem(char *field, size_t field_size, const ProtobufCBinaryData *from)
{
    if (from->len >= field_size)
        return RG_ERR_LIMIT;
    for (size_t i = 0; i < from->len; i++)
        if (from->data[i] != '\n' && from->data[i] != '\r' && (from->data[i] < ' ' || from->data[i] > '~'))
            return RG_ERR_PROTOCOL;
    if (from->len == 0)
        return RG_ERR_PROTOCOL;
    memcpy(field, from->data, from->len);
    field[from->len] = 0;
    return RG_OK;
}

static enum rg_status unpack_joined(struct rg_joined *to, const Rg__Joined *from)
{
    RG_TRY(get_pem(to->certificate, sizeof to->certificate, &from->certificate));
    RG_TRY(get_pem(to->authority, sizeof to->authority, &from->authority));
    return RG_GET_TEXT(to->user, from->user);
}

static enum rg_status unpack_body(struct rg_control *out, const Rg__Control *control)
{
    switch (control->body_case) {
    case RG__CONTROL__BODY_CLIENT_HELLO:
        out->kind = RG_CONTROL_CLIENT_HELLO;
        return rg_unpack_client_hello(&out->client_hello, control->client_hello);
    case RG__CONTROL__BODY_SERVER_HELLO:
        out->kind = RG_CONTROL_SERVER_HELLO;
        return rg_unpack_server_hello(&out->server_hello, &out->storage, control->server_hello);
    case RG__CONTROL__BODY_REFUSAL:
        out->kind = RG_CONTROL_REFUSAL;
        return unpack_refusal(&out->refusal, control->refusal);
    case RG__CONTROL__BODY_INVENTORY:
        out->kind = RG_CONTROL_INVENTORY;
        return rg_unpack_inventory(&out->inventory, &out->storage, control->inventory);
    case RG__CONTROL__BODY_SESSION_END:
        out->kind = RG_CONTROL_SESSION_END;
        return RG_GET_TEXT(out->session_end.reason, control->session_end->reason);
    case RG__CONTROL__BODY_MOVE:
        out->kind = RG_CONTROL_UPGRADE;
        return unpack_move(&out->upgrade, control->move);
    case RG__CONTROL__BODY_RESUMED:
        out->kind = RG_CONTROL_RESUMED;
        out->resumed.received = control->resumed->received;
        return RG_OK;
    case RG__CONTROL__BODY_ANSWER:
        out->kind = RG_CONTROL_ANSWER;
        return unpack_answer(&out->answer, &out->storage, control->answer);
    case RG__CONTROL__BODY_JOINED:
        out->kind = RG_CONTROL_JOINED;
        return unpack_joined(&out->joined, control->joined);
    default:
        return RG_ERR_PROTOCOL;
    }
}

enum rg_status rg_control_unpack(const void *data, size_t size, struct rg_control *out)
{
    memset(out, 0, sizeof *out);
    struct rg_message_header header;
    if (size < sizeof header)
        return RG_ERR_PROTOCOL;
    if (size > RG_MESSAGE_MAX)
        return RG_ERR_LIMIT;
    memcpy(&header, data, sizeof header);
    /* The version in the header is not looked at: the hello inside says it, and a refusal is always
     * understood. */
    if (header.kind != RG_MESSAGE_CONTROL)
        return RG_ERR_PROTOCOL;
    Rg__Control *control =
        rg__control__unpack(NULL, size - sizeof header, (const uint8_t *)data + sizeof header);
    if (!control)
        return RG_ERR_PROTOCOL;
    enum rg_status status = unpack_body(out, control);
    rg__control__free_unpacked(control, NULL);
    if (status != RG_OK)
        rg_control_fini(out);
    return status;
}

void rg_control_fini(struct rg_control *message)
{
    free(message->storage);
    memset(message, 0, sizeof *message);
}
