/*
 * control.h - control messages: the handshake of a session, inventory, refusals, the end of a session.
 *
 * A control message is a struct rg_message_header (kind RG_MESSAGE_CONTROL) and a protobuf `Control`
 * (control.proto). This layer turns typed structs into bytes and back; transport/control.h sends and receives
 * them. Unpacking checks every length, count and enum against the limits below before anything is believed,
 * and cleans text: what people get to see holds no control characters and is valid UTF-8.
 *
 * Happy path: client packs RG_CONTROL_CLIENT_HELLO; the server answers RG_CONTROL_SERVER_HELLO (a session),
 * RG_CONTROL_INVENTORY (a question), or RG_CONTROL_REFUSAL. Failures: RG_ERR_PROTOCOL (not a control message,
 * or malformed), RG_ERR_LIMIT (a string or a count too long), RG_ERR_NO_MEMORY. Any thread; there is no
 * state.
 */
#ifndef RG_PROTO_CONTROL_CONTROL_H
#define RG_PROTO_CONTROL_CONTROL_H

#include "common/base/limits.h"
#include "common/base/status.h"
#include "proto/management/management.h"
#include "proto/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Limits of control messages; a text's includes its NUL. */
#define RG_CONTROL_TEXT       256  /* names, hosts, commands */
#define RG_CONTROL_REASON     1024 /* a sentence for people */
#define RG_CONTROL_CREDENTIAL 4096
#define RG_CONTROL_TRANSPORTS 8
#define RG_CONTROL_SESSIONS   1024 /* sessions listed in an inventory */
#define RG_CONTROL_OPCODES    8192
#define RG_CONTROL_OPCODE     128 /* an operation's name */
#define RG_DIGEST_SIZE        32
#define RG_CONTROL_ADDRESSES  8
#define RG_CONTROL_NUMBER     48 /* an address as a number, IPv4 or IPv6 */
#define RG_UPGRADE_TOKEN      16
#define RG_CONTROL_ATTRIBUTES 256 /* of a device */
#define RG_BULK_TOKEN         16
#define RG_RESUME_TOKEN       16
#define RG_PEER_SECRET        16
#define RG_PEER_AUTHORITY     32 /* a SHA-256 */
#define RG_JOIN_SECRET        16
#define RG_JOIN_PUBLIC_KEY    65   /* a point of P-256, not compressed */
#define RG_JOIN_PROOF         80   /* an ECDSA signature, DER */
#define RG_CONTROL_PEM        8192 /* certificates as text, with the NUL */

enum rg_control_kind {
    RG_CONTROL_CLIENT_HELLO = 1,
    RG_CONTROL_SERVER_HELLO,
    RG_CONTROL_REFUSAL,
    RG_CONTROL_INVENTORY,
    RG_CONTROL_SESSION_END,
    RG_CONTROL_UPGRADE,
    RG_CONTROL_ANSWER,
    RG_CONTROL_RESUMED,
    RG_CONTROL_JOINED,
};

enum rg_purpose {
    RG_PURPOSE_SESSION = 1,
    RG_PURPOSE_INVENTORY,  /* devices and limits */
    RG_PURPOSE_STATUS,     /* the same, and the sessions that run */
    RG_PURPOSE_NETPERF,    /* an echo and a sink to measure the connection with (proto/netperf.h) */
    RG_PURPOSE_MANAGEMENT, /* one question to the management library (proto/management/management.h) */
    RG_PURPOSE_BULK = 70,  /* one more connection of a session, for bulk data */
    RG_PURPOSE_RESUME = 8, /* a session that has lost its connection */
    RG_PURPOSE_JOIN = 9,   /* a certificate for a key, against a token's secret */
    RG_PURPOSE_RENEW = 10, /* a new certificate for the name in the one shown */
    RG_PURPOSE_STAY =
        11, /* the certificate shown is for a session that runs, which then lasts as long as it */
    RG_PURPOSE_USAGE = 120,     /* what has been used (proto/accounts/usage.h) */
    RG_PURPOSE_QUOTA = 121,     /* what may be used */
    RG_PURPOSE_PAGE = 122,      /* a link to the server's status page, for who asks */
    RG_PURPOSE_PEER = 140,      /* a connection between two servers, for sessions of one client */
    RG_PURPOSE_INTRODUCE = 141, /* make one, to the server that is named */
    RG_PURPOSE_INVITE = 142,    /* an invitation of a session of the client's, for another one of its */
    RG_PURPOSE_POOL = 130,      /* something of the pool that the server is in (docs/pool.md) */
};

enum rg_refusal_code {
    RG_REFUSAL_UNKNOWN,
    RG_REFUSAL_VERSION,
    RG_REFUSAL_FULL,
    RG_REFUSAL_NO_SUCH_GPU,
    RG_REFUSAL_SHUTTING_DOWN,
    RG_REFUSAL_DRIVER,
    RG_REFUSAL_UNAUTHORISED,
    RG_REFUSAL_MALFORMED,
    RG_REFUSAL_UNSUPPORTED,
    RG_REFUSAL_INTERNAL,
    RG_REFUSAL_NO_SUCH_SESSION = 80,
    RG_REFUSAL_LIMIT = 110,     /* more of a GPU than this user may have, or than it has */
    RG_REFUSAL_QUOTA = 120,     /* more than a quota allows */
    RG_REFUSAL_SUSPENDED = 130, /* its lease of the pool is another's for a while: to be asked again */
};

/** How many codes there are. */
enum { RG_REFUSALS = 14 };

/* ClientHello and ServerHello: `capabilities`. Unknown bits are ignored. */
#define RG_CONTROL_CAP_RESUME                                                                                \
    (1ull << 0) /* both: the session survives its connection (transport/resumable/resumable.h) */
#define RG_CONTROL_CAP_AWAITED (1ull << 1) /* the server knows RG_RECORD_AWAITED (proto/wire.h) */
#define RG_CONTROL_CAP_DELTA   (1ull << 2) /* the server knows RG_MESSAGE_DELTA (proto/wire.h) */
#define RG_CONTROL_CAP_KEEP_ALIVE                                                                            \
    (1ull << 3) /* the server takes RG_ANSWER_ALIVE, and says RG_NOTICE_ALIVE (proto/wire.h) */
#define RG_CONTROL_CAP_UPGRADE                                                                               \
    (1ull                                                                                                    \
     << 4) /* the server lets a session that goes on over TCP be upgraded again (PROTOCOL.md, Resumption) */
#define RG_CONTROL_CAP_CONTROL                                                                               \
    (1ull                                                                                                    \
     << 6) /* the server takes a control connection for a session; in a hello of RESUME: that is all it brings */
#define RG_CONTROL_CAP_SAY (1ull << 5) /* the client takes RG_NOTICE_SAY (proto/wire.h) */
#define RG_CONTROL_CAP_GPU_PATH                                                                              \
    (1ull << 31) /* the client wants to know how bulk data gets into the GPUs' memory (proto/gpu_path.h) */
#define RG_CONTROL_CAP_TIMES                                                                                 \
    (1ull << 30) /* the client asks for times of its records; the server measures them */

/** What a client says of itself: shown to people, never believed (the proved name is identity_name of a session). */
struct rg_identity {
    char host[RG_CONTROL_TEXT];
    char user[RG_CONTROL_TEXT];
    char command[RG_CONTROL_TEXT];
    uint32_t pid;
};

/** How network devices could reach a GPU's memory (rg_device_info.direct). */
enum { RG_CONTROL_GPUDIRECT_DMABUF = 1u << 0, RG_CONTROL_GPUDIRECT_PEER = 1u << 1 };

/** What of its process's memory, not allocated for the device, a kernel reaches (rg_device_info.host_reach). */
enum { RG_CONTROL_REACH_PAGEABLE = 1u << 0, RG_CONTROL_REACH_PAGE_TABLES = 1u << 1 };

struct rg_device_info {
    uint32_t ordinal; /* on the server */
    char name[RG_CONTROL_TEXT];
    uint8_t uuid[16];
    uint32_t compute_major, compute_minor;
    uint64_t memory_total;
    uint64_t memory_free;
    bool memory_free_known;
    char pci[32];
    uint32_t direct;            /* RG_CONTROL_GPUDIRECT_* */
    uint32_t host_reach;        /* RG_CONTROL_REACH_* */
    uint64_t memory_guaranteed; /* to sessions */
    uint32_t warm_workers;      /* ready for sessions that are to come */
    uint64_t memory_warm;       /* that they hold */
    /* where it is; groups: a number that those share which are linked with each other. One more than each: 0: none, not known */
    uint32_t numa_node, nvlink_group, pcie_group;
    bool mig;                                /* it is an instance of a GPU that MIG has divided … */
    uint32_t gpu_instance, compute_instance; /* … with these numbers … */
    uint8_t whole[16];                       /* … and this is that GPU's UUID */
    uint32_t n_attributes;                   /* 0: not told */
    int32_t attributes[RG_CONTROL_ATTRIBUTES];
    uint32_t attribute_results[RG_CONTROL_ATTRIBUTES];
};

struct rg_driver_info {
    char kind[16]; /* "nvidia", "soft", "other" */
    char path[RG_CONTROL_REASON];
    uint32_t version; /* cuDriverGetVersion */
    char release[32]; /* as its maker counts: "580.65.06"; "": not known */
};

struct rg_limits_info {
    uint32_t message_bytes;
    uint32_t bulk_bytes;
    uint32_t sessions;
};

enum rg_share_priority {
    RG_SHARE_PRIORITY_DEFAULT, /* as the server has it */
    RG_SHARE_PRIORITY_LOW,
    RG_SHARE_PRIORITY_NORMAL,
    RG_SHARE_PRIORITY_HIGH,
};

/** A share of a GPU as a client wishes it; zeros: as the server has it. At most one of the first two is set. */
struct rg_share_wish {
    uint64_t memory_bytes;       /* of each device */
    uint32_t memory_millionths;  /* of each device's memory */
    uint32_t compute_millionths; /* of each device's time, at most */
    uint32_t weight;             /* 1 to RG_SHARE_WEIGHT_MAX */
    enum rg_share_priority priority;
    uint64_t idle_timeout_ns;
    uint32_t exclusive; /* 0 or 1: no other session on its devices */
    char project[RG_CONTROL_TEXT];
};

enum rg_share_state {
    RG_SHARE_UNKNOWN,
    RG_SHARE_RUNNING,
    RG_SHARE_IDLE,
    RG_SHARE_SUSPENDING,
    RG_SHARE_SUSPENDED,
    RG_SHARE_RESUMING,
    RG_SHARE_WAITING, /* for its client, which has lost its connection */
    RG_SHARE_STATES
};

/** How the work of sessions that have a GPU is ordered. */
enum rg_sharing {
    RG_SHARING_UNKNOWN,   /* an older server does not tell */
    RG_SHARING_TURNS,     /* the server gives turns */
    RG_SHARING_MPS,       /* by NVIDIA's multi-process service */
    RG_SHARING_EXCLUSIVE, /* there is one session */
    RG_SHARINGS
};

/** What a session has and uses of one device; zeros: not known, or no limit. */
struct rg_share_info {
    uint64_t memory_limit, memory_used, memory_peak; /* bytes */
    uint64_t busy_ns, throttled_ns;                  /* of its work */
};

struct rg_session_info {
    uint64_t id;
    struct rg_identity identity;
    uint64_t since_unix;
    uint32_t n_devices;
    uint32_t devices[RG_DEVICES_MAX];
    char peer[RG_CONTROL_TEXT];
    char identity_name[RG_CONTROL_TEXT]; /* who the client has proved to be; "": nobody */
    bool encrypted;
    uint32_t n_shares; /* as many as devices, or none */
    struct rg_share_info shares[RG_DEVICES_MAX];
    /* its cap of each device's time, or by MPS of its multiprocessors, 0: none; 0: not known */
    uint32_t compute_millionths, weight;
    enum rg_share_priority priority;
    enum rg_share_state state;
    uint64_t idle_timeout_ns, launches;
    char project[RG_CONTROL_TEXT];
    bool overcommitted; /* its memory limits are no guarantees */
    bool exclusive;     /* it has its devices alone */
    enum rg_sharing sharing;
};

struct rg_transport_list {
    uint32_t n;
    char names[RG_CONTROL_TRANSPORTS][16];
};

struct rg_client_hello {
    uint32_t protocol_major, protocol_minor;
    char software[RG_CONTROL_TEXT];
    uint8_t api_digest[RG_DIGEST_SIZE]; /* zeros: none */
    enum rg_purpose purpose;
    uint32_t gpus; /* how many; 0: all */
    uint32_t n_gpu_indices;
    uint32_t gpu_indices[RG_DEVICES_MAX];
    struct rg_share_wish share;
    uint32_t capability; /* compute capability * 10 that a software device should report; 0: its own choice */
    uint32_t address_part; /* where device memory should lie, so that servers of one client do not collide */
    uint64_t window_start,
        window_size;   /* of addresses that the client keeps free for device memory; size 0: none */
    uint64_t contexts; /* devices whose primary contexts are about to be retained, a bit each */
    struct rg_identity identity;
    uint64_t capabilities;
    uint32_t credential_size;
    uint8_t credential[RG_CONTROL_CREDENTIAL];
    struct rg_transport_list transports;
    uint64_t bulk_session; /* RG_PURPOSE_BULK */
    uint8_t bulk_token[RG_BULK_TOKEN];
    uint32_t bulk_connections, bulk_codecs, bulk_compression; /* RG_PURPOSE_SESSION */
    bool bulk_adaptive;
    uint32_t question_size; /* RG_PURPOSE_MANAGEMENT, RG_PURPOSE_USAGE, RG_PURPOSE_QUOTA, RG_PURPOSE_POOL */
    uint8_t question[RG_QUESTION_SIZE_MAX];
    uint64_t resume_session; /* RG_PURPOSE_RESUME, RG_PURPOSE_STAY */
    uint8_t resume_token[RG_RESUME_TOKEN];
    uint64_t resume_received;
    uint32_t keep_alive; /* seconds that it wants to be able to be silent; 0: as the server does by itself */
    uint64_t pool_lease; /* of the pool, by which it is begun: the GPUs are the lease's; 0: none */
    uint64_t
        peer_session; /* RG_PURPOSE_PEER, RG_PURPOSE_INTRODUCE, RG_PURPOSE_INVITE; RG_PURPOSE_SESSION: beside which it is to begin; 0: none */
    uint8_t peer_secret[RG_PEER_SECRET];
    uint64_t target_session; /* RG_PURPOSE_INTRODUCE, as all that follow */
    uint8_t target_secret[RG_PEER_SECRET];
    char target_address[RG_CONTROL_TEXT]; /* "": the same server */
    char target_name[RG_CONTROL_TEXT];
    bool has_target_authority; /* by TLS */
    uint8_t target_authority[RG_PEER_AUTHORITY];
    uint8_t join_secret[RG_JOIN_SECRET];         /* RG_PURPOSE_JOIN */
    uint8_t join_public_key[RG_JOIN_PUBLIC_KEY]; /* RG_PURPOSE_JOIN, RG_PURPOSE_RENEW */
    uint32_t join_proof_size;
    uint8_t join_proof[RG_JOIN_PROOF];
};

struct rg_server_hello {
    uint32_t protocol_major, protocol_minor;
    char software[RG_CONTROL_TEXT];
    uint8_t api_digest[RG_DIGEST_SIZE];
    uint32_t n_opcode_names;   /* 0 if the digests are equal */
    const char **opcode_names; /* by the server's opcode; "": not in use */
    uint32_t n_devices;
    struct rg_device_info *devices;
    struct rg_driver_info driver;
    struct rg_limits_info limits;
    uint64_t session;
    struct rg_transport_list transports;
    uint64_t capabilities;
    uint32_t n_addresses; /* of the transports that the session can move to */
    char addresses[RG_CONTROL_ADDRESSES][RG_CONTROL_TEXT];
    bool has_rails;                               /* address_rails are told */
    uint32_t address_rails[RG_CONTROL_ADDRESSES]; /* the adapters that have the addresses, numbered from 0 */
    uint8_t move_token[RG_UPGRADE_TOKEN];         /* meant only if there are addresses */
    uint32_t
        n_tcp_addresses; /* by which the session's other connections may come, beside the one it began at */
    char tcp_addresses[RG_CONTROL_ADDRESSES][RG_CONTROL_NUMBER];
    uint32_t tcp_rails[RG_CONTROL_ADDRESSES]; /* the links that have them, numbered from 0 */
    uint64_t contexts;                        /* those that are ready */
    uint8_t answers[RG_DIGEST_SIZE];   /* of all that answers about images depend on; zeros: not told */
    uint8_t bulk_token[RG_BULK_TOKEN]; /* meant only if there are connections */
    uint32_t bulk_connections, bulk_codecs;
    uint8_t resume_token[RG_RESUME_TOKEN]; /* with RG_CONTROL_CAP_RESUME */
    uint32_t resume_seconds;
    uint32_t keep_alive; /* seconds after which a silent client's session ends; 0: never */
    char host[RG_CONTROL_TEXT];
    enum rg_sharing sharing;     /* of the session's devices */
    uint32_t compute_millionths; /* as in rg_session_info */
};

struct rg_upgrade_message {
    char transport[16];
    bool has_token;
    uint8_t token[RG_UPGRADE_TOKEN];
    uint32_t rails; /* connections for bulk data that will follow; of a rail: its number, from 0 */
    bool rails_always;
};

struct rg_resumed {
    uint64_t received;
};

struct rg_refusal {
    enum rg_refusal_code code;
    char reason[RG_CONTROL_REASON];
    char software[RG_CONTROL_TEXT];
    uint32_t protocol_major, protocol_minor;
};

/** What the server's machine says of itself; zeros and empty texts: it did not say. */
struct rg_machine_info {
    uint64_t clock_ns; /* its time of day when it answered */
    char kernel[RG_CONTROL_TEXT];
    char rails[RG_CONTROL_REASON];     /* devices that sessions use, best first */
    char rdma[RG_CONTROL_REASON];      /* devices and libraries, a sentence for people */
    char tcp_rails[RG_CONTROL_REASON]; /* addresses that sessions by TLS can use together */
};

/* What confines the workers. */
struct rg_sandbox_info {
    char mode[RG_CONTROL_TEXT]; /* "": an older server does not tell */
    char holds[RG_CONTROL_REASON], missing[RG_CONTROL_REASON];
};

struct rg_inventory {
    char software[RG_CONTROL_TEXT];
    char host[RG_CONTROL_TEXT];
    uint32_t protocol_major, protocol_minor;
    struct rg_driver_info driver;
    uint32_t n_devices;
    struct rg_device_info *devices;
    uint32_t n_sessions; /* listed */
    struct rg_session_info *sessions;
    uint32_t sessions_running;
    struct rg_limits_info limits;
    struct rg_machine_info machine;
    bool unauthenticated; /* the server takes clients that prove nothing */
    struct rg_sandbox_info sandbox;
    char pool[RG_CONTROL_TEXT]; /* that the server is in; "": none */
};

/* To a question; empty to RG_PURPOSE_STAY. */
struct rg_management_answer {
    const void *data;
    uint32_t size; /* at most RG_ANSWER_SIZE_MAX */
};

/* To RG_PURPOSE_JOIN and RG_PURPOSE_RENEW. */
struct rg_joined {
    char certificate[RG_CONTROL_PEM];
    char authority[RG_CONTROL_PEM];
    char user[RG_CONTROL_TEXT]; /* the name in the certificate */
};

struct rg_session_end {
    char reason[RG_CONTROL_REASON];
};

/** One control message. Pointers inside one that was unpacked belong to `storage`; rg_control_fini frees
 * them. */
struct rg_control {
    enum rg_control_kind kind;
    union {
        struct rg_client_hello client_hello;
        struct rg_server_hello server_hello;
        struct rg_refusal refusal;
        struct rg_inventory inventory;
        struct rg_session_end session_end;
        struct rg_upgrade_message upgrade;
        struct rg_management_answer answer;
        struct rg_resumed resumed;
        struct rg_joined joined;
    };
    void *storage;
};

/**
 * Packs `message` with its header into memory that the caller frees. Texts must end within their fields.
 * RG_ERR_LIMIT: a count is above its limit or the whole would not fit into RG_MESSAGE_MAX.
 */
RG_MUST_CHECK enum rg_status rg_control_pack(const struct rg_control *message, void **data, size_t *size);

/**
 * Takes apart `size` bytes that begin with the message header. On success `out` is to be released by
 * rg_control_fini; on failure it holds nothing. Logs nothing: the caller knows whose bytes these were.
 */
RG_MUST_CHECK enum rg_status rg_control_unpack(const void *data, size_t size, struct rg_control *out);
void rg_control_fini(struct rg_control *message); /* a zeroed one is fine */

/** Fills in this software's protocol version and name, and who this process is (host, user, pid, command
 * line). */
void rg_client_hello_init(struct rg_control *message, enum rg_purpose purpose);
void rg_server_hello_init(struct rg_control *message);
/** A refusal with its sentence. Returns RG_ERR_REFUSED, for who returns that with it. */
enum rg_status rg_refusal_init(struct rg_control *message, enum rg_refusal_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** A Move that names the transport a session goes on with; a token can be added. */
void rg_upgrade_init(struct rg_control *message, const char *transport);
void rg_resumed_init(struct rg_control *message, uint64_t received);
void rg_session_end_init(struct rg_control *message, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** "low", "normal", "high"; "default". Static storage. */
const char *rg_share_priority_name(enum rg_share_priority priority);
/** False: the text is none of the first three. */
bool rg_share_priority_parse(const char *text, enum rg_share_priority *out);
/** "running", "idle", …; "unknown". Static storage. */
const char *rg_share_state_name(enum rg_share_state state);

/** "turns", "mps", "exclusive"; "unknown". Static storage. */
const char *rg_sharing_name(enum rg_sharing sharing);

/** "version", "full", …: for logs and JSON. Static storage. */
const char *rg_refusal_name(enum rg_refusal_code code);
/** The codes numbered from 0 to RG_REFUSALS - 1; one that is not known is RG_REFUSAL_UNKNOWN, the first. */
uint32_t rg_refusal_place(enum rg_refusal_code code);
enum rg_refusal_code rg_refusal_at(uint32_t place);

/** Whether two tokens are equal, in a time that does not tell where they differ. */
bool rg_token_equal(const uint8_t *a, const uint8_t *b, size_t size);

/**
 * Copies text of `size` bytes into field (field_size bytes with the NUL), replacing control characters and
 * what is not UTF-8 by '?'. Cuts at a character's boundary if it is too long.
 */
void rg_control_text(char *field, size_t field_size, const char *text, size_t size);

#endif
