/*
 * fields.c - the parts that several messages have, into protobuf and back. See fields.h.
 */
#include "proto/control/fields.h"

#include <stdlib.h>

#define IDENTITY_FIELDS(NUMBER, TEXT) NUMBER(pid) TEXT(host) TEXT(user) TEXT(command)
#define DRIVER_FIELDS(NUMBER, TEXT)   NUMBER(version) TEXT(kind) TEXT(path) TEXT(release)
#define LIMITS_FIELDS(NUMBER, TEXT)   NUMBER(message_bytes) NUMBER(bulk_bytes) NUMBER(sessions)
/* clang-format off */
#define DEVICE_FIELDS(NUMBER, TEXT)                                                                          \
    NUMBER(ordinal) TEXT(name) TEXT(pci) NUMBER(compute_major) NUMBER(compute_minor) NUMBER(memory_total)    \
    NUMBER(memory_free) NUMBER(memory_free_known) NUMBER(direct) NUMBER(host_reach)                          \
    NUMBER(memory_guaranteed) NUMBER(warm_workers) NUMBER(memory_warm) NUMBER(numa_node)                     \
    NUMBER(nvlink_group) NUMBER(pcie_group) NUMBER(mig) NUMBER(gpu_instance) NUMBER(compute_instance)
/* clang-format on */

enum rg_status rg_get_text(char *field, size_t field_size, const char *text)
{
    size_t size = strlen(text);
    if (size >= field_size)
        return RG_ERR_LIMIT;
    rg_control_text(field, field_size, text, size);
    return RG_OK;
}

enum rg_status rg_get_bytes(uint8_t *field, size_t field_size, const ProtobufCBinaryData *from)
{
    if (from->len != field_size)
        return RG_ERR_PROTOCOL;
    memcpy(field, from->data, field_size);
    return RG_OK;
}

enum rg_status rg_get_optional_bytes(uint8_t *field, size_t field_size, const ProtobufCBinaryData *from)
{
    return from->len ? rg_get_bytes(field, field_size, from) : RG_OK;
}

enum rg_status rg_get_indices(uint32_t to[RG_DEVICES_MAX], uint32_t *n, const uint32_t *from, size_t n_from)
{
    if (n_from > RG_DEVICES_MAX)
        return RG_ERR_LIMIT;
    if (n_from)
        memcpy(to, from, n_from * sizeof *to);
    *n = (uint32_t)n_from;
    return RG_OK;
}

ProtobufCBinaryData rg_pack_digest(const uint8_t digest[RG_DIGEST_SIZE])
{
    static const uint8_t none[RG_DIGEST_SIZE];
    return rg_bytes_of(digest, memcmp(digest, none, sizeof none) == 0 ? 0 : RG_DIGEST_SIZE);
}

void rg_pack_identity(Rg__Identity *to, const struct rg_identity *from)
{
    rg__identity__init(to);
    RG_PACK_FIELDS(IDENTITY_FIELDS)
}

enum rg_status rg_unpack_identity(struct rg_identity *to, const Rg__Identity *from)
{
    if (!from)
        return RG_OK;
    RG_UNPACK_FIELDS(IDENTITY_FIELDS)
    return RG_OK;
}

void rg_pack_driver(Rg__Driver *to, const struct rg_driver_info *from)
{
    rg__driver__init(to);
    RG_PACK_FIELDS(DRIVER_FIELDS)
}

enum rg_status rg_unpack_driver(struct rg_driver_info *to, const Rg__Driver *from)
{
    if (!from)
        return RG_OK;
    RG_UNPACK_FIELDS(DRIVER_FIELDS)
    return RG_OK;
}

void rg_pack_limits(Rg__Limits *to, const struct rg_limits_info *from)
{
    rg__limits__init(to);
    RG_PACK_FIELDS(LIMITS_FIELDS)
}

void rg_unpack_limits(struct rg_limits_info *to, const Rg__Limits *from)
{
    if (!from)
        return;
    RG_PACK_FIELDS(LIMITS_FIELDS)
}

size_t rg_pack_transports(char *names[RG_CONTROL_TRANSPORTS], const struct rg_transport_list *from)
{
    for (uint32_t i = 0; i < from->n; i++)
        names[i] = RG_TEXT(from->names[i]);
    return from->n;
}

enum rg_status rg_unpack_transports(struct rg_transport_list *to, char **names, size_t n)
{
    if (n > RG_CONTROL_TRANSPORTS)
        return RG_ERR_LIMIT;
    for (size_t i = 0; i < n; i++)
        RG_TRY(RG_GET_TEXT(to->names[i], names[i]));
    to->n = (uint32_t)n;
    return RG_OK;
}

enum rg_sharing rg_unpack_sharing(uint32_t sharing)
{
    return sharing < RG_SHARINGS ? (enum rg_sharing)sharing : RG_SHARING_UNKNOWN;
}

static void pack_device(Rg__Device *to, const struct rg_device_info *from)
{
    rg__device__init(to);
    RG_PACK_FIELDS(DEVICE_FIELDS)
    to->uuid = rg_bytes_of(from->uuid, sizeof from->uuid);
    if (from->mig)
        to->whole = rg_bytes_of(from->whole, sizeof from->whole);
    to->n_attributes = to->n_attribute_results = from->n_attributes;
    to->attributes = (int32_t *)from->attributes;
    to->attribute_results = (uint32_t *)from->attribute_results;
}

enum rg_status rg_pack_devices(struct rg_packed_devices *to, const struct rg_device_info *from, uint32_t n)
{
    if (n > RG_DEVICES_MAX)
        return RG_ERR_LIMIT;
    for (uint32_t i = 0; i < n; i++) {
        if (from[i].n_attributes > RG_CONTROL_ATTRIBUTES)
            return RG_ERR_LIMIT;
        pack_device(&to->devices[i], &from[i]);
        to->pointers[i] = &to->devices[i];
    }
    return RG_OK;
}

static enum rg_status unpack_device(struct rg_device_info *to, const Rg__Device *from)
{
    RG_UNPACK_FIELDS(DEVICE_FIELDS)
    RG_TRY(rg_get_optional_bytes(to->uuid, sizeof to->uuid, &from->uuid));
    RG_TRY(rg_get_optional_bytes(to->whole, sizeof to->whole, &from->whole));
    if (from->n_attributes > RG_CONTROL_ATTRIBUTES)
        return RG_ERR_LIMIT;
    if (from->n_attributes != from->n_attribute_results)
        return RG_ERR_PROTOCOL;
    to->n_attributes = (uint32_t)from->n_attributes;
    if (to->n_attributes) {
        memcpy(to->attributes, from->attributes, to->n_attributes * sizeof *to->attributes);
        memcpy(to->attribute_results, from->attribute_results,
               to->n_attributes * sizeof *to->attribute_results);
    }
    return RG_OK;
}

enum rg_status rg_unpack_devices(struct rg_device_info *to, Rg__Device **from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        RG_TRY(unpack_device(&to[i], from[i]));
    return RG_OK;
}

enum rg_status rg_pack_finish(const Rg__Control *control, void **data, size_t *size)
{
    size_t packed = rg__control__get_packed_size(control);
    if (packed > RG_MESSAGE_MAX - sizeof(struct rg_message_header))
        return RG_ERR_LIMIT;
    unsigned char *memory = malloc(sizeof(struct rg_message_header) + packed);
    if (!memory)
        return RG_ERR_NO_MEMORY;
    struct rg_message_header header = {.kind = RG_MESSAGE_CONTROL, .version = RG_PROTOCOL_MAJOR, .count = 1};
    memcpy(memory, &header, sizeof header);
    rg__control__pack(control, memory + sizeof header);
    *data = memory;
    *size = sizeof header + packed;
    return RG_OK;
}
