/*
 * main.c - command remote-gpu: finds the subcommand, loads its settings, runs it.
 */
#include "client/cli/base/cli.h"
#include "common/base/log.h"
#include "common/base/standard_streams.h"
#include "common/base/suggest.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct rg_subcommand subcommands[] = {
    {"run", RG_CLI_RUN, "[OPTION…] [--] COMMAND [ARGUMENT…]", "run a command on a server's GPUs",
     "Runs COMMAND unmodified; its CUDA calls go to the server. The exit status is the command's;\n"
     "125: remote-gpu itself failed, 126: COMMAND cannot be executed, 127: it was not found.",
     rg_cli_run, false},
    {"join", RG_CLI_JOIN, "[OPTION…] TOKEN", "get credentials for a server, once, by a token of its operator",
     "TOKEN is the line that `remote-gpud token --user NAME` prints on the GPU machine. Makes a key here, "
     "has\n"
     "the server certify it, and keeps key and certificate for this user. From then on the server is used\n"
     "by TLS, and is the one that is used where none is named. The certificate renews itself.",
     rg_cli_join, true},
    {"list", RG_CLI_LIST, "[OPTION…]", "list servers, their GPUs and the sessions that run there",
     "Asks each server for its GPUs with their free memory, and for the sessions that run.", rg_cli_list,
     false},
    {"smi", RG_CLI_SMI, "[OPTION…]", "show the GPUs of servers as a table, like nvidia-smi",
     "Shows the GPUs of each server, their memory and the sessions. What a server cannot know is shown as "
     "n/a.",
     rg_cli_smi, false},
    {"health", RG_CLI_HEALTH, "[OPTION…]", "say whether servers, or all servers of a pool, are well",
     "Asks each server, and says what is wrong with it: that it does not answer, has no GPU, is cut off from "
     "its\n"
     "pool, is full or draining, or has a wrong clock. Exit status: 0 all are well, 1 some are not.",
     rg_cli_health, false},
    {"usage", RG_CLI_USAGE, "[OPTION…]", "show what you have used of servers",
     "Shows GPU hours held and busy, memory, bytes moved and kernels launched, as each server has counted "
     "them for\n"
     "you. By a unix socket, the server's user and root see all users.",
     rg_cli_usage, false},
    {"quota", RG_CLI_QUOTA, "[OPTION…]", "show what you may use of servers, and when it is renewed",
     "Shows the quotas that hold for you, your groups and projects, and what of them is used. Exit status: 0 "
     "there\n"
     "is room, 1 a quota is used up, 125 a server could not be asked.",
     rg_cli_quota, false},
    {"page", RG_CLI_PAGE, "[OPTION…]", "print a link to a server's status page, where you are known by it",
     "Prints the address of the server's status page (its --http) with a secret: a browser that opens it is "
     "you there\n"
     "for 8 hours. The link works once, within 5 minutes; give it to nobody.",
     rg_cli_page, false},
    {"request", RG_CLI_REQUEST, "[OPTION…]", "get GPUs of a pool, and keep them over several runs",
     "Asks a server of a pool for GPUs and prints the lease, by which `remote-gpu run --lease` uses them "
     "until\n"
     "`remote-gpu release` gives them back or the time of --for is over.",
     rg_cli_request, false},
    {"renew", RG_CLI_RENEW, "[OPTION…] LEASE", "keep GPUs of a pool for longer",
     "Keeps a lease of remote-gpu request for the time of --for from now on, whatever its time was.",
     rg_cli_renew, true},
    {"release", RG_CLI_RELEASE, "[OPTION…] LEASE", "give GPUs of a pool back",
     "Gives a lease of remote-gpu request back. Sessions that run by it end.", rg_cli_release, true},
    {"doctor", RG_CLI_DOCTOR, "[OPTION…]", "find what is wrong with this machine or the path to a server",
     "Checks RDMA devices, kernel modules, permissions, libraries and the network of this machine; with -s\n"
     "also the server and the path to it. Each check says ok, warning or problem, what it found, and\n"
     "the command that fixes it. Exit status: 0 no problems, 1 problems, 125 doctor itself failed.",
     rg_cli_doctor, false},
    {"netperf", RG_CLI_NETPERF, "[OPTION…]", "measure the connection to a server over each transport",
     "Measures round trips and bandwidth by message size: of a bare socket, of TCP as a session uses\n"
     "it, and of each RDMA address of the server. Exit status 125: TCP could not be measured.",
     rg_cli_netperf, false},
    {"compare", RG_CLI_COMPARE, "[OPTION…] [--] COMMAND [ARGUMENT…]",
     "run a command over each transport and compare",
     "Runs COMMAND over TCP and then, if both machines have it, over RDMA, and shows time, time waited\n"
     "for the server, round trips, bytes and CPU time. What COMMAND prints goes to stderr. If it fails,\n"
     "compare exits with its status; 125: remote-gpu itself failed.",
     rg_cli_compare, false},
    {"predict", RG_CLI_PREDICT, "FILE [OPTION…]",
     "predict how long a recorded run would take over another network",
     "Simulates the run that `remote-gpu run --record` wrote to FILE, over a network with the given "
     "round-trip\n"
     "time and bandwidth (default: the recorded network), with and without each optimisation.",
     rg_cli_predict, true},
    {"verify-limits", RG_CLI_VERIFY_LIMITS, "[OPTION…] [CASE…]",
     "measure whether sessions get the shares of a GPU that they are to get",
     "Runs sessions with weights and caps that keep a GPU of the server busy, and compares what each gets "
     "in\n"
     "windows of a second with what it should get, in all cases or in those whose names hold CASE. Others "
     "should not\n"
     "use the GPU meanwhile. Exit status:\n"
     "0: all cases reach their goals, 1: some do not, 125: it could not be measured.",
     rg_cli_verify_limits, false},
    {"cdi", RG_CLI_CDI, "generate [OPTION…]", "describe the GPUs to container runtimes, as CDI devices",
     "Writes a specification of the Container Device Interface, by which\n"
     "podman run --device remote-gpu.io/gpu=2 IMAGE COMMAND gives any image two GPUs of the server: the "
     "client "
     "tree,\n"
     "the credentials that are in use here, and what the other options say. No server is asked.",
     rg_cli_cdi, true},
    {"version", RG_CLI_VERSION, "[OPTION…]", "show the versions of this command and of servers",
     "Shows the version of this command and of each server that is named.", rg_cli_version, false},
};
#define N_SUBCOMMANDS (sizeof subcommands / sizeof subcommands[0])

static void print_help(void)
{
    printf("Usage: remote-gpu SUBCOMMAND [OPTION…]\n"
           "Runs CUDA programs of this machine on the GPUs of other machines.\n\nSubcommands:\n");
    for (size_t i = 0; i < N_SUBCOMMANDS; i++)
        printf("  %-13s %s\n", subcommands[i].name, subcommands[i].summary);
    printf("\nremote-gpu SUBCOMMAND --help shows the options of each.\n");
}

static int fail_without_subcommand(void)
{
    char names[512];
    size_t used = 0;
    for (size_t i = 0; i < N_SUBCOMMANDS && used < sizeof names; i++)
        used +=
            (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", subcommands[i].name);
    rg_error("which subcommand? %s; see remote-gpu --help", names);
    return RG_EXIT_FAILURE;
}

static void print_subcommand_help(const struct rg_subcommand *subcommand)
{
    struct rg_cli_settings settings;
    rg_cli_settings_init(&settings, (enum rg_cli_command)subcommand->bit);
    printf("Usage: remote-gpu %s %s\n%s\n\nOptions:\n", subcommand->name, subcommand->usage,
           subcommand->details);
    rg_options_help(&settings.options, stdout);
    rg_cli_settings_fini(&settings);
}

static const struct rg_subcommand *find(const char *name)
{
    for (size_t i = 0; i < N_SUBCOMMANDS; i++)
        if (strcmp(subcommands[i].name, name) == 0)
            return &subcommands[i];
    const char *meant = rg_suggest(name, &subcommands[0].name, N_SUBCOMMANDS, sizeof subcommands[0]);
    if (meant)
        rg_error("unknown subcommand '%s' (did you mean '%s'?); see remote-gpu --help", name, meant);
    else
        rg_error("unknown subcommand '%s'; see remote-gpu --help", name);
    return NULL;
}

/* Where options follow the word at that place, it goes behind them. False: none do. */
static bool move_word(int argc, char **argv, int at)
{
    if (at + 1 >= argc || argv[at][0] == '-' || argv[at + 1][0] != '-')
        return false;
    char *word = argv[at];
    memmove(&argv[at], &argv[at + 1], (size_t)(argc - at - 1) * sizeof *argv);
    argv[argc - 1] = word;
    return true;
}

static int run_subcommand(const struct rg_subcommand *subcommand, int argc, char **argv)
{
    struct rg_cli_settings settings;
    const enum rg_cli_command command = (enum rg_cli_command)subcommand->bit;
    int next = argc, status = RG_EXIT_FAILURE;
    if (subcommand->file_first) /* options come first everywhere else */
        (void)move_word(argc, argv, 1);
    enum rg_cli_load outcome = rg_cli_settings_load(&settings, command, argc, argv, &next);
    if (outcome == RG_CLI_GO && subcommand->file_first && move_word(argc, argv, next)) {
        rg_cli_settings_fini(&settings);
        outcome = rg_cli_settings_load(&settings, command, argc, argv, &next);
    }
    switch (outcome) {
    case RG_CLI_GO:
        status = subcommand->run(&settings, argc - next, argv + next);
        break;
    case RG_CLI_HELP:
        print_subcommand_help(subcommand);
        status = 0;
        break;
    case RG_CLI_WRONG:
        break;
    }
    rg_cli_settings_fini(&settings);
    return status;
}

int main(int argc, char **argv)
{
    rg_standard_streams_take(false);
    rg_log_name("remote-gpu");
    if (argc < 2)
        return fail_without_subcommand();
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        const struct rg_subcommand *about = argc > 2 ? find(argv[2]) : NULL;
        if (about)
            print_subcommand_help(about);
        else if (argc > 2)
            return RG_EXIT_FAILURE;
        else
            print_help();
        return 0;
    }
    if (strcmp(name, "--version") == 0)
        name = "version";
    const struct rg_subcommand *subcommand = find(name);
    if (!subcommand)
        return RG_EXIT_FAILURE;
    int status = run_subcommand(subcommand, argc - 1, argv + 1);
    const bool unwritten = fflush(stdout) != 0;
    if (unwritten || ferror(stdout)) {
        rg_error("cannot write to standard output%s%s", unwritten ? ": " : "",
                 unwritten ? strerror(errno) : "");
        return RG_EXIT_FAILURE;
    }
    return status;
}
