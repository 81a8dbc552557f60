/*
 * commands.h - remote-gpud token, users, revoke and usage: what an operator does with the state folder, while the server runs or not;
 * suspend, resume, end, drain and page, which ask the server that runs with it.
 *
 * Happy path: rg_command_load takes the command line, then the caller reads the server's configuration (which may name another state
 * folder, or an authority of the operator's), and rg_command_run does it under the folder's lock; a running server notices within a
 * second. Results are on stdout, everything else on stderr. Exit status: 0 done, 1 there is no such user, certificate or session, 125 it could not
 * be done.
 */
#ifndef RG_SERVER_COMMANDS_COMMANDS_H
#define RG_SERVER_COMMANDS_COMMANDS_H

#include "common/base/options.h"
#include "common/base/status.h"
#include "server/identity/state.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { RG_COMMAND_DONE = 0, RG_COMMAND_UNKNOWN = 1, RG_COMMAND_FAILED = 125 };

struct rg_subcommand_of_server;

struct rg_command {
    const struct rg_subcommand_of_server *which;
    char *user;
    int64_t uses;
    uint64_t expires_ns;
    int64_t max_sessions, max_gpus;
    char *server;
    bool json, foreign, hold, wait, undo;
    char *user_of, *project, *since, *until, *by; /* of usage; NULL: not said */
    bool csv;
    char *state_dir, *config;
    bool help;
    int argc; /* words behind the options */
    char **argv;
    struct rg_options options;
};

enum rg_command_deed { RG_COMMAND_MADE_TOKEN, RG_COMMAND_REVOKED };

/** What the server's configuration says, and what its program does. */
struct rg_command_server {
    const char *state_dir; /* NULL: the default */
    bool is_operators;     /* it uses an authority of the operator's (tls-ca) */
    /* what was done is to be noted in the audit log; NULL: nowhere. `user` or the serial may be unknown */
    void (*note)(enum rg_command_deed deed, const char *user, const uint8_t *serial, size_t serial_size);
};

/** Whether that word is a subcommand. */
bool rg_command_is(const char *word);
/** Lines of a help text: name and summary of each. */
void rg_command_list(FILE *out);
/** False: nothing to run, leave with *status; --help was answered, or what is wrong was said. */
RG_MUST_CHECK bool rg_command_load(struct rg_command *command, int argc, char **argv, int *status);
/** The exit status. */
RG_MUST_CHECK int rg_command_run(const struct rg_command *command, const struct rg_command_server *server);
void rg_command_fini(struct rg_command *command);

/* --- for the subcommands ------------------------------------------------------------------------------------------------ */

/** Has something noted that was done. */
void rg_command_note(const struct rg_command_server *server, enum rg_command_deed deed, const char *user,
                     const uint8_t *serial, size_t serial_size);
/** The folder that command and server name, which must be there. False: what is wrong was said. */
RG_MUST_CHECK bool rg_command_open(const struct rg_command *command, const struct rg_command_server *server,
                                   struct rg_state *state);
int rg_command_token(const struct rg_command *command, const struct rg_command_server *server);
int rg_command_users(const struct rg_command *command, const struct rg_command_server *server);
int rg_command_usage(const struct rg_command *command, const struct rg_command_server *server);
int rg_command_revoke(const struct rg_command *command, const struct rg_command_server *server);
int rg_command_suspend(const struct rg_command *command, const struct rg_command_server *server);
int rg_command_drain(const struct rg_command *command, const struct rg_command_server *server);
int rg_command_end(const struct rg_command *command, const struct rg_command_server *server);
int rg_command_page(const struct rg_command *command, const struct rg_command_server *server);
int rg_command_resume(const struct rg_command *command, const struct rg_command_server *server);

#endif
