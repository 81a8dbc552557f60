/*
 * usage.c - remote-gpud usage: what all users have used, from the accounts in the state folder, whether the server runs or not.
 *
 * The file is read by the program accountant, which alone has SQLite; questions and answers go by pipes (accountant.c).
 */
#include "proto/accounts/usage_text.h"

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/path.h"
#include "server/accounts/protocol.h"
#include "server/commands/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct reader {
    pid_t pid;
    int questions, answers; /* pipes; -1: closed */
};

static bool begin(struct reader *reader, char *folder)
{
    char path[PATH_MAX];
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    posix_spawn_file_actions_t actions;
    *reader = (struct reader){.questions = -1, .answers = -1};
    if (rg_path_library("accountant", path, sizeof path) != RG_OK) {
        rg_error("remote-gpud is not in its installed place: lib/remote-gpu is not beside bin");
        return false;
    }
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 ||
        posix_spawn_file_actions_init(&actions) != 0) {
        rg_error("no pipes to read the accounts: %s", strerror(errno));
        return false;
    }
    char *arguments[] = {(char *)"accountant", (char *)"--read", folder, NULL};
    (void)posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    (void)posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    const int error = posix_spawn(&reader->pid, path, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    reader->questions = in[1];
    reader->answers = out[0];
    if (error)
        rg_error("%s cannot be run: %s; the installation is incomplete", path, strerror(error));
    return error == 0;
}

static void end(struct reader *reader)
{
    if (reader->questions >= 0)
        close(reader->questions);
    if (reader->answers >= 0)
        close(reader->answers);
    while (reader->pid > 0 && waitpid(reader->pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

static enum rg_status fetch(void *data, const struct rg_usage_question *question,
                            struct rg_usage_answer *answer, char *why, size_t why_size)
{
    static unsigned char packed[RG_ANSWER_SIZE_MAX];
    const struct reader *reader = data;
    const struct rg_accountant_query query = {.everybody = true, .question = *question};
    uint64_t size = 0;
    if (rg_file_write(reader->questions, &query, sizeof query) &&
        rg_file_read(reader->answers, &size, sizeof size) && size <= sizeof packed &&
        rg_file_read(reader->answers, packed, size) && rg_usage_unpack_answer(packed, size, answer) == RG_OK)
        return RG_OK;
    return RG_FAILED(RG_ERR_IO, why, why_size, "the process that reads the accounts ended unexpectedly");
}

static bool print(const struct rg_command *command, const struct rg_usage_list *list)
{
    char host[256] = "";
    if (command->json) {
        json_t *json = rg_usage_json(list);
        const bool good = json && json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) == 0;
        json_decref(json);
        putchar('\n');
        return good;
    }
    if (command->csv) {
        (void)gethostname(host, sizeof host - 1);
        rg_usage_print_csv_head(stdout);
        rg_usage_print_csv(list, host, stdout);
    } else {
        rg_usage_print_table(list, stdout);
    }
    return true;
}

/* The folder of the accounts; it belongs to the server's user alone. */
static bool find_folder(const struct rg_command *command, const struct rg_command_server *server, char *out,
                        size_t size)
{
    struct rg_state state;
    if (!rg_command_open(command, server, &state))
        return false;
    const bool fits = snprintf(out, size, "%s/accounts", state.path) < (int)size;
    rg_state_close(&state);
    return fits;
}

int rg_command_usage(const struct rg_command *command, const struct rg_command_server *server)
{
    struct rg_usage_question question;
    struct rg_usage_list list = {0};
    struct reader reader;
    char folder[PATH_MAX], why[RG_ACCOUNTS_WHY + PATH_MAX] = "";
    const struct rg_usage_words words = {.user = command->user_of,
                                         .project = command->project,
                                         .since = command->since,
                                         .until = command->until,
                                         .by = command->by};
    if (command->json && command->csv) {
        rg_error("--json and --csv exclude each other");
        return RG_COMMAND_FAILED;
    }
    if (rg_usage_read_question(&words, (int64_t)time(NULL), &question, why, sizeof why) != RG_OK) {
        rg_error("%s", why);
        return RG_COMMAND_FAILED;
    }
    if (!find_folder(command, server, folder, sizeof folder))
        return RG_COMMAND_FAILED;
    signal(SIGPIPE, SIG_IGN);
    bool good = begin(&reader, folder);
    if (good && rg_usage_collect(fetch, &reader, &question, &list, why, sizeof why) != RG_OK) {
        rg_error("%s", why);
        good = false;
    }
    end(&reader);
    good = good && print(command, &list);
    if (good && fflush(stdout) != 0) {
        rg_error("cannot write to standard output: %s", strerror(errno));
        good = false;
    }
    rg_usage_list_fini(&list);
    return good ? RG_COMMAND_DONE : RG_COMMAND_FAILED;
}
