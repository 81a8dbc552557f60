/* limits.h - every limit that one side holds the other to, and the sizes both must agree on. */
#ifndef RG_COMMON_BASE_LIMITS_H
#define RG_COMMON_BASE_LIMITS_H

#define RG_DEFAULT_PORT 7600

/* Transport (transport/transport.h) */
#define RG_MESSAGE_MAX (256u * 1024)      /* bytes of a message without its bulk part */
#define RG_BULK_MAX    (4u * 1024 * 1024) /* bytes of bulk data attached to one message */

/* Session */
#define RG_SERVERS_MAX          16         /* servers of one client process */
#define RG_CLIENT_THREADS_MAX   65536u     /* threads of one client process that have called CUDA and live */
#define RG_OBJECTS_MAX          (1u << 22) /* live objects of one session */
#define RG_NOTICE_SAY_MAX       512u       /* bytes of a server's line for a program's standard error */
#define RG_NAME_MAX             65536u     /* bytes of a C string in a call, with its NUL */
#define RG_IMAGE_MAX            (2ull << 30) /* bytes of a module image */
#define RG_PARAMS_MAX           32768u /* bytes of the parameters of one kernel launch (CUDA 13: 32764) */
#define RG_ARRAY_MAX            65536u /* elements of an array in a call */
#define RG_REPLY_INLINE         65536u /* bytes of a reply that are not bulk */
#define RG_FUNCTIONS_ANSWER_MAX (96u << 10) /* bytes of an answer behind which no more functions are told */
#define RG_QUEUE_SLOW           (64ull << 20) /* bytes of batches that lie unexecuted before the reader slows down */
#define RG_QUEUE_MAX            (4ull << 30) /* and before the session ends */
#define RG_ERRORS_UNREAD_MAX                                                                                 \
    64u /* messages that a client has not read, beyond which no error is told by itself */
#define RG_SUBSCRIPTIONS_MAX 4096u /* events and streams that a session watches at once */

/* Server */
#define RG_SESSIONS_DEFAULT  64    /* sessions at once, unless configured */
#define RG_HELLO_MAX         16384 /* bytes of a client's first message */
#define RG_HELLO_TIMEOUT_MS  10000 /* an unfinished handshake is dropped after this */
#define RG_DEVICES_MAX       64
#define RG_RECONNECT_S       60 /* seconds that a client which has lost its connection is waited for, by auto */
#define RG_KEEP_ALIVE_S      120  /* seconds that a peer may be silent in a session, unless configured */
#define RG_KEEP_ALIVE_MOST_S 3600 /* that a client may ask for */

/* HTTP (server/http/) */
#define RG_HTTP_CONNECTIONS_MAX        64    /* at once */
#define RG_HTTP_CONNECTIONS_OF_ONE_MAX 32    /* of one address */
#define RG_HTTP_MEMORY_MAX             16384 /* bytes of a connection: of a request's line and headers, mostly */
#define RG_HTTP_BODY_MAX               1024 /* bytes of a request's body, which only actions have */
#define RG_HTTP_LOOKS_OF_STRANGERS     20   /* a second, at how well the server is */
#define RG_LOGINS_MAX                  256  /* links to the page that are not used yet, and cookies */
#define RG_LOGINS_OF_ONE_MAX           8    /* of these, of one user */
#define RG_HTTP_REQUEST_S              10 /* that a request may take to arrive, and its answer to be taken */

/* Transport */
#define RG_PIECE          (256u << 10)             /* bytes of bulk data that travel together on a channel */
#define RG_PIECES_MAX     (RG_BULK_MAX / RG_PIECE) /* pieces of the bulk data of one message */
#define RG_RDMA_READY_MAX 16                       /* complete connections that nobody has accepted yet */
#define RG_MULTIRAIL_MAX  8                        /* rails */
#define RG_RESUMABLE_UNACKNOWLEDGED_MAX                                                                      \
    (64u << 20) /* bytes that are kept for the peer before its acknowledgement is waited for */
#define RG_RESUMABLE_UNACKNOWLEDGED_LIMIT (512u << 20) /* bytes that are kept in all */

/* TLS */
#define RG_TLS_HANDSHAKE_MAX (64u << 10)  /* bytes that a peer sends in a handshake */
#define RG_TLS_CHAIN_MAX     8            /* certificates from a peer's to the authority's */
#define RG_TLS_FILE_MAX      (256u << 10) /* bytes of a file of certificates, or of a key */
#define RG_TLS_UPDATES_MAX   32u          /* changes of keys without data between them */
#define RG_TLS_RECORDS_MAX   23726566u    /* records under one key: 2^24.5 (RFC 8446, 5.5) */

/* Contents of calls */
#define RG_GRAPH_DEPTH_MAX            32u        /* conditional nodes in each other */
#define RG_GRAPH_CONDITIONS_MAX       4096u      /* of one graph */
#define RG_GRAPH_BODIES_MAX           4096u      /* of one conditional node */
#define RG_GRAPH_STEPS_MAX            1048576u   /* steps of one graph */
#define RG_PREALLOC_MAX               32u        /* blocks ready of one kind */
#define RG_PREALLOC_SLABS_MAX         4096u      /* kinds of blocks at once */
#define RG_TIMES_MAX                  (1u << 20) /* that a worker keeps; what comes then is only counted */
#define RG_JIT_OPTIONS_MAX            64u        /* of a load or a linker */
#define RG_JIT_LOG_MAX                (RG_REPLY_INLINE / 2 - 64) /* bytes of a log: both travel in one answer */
#define RG_RESOURCES_MAX              4096  /* device resources that a session has been told of */
#define RG_OUT_OF_ORDER_FUNCTIONS_MAX 4096u /* functions that are enumerated out of order */
#define RG_COREDUMP_NAME_MAX          1024u /* bytes of a file's or pipe's name, with its end */

/* NCCL */
#define RG_NCCL_COMMS_MAX       4096u /* communicators of a session at once */
#define RG_NCCL_GROUP_MAX       2048u /* calls of a group */
#define RG_NCCL_BEGINNINGS_MAX  256u  /* communicators that begin in a group */
#define RG_NCCL_EARLY_MAX       65536 /* messages of other processes before a rank here makes its call */
#define RG_NCCL_EARLY_BYTES_MAX ((size_t)64 << 20) /* and the data with them */
#define RG_NCCL_SPLITS_MAX      1024               /* that others may have begun before this process does */
#define RG_NCCL_EARLY_READY_MAX 1024 /* what one other process says of communicators before they are here */
#define RG_NCCL_MEETINGS_MAX    4096 /* unique ids that were made here; of more the oldest are forgotten */

/* Fat binaries */
#define RG_FATBIN_TEXT_MAX                                                                                   \
    (512ull << 20) /* bytes of one entry when decompressed, and of all that are linked to one program */
#define RG_KERNEL_PARAMETERS_MAX 4096u      /* parameters of a kernel whose layout is read from its image */
#define RG_PARAMETERS_WORK_MAX   (1u << 30) /* bytes that are looked at for the layouts of an image, unpacked */
#define RG_VARIABLE_ENTRY_MAX    (16u << 20) /* bytes of an entry of a fat binary that is still looked into */

/* Shares of a GPU */
#define RG_SHARE_WEIGHT_MAX      1000u /* of a session */
#define RG_SHARE_WEIGHT_DEFAULT  100u
#define RG_SHARE_RULES_MAX       (1u << 20) /* bytes of the operator's rules file */
#define RG_SHARE_RULES_NAMES_MAX 16384u     /* users and projects in it */

/* Questions outside of sessions */
#define RG_QUESTION_SIZE_MAX      8192  /* of a question's encoded form */
#define RG_ANSWER_SIZE_MAX        65536 /* of an answer's, and of the memory that its values need */
#define RG_NVML_PROCESSES_MAX     256   /* processes that a server tells of */
#define RG_NETPERF_OF_ONE_MAX     4u    /* measurements at once of one user, or one address */
#define RG_NETPERF_PART           4u /* the part of the sessions that there may be that measure: a quarter */
#define RG_NETPERF_HELLO_MAX      65536u     /* bytes of its first message */
#define RG_NETPERF_REPLIES_MAX    65536u     /* answers to one request */
#define RG_NETPERF_RAW_MAX        (4u << 20) /* bytes read or written in one round */
#define RG_NETPERF_ITERATIONS_MAX 10000u     /* of a program of perftest */

/* A worker, and the daemon */
#define RG_SESSION_MEMORY_LEAST                                                                              \
    (8ull << 30) /* bytes of host memory that a session has at least, unless configured */
#define RG_SESSION_MEMORY_DRIVER                                                                             \
    (2ull << 30)                  /* bytes that a driver is taken to have, where that cannot be found out */
#define RG_EXECUTORS_MAX    1024u /* threads of a worker */
#define RG_KNOWN_RANGES_MAX 256u  /* of memory that its driver is not asked about again */
#define RG_IMAGES_MAX       4096u /* that wait to be loaded */
#define RG_PEER_EARLY_MAX   65536 /* copies and waits that one other server speaks of before the client does */
#define RG_PEERS_OTHERS_MAX 256   /* sessions of other processes that one is connected to */
#define RG_DEFERRED_MAX     (256u << 20) /* bytes of deferred transfers under way */
#define RG_MANAGED_POSTPONED_MAX                                                                             \
    (64u << 20)                       /* bytes of shared memory's contents that wait while it is suspended */
#define RG_PREEMPTED_MAX          64u /* sessions that are looked at to make room for one */
#define RG_ADMISSIONS_MAX         8u  /* sessions that wait for room at once */
#define RG_ADMISSIONS_OF_ONE_MAX  6u  /* of one user */
#define RG_REQUESTS_MAX           16  /* of the operator's commands to a running server, at once */
#define RG_HANDSHAKES_MAX         256 /* connections at once of which it is not known yet what they want */
#define RG_LISTENERS_MAX          16  /* addresses that one server listens on */
#define RG_HANDSHAKES_PER_ADDRESS 128 /* of these, from one address; an older one gives way to a newer */
#define RG_QUESTIONS_MAX          32  /* questions outside of sessions that are being answered at once */

/* Identities: files of the state folder (server/identity/) */
#define RG_IDENTITY_FILE_MAX         (256u << 10) /* bytes of one */
#define RG_IDENTITY_FILES_MAX        16384u       /* tokens; users */
#define RG_IDENTITY_CERTIFICATES_MAX 1024u        /* of one user that have not expired */
#define RG_IDENTITY_RENEWALS_MAX     16u          /* of one user in a minute: each waits for the disk */
#define RG_IDENTITY_NAMES_MAX        128u         /* in the server's certificate */
#define RG_IDENTITY_DAYS_DEFAULT     90 /* that a client's certificate is valid, unless configured */

/* Accounts and quotas */
#define RG_USAGE_ROWS_MAX       256u /* rows of one answer about usage; those behind are asked for again */
#define RG_USAGE_MEMORY_MAX     (64u << 20) /* bytes that SQLite uses for a question about usage */
#define RG_QUOTA_SCOPES_MAX     20u    /* quotas in one answer about them: of a user, groups and a project */
#define RG_ACCOUNTS_PENDING_MAX 65536u /* parts of sessions that wait until they can be saved */
#define RG_ACCOUNTS_OWNERS_MAX  65536u /* users and projects whose GPU time of a month is known */

/* A pool of servers on etcd (pool/, server/pool/) */
#define RG_ETCD_REPLY_MAX           (64u << 20) /* bytes of one answer */
#define RG_ETCD_ENDPOINTS_MAX       16          /* of one cluster */
#define RG_ETCD_RANGES_MAX          600u        /* watched at once */
#define RG_POOL_MEMBERS_MAX         4096u       /* servers */
#define RG_POOL_REQUESTS_MAX        16384u      /* that wait, of the whole pool */
#define RG_POOL_REQUESTS_OF_ONE_MAX 1024u       /* of one user */
#define RG_POOL_LEASES_MAX          65536u
#define RG_POOL_LINKS_MAX                                                                                    \
    4096u /* machines of users that have measured the way to servers, of the whole pool */
#define RG_POOL_LINKS_OF_ONE_MAX 64u /* of one user */
#define RG_POOL_SHARES_MAX       64u /* leases of one GPU */
#define RG_POOL_FILTERS_MAX      16u /* of one request */
#define RG_POOL_CLIENTS_MAX                                                                                  \
    1024u /* that one server answers at once: those that wait, and that hold a lease */
#define RG_POOL_CLIENTS_OF_ONE_MAX (RG_POOL_CLIENTS_MAX / 4u * 3u) /* of one address, and of one user */
#define RG_POOL_GPUS_MAX           256u                            /* of one lease */
#define RG_POOL_ACCOUNTS_MAX       1024u /* users and projects whose use of its GPUs one server remembers */
#define RG_POOL_KEPT_MAX_S         (30u * 86400u) /* seconds that a lease is kept for at once */

/* Kubernetes (places/kubernetes/) */
#define RG_KUBE_ANSWER_MAX      (64u << 20) /* bytes of one answer of the API server, or one event of a watch */
#define RG_KUBE_MESSAGE_MAX     (1u << 20) /* bytes of one question of the kubelet */
#define RG_KUBE_CALLS_MAX       64u        /* questions that are being answered at once */
#define RG_KUBE_CONNECTIONS_MAX 32u        /* of kubelets, of which there is one */

#endif
