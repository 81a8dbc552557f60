/*
 * server_hello.c - what a worker answers a client's hello with, into protobuf and back. See fields.h.
 */
#include "proto/control/fields.h"

#include <stdlib.h>

/* clang-format off */
#define HELLO_FIELDS(NUMBER, TEXT)                                                                           \
    RG_VERSION_FIELDS(NUMBER, TEXT) NUMBER(session) NUMBER(capabilities) NUMBER(contexts)                    \
    NUMBER(bulk_connections) NUMBER(bulk_codecs) NUMBER(resume_seconds) NUMBER(keep_alive)                   \
    NUMBER(compute_millionths) TEXT(host)
/* clang-format on */

enum rg_status rg_pack_server_hello(Rg__Control *control, const struct rg_server_hello *from, void **data,
                                    size_t *size)
{
    if (from->n_opcode_names > RG_CONTROL_OPCODES || from->transports.n > RG_CONTROL_TRANSPORTS ||
        from->n_addresses > RG_CONTROL_ADDRESSES || from->n_tcp_addresses > RG_CONTROL_ADDRESSES)
        return RG_ERR_LIMIT;
    Rg__ServerHello hello, *to = &hello;
    rg__server_hello__init(to);
    RG_PACK_FIELDS(HELLO_FIELDS)
    to->sharing = from->sharing;
    to->api_digest = rg_pack_digest(from->api_digest);
    to->answers = rg_pack_digest(from->answers);
    to->n_opcode_names = from->n_opcode_names;
    to->opcode_names = (char **)from->opcode_names;
    struct rg_packed_devices devices;
    RG_TRY(rg_pack_devices(&devices, from->devices, from->n_devices));
    to->n_devices = from->n_devices;
    to->devices = devices.pointers;
    Rg__Driver driver;
    rg_pack_driver(&driver, &from->driver);
    to->driver = &driver;
    Rg__Limits limits;
    rg_pack_limits(&limits, &from->limits);
    to->limits = &limits;
    char *transports[RG_CONTROL_TRANSPORTS];
    to->n_transports = rg_pack_transports(transports, &from->transports);
    to->transports = transports;
    char *addresses[RG_CONTROL_ADDRESSES];
    for (uint32_t i = 0; i < from->n_addresses; i++)
        addresses[i] = RG_TEXT(from->addresses[i]);
    to->n_addresses = from->n_addresses;
    to->addresses = addresses;
    to->n_address_rails = from->has_rails ? from->n_addresses : 0;
    to->address_rails = (uint32_t *)from->address_rails;
    char *tcp_addresses[RG_CONTROL_ADDRESSES];
    for (uint32_t i = 0; i < from->n_tcp_addresses; i++)
        tcp_addresses[i] = RG_TEXT(from->tcp_addresses[i]);
    to->n_tcp_addresses = to->n_tcp_rails = from->n_tcp_addresses;
    to->tcp_addresses = tcp_addresses;
    to->tcp_rails = (uint32_t *)from->tcp_rails;
    to->move_token = rg_bytes_of(from->move_token, from->n_addresses ? RG_UPGRADE_TOKEN : 0);
    to->bulk_token = rg_bytes_of(from->bulk_token, from->bulk_connections ? RG_BULK_TOKEN : 0);
    const bool lasts = from->capabilities & RG_CONTROL_CAP_RESUME;
    to->resume_token = rg_bytes_of(from->resume_token, lasts ? RG_RESUME_TOKEN : 0);
    control->body_case = RG__CONTROL__BODY_SERVER_HELLO;
    control->server_hello = to;
    return rg_pack_finish(control, data, size);
}

static enum rg_status unpack_addresses(struct rg_server_hello *to, const Rg__ServerHello *from)
{
    if (from->n_addresses > RG_CONTROL_ADDRESSES)
        return RG_ERR_LIMIT;
    if (from->n_address_rails && from->n_address_rails != from->n_addresses)
        return RG_ERR_PROTOCOL;
    for (size_t i = 0; i < from->n_addresses; i++)
        RG_TRY(RG_GET_TEXT(to->addresses[i], from->addresses[i]));
    to->n_addresses = (uint32_t)from->n_addresses;
    to->has_rails = from->n_address_rails != 0;
    for (size_t i = 0; i < from->n_address_rails; i++)
        to->address_rails[i] = from->address_rails[i];
    return to->n_addresses ? RG_GET_BYTES(to->move_token, &from->move_token) : RG_OK;
}

static enum rg_status unpack_tcp_addresses(struct rg_server_hello *to, const Rg__ServerHello *from)
{
    if (from->n_tcp_addresses > RG_CONTROL_ADDRESSES)
        return RG_ERR_LIMIT;
    if (from->n_tcp_rails != from->n_tcp_addresses)
        return RG_ERR_PROTOCOL;
    for (size_t i = 0; i < from->n_tcp_addresses; i++) {
        RG_TRY(RG_GET_TEXT(to->tcp_addresses[i], from->tcp_addresses[i]));
        to->tcp_rails[i] = from->tcp_rails[i];
    }
    to->n_tcp_addresses = (uint32_t)from->n_tcp_addresses;
    return RG_OK;
}

/* Devices, then names of operations and their text, in one allocation, which becomes the message's storage. */
static enum rg_status unpack_lists(struct rg_server_hello *to, void **storage, const Rg__ServerHello *from)
{
    if (from->n_devices > RG_DEVICES_MAX || from->n_opcode_names > RG_CONTROL_OPCODES)
        return RG_ERR_LIMIT;
    size_t text = 0;
    for (size_t i = 0; i < from->n_opcode_names; i++) {
        size_t size = strlen(from->opcode_names[i]) + 1;
        if (size > RG_CONTROL_OPCODE)
            return RG_ERR_LIMIT;
        text += size;
    }
    size_t devices = from->n_devices * sizeof(struct rg_device_info);
    char *memory = calloc(1, devices + from->n_opcode_names * sizeof(char *) + text + 1);
    if (!memory)
        return RG_ERR_NO_MEMORY;
    *storage = memory;
    to->devices = (struct rg_device_info *)memory;
    to->n_devices = (uint32_t)from->n_devices;
    to->opcode_names = (const char **)(memory + devices);
    to->n_opcode_names = (uint32_t)from->n_opcode_names;
    char *at = (char *)(to->opcode_names + from->n_opcode_names);
    for (size_t i = 0; i < from->n_opcode_names; i++) {
        to->opcode_names[i] = at;
        at = stpcpy(at, from->opcode_names[i]) + 1;
    }
    return rg_unpack_devices(to->devices, from->devices, from->n_devices);
}

enum rg_status rg_unpack_server_hello(struct rg_server_hello *to, void **storage, const Rg__ServerHello *from)
{
    RG_UNPACK_FIELDS(HELLO_FIELDS)
    to->sharing = rg_unpack_sharing(from->sharing);
    RG_TRY(rg_get_optional_bytes(to->api_digest, RG_DIGEST_SIZE, &from->api_digest));
    RG_TRY(rg_get_optional_bytes(to->answers, RG_DIGEST_SIZE, &from->answers));
    RG_TRY(rg_unpack_driver(&to->driver, from->driver));
    rg_unpack_limits(&to->limits, from->limits);
    RG_TRY(rg_unpack_transports(&to->transports, from->transports, from->n_transports));
    RG_TRY(unpack_addresses(to, from));
    RG_TRY(unpack_tcp_addresses(to, from));
    if (to->capabilities & RG_CONTROL_CAP_RESUME)
        RG_TRY(RG_GET_BYTES(to->resume_token, &from->resume_token));
    if (to->bulk_connections)
        RG_TRY(RG_GET_BYTES(to->bulk_token, &from->bulk_token));
    return unpack_lists(to, storage, from);
}
