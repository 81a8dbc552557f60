/*
 * client_hello.c - what a client begins with, into protobuf and back. See fields.h.
 *
 * What belongs to one purpose alone is packed for it alone, and looked at for it alone.
 */
#include "proto/control/fields.h"

#include "common/base/addresses.h"

/* clang-format off */
#define HELLO_FIELDS(NUMBER, TEXT)                                                                           \
    RG_VERSION_FIELDS(NUMBER, TEXT) NUMBER(gpus) NUMBER(address_part) NUMBER(window_start)                   \
    NUMBER(window_size) NUMBER(capability) NUMBER(contexts) NUMBER(capabilities) NUMBER(bulk_session)        \
    NUMBER(bulk_connections) NUMBER(bulk_codecs) NUMBER(bulk_compression) NUMBER(bulk_adaptive)              \
    NUMBER(resume_session) NUMBER(resume_received) NUMBER(keep_alive) NUMBER(pool_lease)                     \
    NUMBER(peer_session)
#define SHARE_FIELDS(NUMBER, TEXT)                                                                           \
    NUMBER(memory_bytes) NUMBER(memory_millionths) NUMBER(compute_millionths) NUMBER(weight)                 \
    NUMBER(priority) NUMBER(idle_timeout_ns) NUMBER(exclusive) TEXT(project)
#define TARGET_FIELDS(NUMBER, TEXT)                                                                          \
    NUMBER(target_session) TEXT(target_address) TEXT(target_name)
/* clang-format on */

/* --- packing -------------------------------------------------------------------------------------------- */

static void pack_share(Rg__ClientHello *to, const struct rg_share_wish *from)
{
    RG_PACK_FIELDS(SHARE_FIELDS)
}

static void pack_peer(Rg__ClientHello *to, const struct rg_client_hello *from)
{
    to->peer_secret = rg_bytes_of(from->peer_secret, RG_PEER_SECRET);
    if (from->purpose == RG_PURPOSE_PEER)
        return;
    RG_PACK_FIELDS(TARGET_FIELDS)
    to->target_secret = rg_bytes_of(from->target_secret, RG_PEER_SECRET);
    to->target_authority =
        rg_bytes_of(from->target_authority, from->has_target_authority ? RG_PEER_AUTHORITY : 0);
}

static void pack_join(Rg__ClientHello *to, const struct rg_client_hello *from)
{
    if (from->purpose == RG_PURPOSE_JOIN)
        to->join_secret = rg_bytes_of(from->join_secret, RG_JOIN_SECRET);
    to->join_public_key = rg_bytes_of(from->join_public_key, RG_JOIN_PUBLIC_KEY);
    to->join_proof = rg_bytes_of(from->join_proof, from->join_proof_size);
}

enum rg_status rg_pack_client_hello(Rg__Control *control, const struct rg_client_hello *from, void **data,
                                    size_t *size)
{
    if (from->n_gpu_indices > RG_DEVICES_MAX || from->credential_size > RG_CONTROL_CREDENTIAL ||
        from->transports.n > RG_CONTROL_TRANSPORTS || from->question_size > RG_QUESTION_SIZE_MAX ||
        from->join_proof_size > RG_JOIN_PROOF)
        return RG_ERR_LIMIT;
    Rg__ClientHello hello, *to = &hello;
    rg__client_hello__init(to);
    RG_PACK_FIELDS(HELLO_FIELDS)
    pack_share(to, &from->share);
    to->api_digest = rg_pack_digest(from->api_digest);
    to->purpose = (Rg__ClientHello__Purpose)from->purpose;
    to->n_gpu_indices = from->n_gpu_indices;
    to->gpu_indices = (uint32_t *)from->gpu_indices;
    Rg__Identity identity;
    rg_pack_identity(&identity, &from->identity);
    to->identity = &identity;
    to->credential = rg_bytes_of(from->credential, from->credential_size);
    to->question = rg_bytes_of(from->question, from->question_size);
    char *transports[RG_CONTROL_TRANSPORTS];
    to->n_transports = rg_pack_transports(transports, &from->transports);
    to->transports = transports;
    if (from->purpose == RG_PURPOSE_BULK)
        to->bulk_token = rg_bytes_of(from->bulk_token, RG_BULK_TOKEN);
    if (from->purpose == RG_PURPOSE_RESUME)
        to->resume_token = rg_bytes_of(from->resume_token, RG_RESUME_TOKEN);
    if (from->purpose == RG_PURPOSE_INTRODUCE || from->purpose == RG_PURPOSE_PEER)
        pack_peer(to, from);
    if (from->purpose == RG_PURPOSE_JOIN || from->purpose == RG_PURPOSE_RENEW)
        pack_join(to, from);
    control->body_case = RG__CONTROL__BODY_CLIENT_HELLO;
    control->client_hello = to;
    return rg_pack_finish(control, data, size);
}

/* --- unpacking ------------------------------------------------------------------------------------------ */

static bool is_purpose(Rg__ClientHello__Purpose purpose)
{
    switch (purpose) {
    case RG__CLIENT_HELLO__PURPOSE__SESSION:
    case RG__CLIENT_HELLO__PURPOSE__INVENTORY:
    case RG__CLIENT_HELLO__PURPOSE__STATUS:
    case RG__CLIENT_HELLO__PURPOSE__NETPERF:
    case RG__CLIENT_HELLO__PURPOSE__MANAGEMENT:
    case RG__CLIENT_HELLO__PURPOSE__BULK:
    case RG__CLIENT_HELLO__PURPOSE__RESUME:
    case RG__CLIENT_HELLO__PURPOSE__JOIN:
    case RG__CLIENT_HELLO__PURPOSE__RENEW:
    case RG__CLIENT_HELLO__PURPOSE__STAY:
    case RG__CLIENT_HELLO__PURPOSE__USAGE:
    case RG__CLIENT_HELLO__PURPOSE__PAGE:
    case RG__CLIENT_HELLO__PURPOSE__PEER:
    case RG__CLIENT_HELLO__PURPOSE__INTRODUCE:
    case RG__CLIENT_HELLO__PURPOSE__INVITE:
    case RG__CLIENT_HELLO__PURPOSE__QUOTA:
    case RG__CLIENT_HELLO__PURPOSE__POOL:
        return true;
    default:
        return false;
    }
}

/* Whether it is none, or some that a process can have. */
static bool is_window(uint64_t start, uint64_t size)
{
    return (start == 0 && size == 0) ||
           (start % RG_ADDRESS_PAGE == 0 && size % RG_ADDRESS_PAGE == 0 && size >= RG_ADDRESS_WINDOW_LEAST &&
            start >= RG_ADDRESS_WINDOW_LEAST && start < RG_ADDRESS_END && size <= RG_ADDRESS_END - start);
}

/* Bytes of any number up to a limit. */
static enum rg_status get_bounded(uint8_t *field, size_t most, uint32_t *size,
                                  const ProtobufCBinaryData *from)
{
    if (from->len > most)
        return RG_ERR_LIMIT;
    if (from->len)
        memcpy(field, from->data, from->len);
    *size = (uint32_t)from->len;
    return RG_OK;
}

static enum rg_status unpack_share(struct rg_share_wish *to, const Rg__ClientHello *from)
{
    if (from->memory_millionths > 1000000 || from->compute_millionths > 1000000 ||
        from->weight > RG_SHARE_WEIGHT_MAX)
        return RG_ERR_LIMIT;
    if (from->priority > RG_SHARE_PRIORITY_HIGH)
        return RG_ERR_PROTOCOL;
    RG_UNPACK_FIELDS(SHARE_FIELDS)
    return RG_OK;
}

static enum rg_status unpack_peer(struct rg_client_hello *to, const Rg__ClientHello *from)
{
    RG_TRY(RG_GET_BYTES(to->peer_secret, &from->peer_secret));
    if (to->purpose == RG_PURPOSE_PEER)
        return RG_OK;
    RG_UNPACK_FIELDS(TARGET_FIELDS)
    RG_TRY(RG_GET_BYTES(to->target_secret, &from->target_secret));
    to->has_target_authority = from->target_authority.len != 0;
    return rg_get_optional_bytes(to->target_authority, RG_PEER_AUTHORITY, &from->target_authority);
}

static enum rg_status unpack_join(struct rg_client_hello *to, const Rg__ClientHello *from)
{
    if (to->purpose == RG_PURPOSE_JOIN)
        RG_TRY(RG_GET_BYTES(to->join_secret, &from->join_secret));
    RG_TRY(RG_GET_BYTES(to->join_public_key, &from->join_public_key));
    if (from->join_proof.len == 0)
        return RG_ERR_PROTOCOL;
    return get_bounded(to->join_proof, RG_JOIN_PROOF, &to->join_proof_size, &from->join_proof);
}

enum rg_status rg_unpack_client_hello(struct rg_client_hello *to, const Rg__ClientHello *from)
{
    if (!is_purpose(from->purpose) || !is_window(from->window_start, from->window_size) ||
        from->capability >= 1000)
        return RG_ERR_PROTOCOL;
    if (from->gpus > RG_DEVICES_MAX || from->address_part >= RG_SERVERS_MAX)
        return RG_ERR_LIMIT;
    RG_UNPACK_FIELDS(HELLO_FIELDS)
    RG_TRY(unpack_share(&to->share, from));
    RG_TRY(rg_get_optional_bytes(to->api_digest, RG_DIGEST_SIZE, &from->api_digest));
    to->purpose = (enum rg_purpose)from->purpose;
    RG_TRY(rg_get_indices(to->gpu_indices, &to->n_gpu_indices, from->gpu_indices, from->n_gpu_indices));
    RG_TRY(rg_unpack_identity(&to->identity, from->identity));
    RG_TRY(get_bounded(to->credential, RG_CONTROL_CREDENTIAL, &to->credential_size, &from->credential));
    RG_TRY(get_bounded(to->question, RG_QUESTION_SIZE_MAX, &to->question_size, &from->question));
    if (to->purpose == RG_PURPOSE_BULK)
        RG_TRY(RG_GET_BYTES(to->bulk_token, &from->bulk_token));
    if (to->purpose == RG_PURPOSE_RESUME)
        RG_TRY(RG_GET_BYTES(to->resume_token, &from->resume_token));
    if (to->purpose == RG_PURPOSE_PEER || to->purpose == RG_PURPOSE_INTRODUCE)
        RG_TRY(unpack_peer(to, from));
    if (to->purpose == RG_PURPOSE_JOIN || to->purpose == RG_PURPOSE_RENEW)
        RG_TRY(unpack_join(to, from));
    return rg_unpack_transports(&to->transports, from->transports, from->n_transports);
}
