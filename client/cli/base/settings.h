/*
 * settings.h - what remote-gpu is told by flags, environment and files; the rows are in options.c.
 */
#ifndef RG_CLIENT_CLI_BASE_SETTINGS_H
#define RG_CLIENT_CLI_BASE_SETTINGS_H

#include "common/base/options.h"

enum rg_cli_command {
    RG_CLI_RUN = 1,
    RG_CLI_LIST = 2,
    RG_CLI_SMI = 4,
    RG_CLI_VERSION = 8,
    RG_CLI_NETPERF = 16,
    RG_CLI_COMPARE = 32,
    RG_CLI_DOCTOR = 64,
    RG_CLI_PREDICT = 128,
    RG_CLI_JOIN = 256,
    RG_CLI_USAGE = 512,
    RG_CLI_QUOTA = 1024,
    RG_CLI_VERIFY_LIMITS = 2048,
    RG_CLI_REQUEST = 4096,
    RG_CLI_RELEASE = 8192,
    RG_CLI_CDI = 16384,
    RG_CLI_RENEW = 32768,
    RG_CLI_HEALTH = 65536,
    RG_CLI_PAGE = 131072,
};

struct rg_cli_settings {
    struct rg_text_list server;
    bool joined;       /* `server` was not named: it is the one that was joined last */
    char *credentials; /* folder; NULL: the usual one */
    bool allow_unauthenticated;
    char *encrypt, *rdma;
    bool force;
    int64_t gpus; /* 0: all */
    uint64_t memory;
    uint32_t fraction; /* millionths */
    uint32_t compute;  /* millionths; 0: not said */
    int64_t weight;    /* 0: not said */
    char *priority;    /* NULL: not said */
    uint64_t idle_timeout_ns;
    bool exclusive;
    char *project; /* NULL: not said */
    char *transport;
    char *rails;       /* NULL: not said */
    char *connections; /* NULL: not said */
    char *compress;
    struct rg_text_list filters; /* of a pool */
    struct rg_text_list tolerations;
    struct rg_text_list devices; /* UUIDs, of request */
    char *job;                   /* of request; NULL: not said */
    char *lease_id;              /* of request; NULL: the pool's choice */
    char *wait_for;              /* NULL: not said; "": for ever */
    bool spread;
    char *lease;      /* NULL: none */
    uint64_t keep_ns; /* of request and renew */
    bool local;
    char *driver;  /* of the private server */
    char *stats;   /* NULL: none; "": on stderr */
    char *profile; /* NULL: none; "": a file named after the process */
    char *wait;
    int64_t keep_alive;
    char *record; /* likewise */
    char *opt;
    char *log;
    bool no_check;
    bool no_preload;
    uint64_t timeout_ns;
    bool json;
    bool server_only; /* of questions: not the other servers of its pool */
    bool quick;
    bool perftest;
    bool pool;     /* of netperf: measure the way to all servers of the pool, and tell it */
    bool topology; /* of list */
    char *plot;    /* file */
    char *user, *usage_project, *since, *until, *by; /* of usage (`user` of request, too): NULL: not said */
    bool csv;
    int64_t runs;
    char *link;            /* of compare: another network, as the filter delay is told */
    char *rtt, *bandwidth; /* of predict */
    char *server_link;     /* of predict: the link between servers, as `link` */
    bool grid;
    char *svg;                         /* file */
    char *root;                        /* of doctor: a recorded tree instead of this machine */
    char *output, *client_root, *kind; /* of cdi; NULL: not said */
    int64_t count;
    bool infiniband;
    bool help;
    struct rg_options options;
};

enum rg_cli_load { RG_CLI_GO, RG_CLI_HELP, RG_CLI_WRONG };

/**
 * Loads the options of the subcommand `command` from argv[1..], the environment and the configuration files.
 * *next: index of the first word behind them. RG_CLI_WRONG: it was said what is wrong.
 */
RG_MUST_CHECK enum rg_cli_load rg_cli_settings_load(struct rg_cli_settings *settings,
                                                    enum rg_cli_command command, int argc, char **argv,
                                                    int *next);
/** Only the table, for help texts. */
void rg_cli_settings_init(struct rg_cli_settings *settings, enum rg_cli_command command);
void rg_cli_settings_fini(struct rg_cli_settings *settings);

/** Whether the share of GPUs that is asked for makes sense by itself (what a server can give it says), and the project; if not, it was said. */
bool rg_cli_check_share(const struct rg_cli_settings *settings);
/** Whether the project's name is short enough; if not, it was said. */
bool rg_cli_check_project(const struct rg_cli_settings *settings);
/** Says that `subcommand` takes no words behind its options, if there are some. */
bool rg_cli_no_words(const char *subcommand, int argc, char **argv);

#endif
