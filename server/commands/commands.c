/* commands.c - which subcommand, its options and help, and the folder that it works on; see commands.h. */
#include "server/commands/commands.h"

#include "common/base/log.h"
#include "proto/accounts/usage.h"
#include "server/identity/identity.h"
#include "server/identity/x509.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AT(field)   offsetof(struct rg_command, field)
#define OPTION(...) RG_OPTION_ROW(struct rg_command, __VA_ARGS__)

enum {
    TOKEN = 1u << 0,
    USERS = 1u << 1,
    REVOKE = 1u << 2,
    USAGE = 1u << 3,
    SUSPEND = 1u << 4,
    RESUME = 1u << 5,
    DRAIN = 1u << 6,
    END = 1u << 7,
    PAGE = 1u << 8
};

struct rg_subcommand_of_server {
    const char *name;
    unsigned bit;
    const char *usage, *summary, *details;
    int (*run)(const struct rg_command *command, const struct rg_command_server *server);
    int least, most; /* words behind the options */
};

static const struct rg_subcommand_of_server subcommands[] = {
    {"token", TOKEN, "--user NAME [OPTION…]", "print a token that lets a user join",
     "Prints one line, which the user gives to `remote-gpu join` on the client's machine. Whoever has it can "
     "join as that\n"
     "user until it is used up or expires: send it as you would a password.",
     rg_command_token, 0, 0},
    {"users", USERS, "[OPTION…] [NAME]", "list users, their certificates, and tokens that can still be used",
     "Lists who has joined, or the certificates of one user with their serial numbers.", rg_command_users, 0,
     1},
    {"revoke", REVOKE, "[OPTION…] NAME|SERIAL…", "refuse users or certificates from now on",
     "A user's certificates and tokens, or one certificate by its serial number, are refused from now on, "
     "and running sessions\n"
     "end within a second. A user who is to come back needs a new token.",
     rg_command_revoke, 1, 1000},
    {"usage", USAGE, "[OPTION…]", "show what users have used",
     "Shows GPU hours held and busy, memory, bytes moved and kernels launched, of all users, from the "
     "accounts in the\n"
     "state folder; 'remote-gpu usage' shows users their own.",
     rg_command_usage, 0, 0},
    {"suspend", SUSPEND, "[OPTION…] SESSION", "move a session's GPU memory to this machine's memory",
     "Waits until the session has no work running, 10 seconds at most, and moves its GPU memory to memory of "
     "this machine, so that\n"
     "others can have it. It comes back at the session's next call, which takes longer; no call\n"
     "of the program fails by it. remote-gpu list shows the numbers and states of sessions.",
     rg_command_suspend, 1, 1},
    {"resume", RESUME, "[OPTION…] SESSION", "bring a suspended session back",
     "Brings the GPU memory of a session back that was suspended, however it was.", rg_command_resume, 1, 1},
    {"end", END, "[OPTION…] SESSION", "end a session",
     "Ends a session at once; its program is told that somebody has. remote-gpu list shows the numbers of "
     "sessions.",
     rg_command_end, 1, 1},
    {"page", PAGE, "[OPTION…]", "print a link to the status page, where you are the operator by it",
     "Prints the address of the status page of the server that runs (its --http) with a secret: a browser "
     "that opens "
     "it sees and\n"
     "does everything that an operator may, for 8 hours. The link works once, within 5 minutes; give it to "
     "nobody.",
     rg_command_page, 0, 0},
    {"drain", DRAIN, "[OPTION…]", "take no new sessions, and leave the pool",
     "From now on the server takes no new sessions, and its pool gives out none of its GPUs; sessions that "
     "run go on. When\n"
     "the command has ended, the pool knows it. --undo takes it back; so does a new start of the server.",
     rg_command_drain, 0, 0},
};
#define N_SUBCOMMANDS (sizeof subcommands / sizeof subcommands[0])

/* The manual page remote-gpud.8 lists the same rows; a test compares them. */
static const struct rg_option table[] = {
    OPTION("user", TEXT, user, "who joins with it: letters, digits and ._@+-; machines may share a user",
           .letter = 'u', .argument = "NAME", .commands = TOKEN),
    OPTION("uses", INTEGER, uses, "how many machines can join with it", .argument = "N", .value = "1",
           .min = 1, .max = 100000, .commands = TOKEN),
    OPTION("expires", SECONDS, expires_ns, "how long it can be used", .argument = "TIME", .value = "24h",
           .commands = TOKEN),
    OPTION("max-sessions", INTEGER, max_sessions,
           "sessions that the user may have at once; 0: as before, or no limit but the server's",
           .argument = "N", .value = "0", .min = 0, .max = 4096, .commands = TOKEN),
    OPTION("max-gpus", INTEGER, max_gpus, "GPUs that a session of the user may have; 0 likewise",
           .argument = "N", .value = "0", .min = 0, .max = RG_DEVICES_MAX, .commands = TOKEN),
    OPTION("server", TEXT, server,
           "where the user's machine reaches this server (default: this machine's name, and the port that "
           "the server listened on last)",
           .letter = 's', .argument = "HOST[:PORT]", .commands = TOKEN),
    OPTION("user", TEXT, user_of,
           "only what this user has used: a certificate's name, uid:1000 or unauthenticated", .letter = 'u',
           .argument = "NAME", .commands = USAGE),
    OPTION("project", TEXT, project, "only what was used for this project", .argument = "NAME",
           .commands = USAGE),
    OPTION("since", TEXT, since,
           "from when on, in UTC: 2026-11-27, '2026-11-27 14:00', today, month (its beginning), or so long "
           "ago: 12h, 30d, 4w; whole hours are counted (default: month)",
           .argument = "TIME", .commands = USAGE),
    OPTION("until", TEXT, until, "until when, likewise (default: now)", .argument = "TIME",
           .commands = USAGE),
    OPTION("by", CHOICE, by, "what a row is about; user: and project", .argument = RG_USAGE_BY_CHOICES,
           .value = "user", .commands = USAGE),
    OPTION("csv", FLAG, csv, "print CSV", .commands = USAGE),
    OPTION("json", FLAG, json, "print JSON", .commands = USERS | USAGE),
    OPTION("foreign", FLAG, foreign,
           "the names and serials are in certificates of the operator's own authority (--tls-ca)",
           .commands = REVOKE),
    OPTION("hold", FLAG, hold, "it does not come back by itself: its calls wait until remote-gpud resume",
           .commands = SUSPEND),
    OPTION(
        "wait", FLAG, wait,
        "also wait until no session runs and no lease of the server's GPUs is left, however long that takes",
        .commands = DRAIN),
    OPTION("undo", FLAG, undo, "take new sessions again", .commands = DRAIN),
    OPTION("state-dir", TEXT, state_dir, "the server's state folder (default: as the server's)",
           .argument = "DIR"),
    OPTION("config", TEXT, config, "the server's configuration file (default: as the server's)",
           .letter = 'c', .argument = "FILE"),
    OPTION("help", FLAG, help, "show this", .letter = 'h'),
};

static const struct rg_subcommand_of_server *find(const char *word)
{
    for (size_t i = 0; i < N_SUBCOMMANDS; i++)
        if (strcmp(subcommands[i].name, word) == 0)
            return &subcommands[i];
    return NULL;
}

bool rg_command_is(const char *word)
{
    return find(word) != NULL;
}

void rg_command_list(FILE *out)
{
    for (size_t i = 0; i < N_SUBCOMMANDS; i++)
        fprintf(out, "  %-7s %s\n", subcommands[i].name, subcommands[i].summary);
}

static void print_help(const struct rg_command *command)
{
    printf("Usage: remote-gpud %s %s\n%s\n\nOptions:\n", command->which->name, command->which->usage,
           command->which->details);
    rg_options_help(&command->options, stdout);
    printf("\nExit status: 0 done, 1 no such user, certificate or session, 125 it could not be done.\n");
}

/* Options and words in any order: words are moved to the front of argv[2…]. Behind "--" there are only words. */
static enum rg_status load_words(struct rg_command *command, int argc, char **argv, char *why,
                                 size_t why_size)
{
    command->argv = argv + 2;
    for (int at = 1; at + 1 < argc;) { /* argv[at] is behind us */
        int next = 0;
        RG_TRY(rg_options_load_arguments(&command->options, argc - at, argv + at, &next, why, why_size));
        const bool ended = next > 1 && strcmp(argv[at + next - 1], "--") == 0;
        at += next;
        do {
            if (at < argc)
                command->argv[command->argc++] = argv[at];
        } while (ended && ++at < argc);
    }
    return RG_OK;
}

bool rg_command_load(struct rg_command *command, int argc, char **argv, int *status)
{
    memset(command, 0, sizeof *command);
    command->which = find(argv[1]);
    rg_options_init(&command->options, table, sizeof table / sizeof table[0], command, command->which->bit);
    char why[512] = "";
    const char *name = command->which->name;
    *status = RG_COMMAND_FAILED;
    if (load_words(command, argc, argv, why, sizeof why) != RG_OK) {
        rg_error("%s; see remote-gpud %s --help", why, name);
        return false;
    }
    if (command->help) {
        print_help(command);
        *status = RG_COMMAND_DONE;
        return false;
    }
    if (command->argc > command->which->most) {
        rg_error("'%s' is one word too many; see remote-gpud %s --help", command->argv[command->which->most],
                 name);
        return false;
    }
    if (command->argc < command->which->least) {
        if (command->which->bit == REVOKE)
            rg_error("whose certificates are to be refused? remote-gpud %s %s; remote-gpud users lists them",
                     name, command->which->usage);
        else
            rg_error("which session? remote-gpud %s %s; remote-gpu list shows them", name,
                     command->which->usage);
        return false;
    }
    return true;
}

int rg_command_run(const struct rg_command *command, const struct rg_command_server *server)
{
    rg_x509_start();
    return command->which->run(command, server);
}

void rg_command_note(const struct rg_command_server *server, enum rg_command_deed deed, const char *user,
                     const uint8_t *serial, size_t serial_size)
{
    if (server->note)
        server->note(deed, user, serial, serial_size);
}

void rg_command_fini(struct rg_command *command)
{
    rg_options_fini(&command->options);
}

/* Where else the folder may be, for those who are not root but whose server is. */
static const char *elsewhere(const char *path)
{
    return geteuid() != 0 && strcmp(path, "/var/lib/remote-gpu") != 0
               ? "; that of a server that runs as root or as a service is /var/lib/remote-gpu, and needs root"
               : "";
}

bool rg_command_open(const struct rg_command *command, const struct rg_command_server *server,
                     struct rg_state *state)
{
    char path[4096], why[1024] = "";
    const char *named = command->state_dir ? command->state_dir : server->state_dir;
    enum rg_status status = RG_OK;
    if (!named)
        status = rg_identity_state_dir(path, sizeof path, why, sizeof why);
    if (status == RG_OK)
        status = rg_state_open(state, named ? named : path, false, why, sizeof why);
    if (status == RG_OK)
        return true;
    if (status == RG_ERR_NOT_FOUND && !*why)
        rg_explain(why, sizeof why, "there is no state folder");
    if (status == RG_ERR_NOT_FOUND)
        rg_error(
            "%s: remote-gpud makes it when it starts for the first time; --state-dir names another one%s",
            why, elsewhere(named ? named : path));
    else
        rg_error("%s", why);
    return false;
}
