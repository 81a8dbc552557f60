/*
 * fields.h - what the messages' files share: fields that are the same in a typed message and on the wire, and the parts that several
 * messages have.
 *
 * A list names fields that both forms call the same; packing and unpacking go through the same list, so that none is forgotten in one
 * direction. What needs a check, or is named differently, is not in a list. PACK and UNPACK expect variables `to` and `from`.
 *
 * Packing builds protobuf structs on the stack that point into the typed message. The pack functions below cannot fail; the unpack ones
 * return the status of the first violation (RG_ERR_PROTOCOL, RG_ERR_LIMIT). Nothing has state: any thread.
 */
#ifndef RG_PROTO_CONTROL_FIELDS_H
#define RG_PROTO_CONTROL_FIELDS_H

#include "proto/control/control.h"

#include "proto/control/control.pb-c.h"

#include <string.h>

/* protobuf-c's fields are not const; packing only reads them. */
#define RG_TEXT(field)             ((char *)(field))
#define RG_GET_TEXT(field, text)   rg_get_text((field), sizeof(field), (text))
#define RG_GET_BYTES(field, bytes) rg_get_bytes((field), sizeof(field), (bytes))

#define RG_COPY_FIELD(name)  to->name = from->name;
#define RG_PACK_TEXT(name)   to->name = RG_TEXT(from->name);
#define RG_UNPACK_TEXT(name) RG_TRY(RG_GET_TEXT(to->name, from->name));

#define RG_PACK_FIELDS(list)   list(RG_COPY_FIELD, RG_PACK_TEXT)
#define RG_UNPACK_FIELDS(list) list(RG_COPY_FIELD, RG_UNPACK_TEXT)

#define RG_VERSION_FIELDS(NUMBER, TEXT) NUMBER(protocol_major) NUMBER(protocol_minor) TEXT(software)

static inline ProtobufCBinaryData rg_bytes_of(const void *data, size_t size)
{
    return (ProtobufCBinaryData){.len = size, .data = (uint8_t *)data};
}

/** The text cleaned (rg_control_text). RG_ERR_LIMIT: it is too long. */
enum rg_status rg_get_text(char *field, size_t field_size, const char *text);
/** Exactly as many bytes as the field has; RG_ERR_PROTOCOL otherwise. */
enum rg_status rg_get_bytes(uint8_t *field, size_t field_size, const ProtobufCBinaryData *from);
/** The same, or none at all. */
enum rg_status rg_get_optional_bytes(uint8_t *field, size_t field_size, const ProtobufCBinaryData *from);
enum rg_status rg_get_indices(uint32_t to[RG_DEVICES_MAX], uint32_t *n, const uint32_t *from, size_t n_from);

/** An all-zero digest says that there is none. */
ProtobufCBinaryData rg_pack_digest(const uint8_t digest[RG_DIGEST_SIZE]);
void rg_pack_identity(Rg__Identity *to, const struct rg_identity *from);
enum rg_status rg_unpack_identity(struct rg_identity *to, const Rg__Identity *from);
void rg_pack_driver(Rg__Driver *to, const struct rg_driver_info *from);
enum rg_status rg_unpack_driver(struct rg_driver_info *to, const Rg__Driver *from);
void rg_pack_limits(Rg__Limits *to, const struct rg_limits_info *from);
void rg_unpack_limits(struct rg_limits_info *to, const Rg__Limits *from);
/** How many: names points at them. */
size_t rg_pack_transports(char *names[RG_CONTROL_TRANSPORTS], const struct rg_transport_list *from);
enum rg_status rg_unpack_transports(struct rg_transport_list *to, char **names, size_t n);
/** A sharing without a name here is unknown. */
enum rg_sharing rg_unpack_sharing(uint32_t sharing);

/** Devices as protobuf wants them. */
struct rg_packed_devices {
    Rg__Device devices[RG_DEVICES_MAX], *pointers[RG_DEVICES_MAX];
};
/** RG_ERR_LIMIT: more devices or attributes than there may be. */
enum rg_status rg_pack_devices(struct rg_packed_devices *to, const struct rg_device_info *from, uint32_t n);
enum rg_status rg_unpack_devices(struct rg_device_info *to, Rg__Device **from, size_t n);

/** Header and protobuf in memory that the caller frees. */
enum rg_status rg_pack_finish(const Rg__Control *control, void **data, size_t *size);

/* Each message's own file. Packing ends with rg_pack_finish; what is variable in an unpacked message is in *storage. */
enum rg_status rg_pack_client_hello(Rg__Control *control, const struct rg_client_hello *from, void **data,
                                    size_t *size);
enum rg_status rg_unpack_client_hello(struct rg_client_hello *to, const Rg__ClientHello *from);
enum rg_status rg_pack_server_hello(Rg__Control *control, const struct rg_server_hello *from, void **data,
                                    size_t *size);
enum rg_status rg_unpack_server_hello(struct rg_server_hello *to, void **storage,
                                      const Rg__ServerHello *from);
enum rg_status rg_pack_inventory(Rg__Control *control, const struct rg_inventory *from, void **data,
                                 size_t *size);
enum rg_status rg_unpack_inventory(struct rg_inventory *to, void **storage, const Rg__Inventory *from);

#endif
