/* environment.c - see environment.h. */
#include "places/slurm/environment.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/printable.h"
#include "common/base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT_MAX      (4u << 20) /* as much as Linux takes for a program, twice */
#define VARIABLES_MAX 8192u      /* each is looked for among the others, in a process of root's */
#define PIECE         4096
#define CANNOT_START  126

/* --- the command ------------------------------------------------------------------------------------------------ */

/* For good: the effective ids are a user's, and the real ones may still be root's. */
static bool become_user(void)
{
    const uid_t uid = geteuid();
    const gid_t gid = getegid();
    if (getuid() == uid && getgid() == gid)
        return true;
    return seteuid(0) == 0 && setresgid(gid, gid, gid) == 0 && setresuid(uid, uid, uid) == 0;
}

static _Noreturn void start(char *const argv[], char *const envp[], int out, int errors)
{
    sigset_t none;
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    if (become_user() && dup2(nothing, 0) == 0 && dup2(out, 1) == 1 && dup2(errors, 2) == 2) {
        (void)syscall(SYS_close_range, 3u, ~0u, 0u); /* what Slurm has open is nobody else's */
        execve(argv[0], argv, envp);
    }
    dprintf(2, "cannot run %s: %s\n", argv[0], strerror(errno));
    _exit(CANNOT_START);
}

/* --- what it prints ----------------------------------------------------------------------------------------------- */

enum heard { MORE, END, TOO_MUCH };

static enum heard read_more(int fd, struct rg_slurm_environment *out)
{
    char *grown = out->size + PIECE > TEXT_MAX ? NULL : realloc(out->text, out->size + PIECE + 1);
    if (!grown)
        return TOO_MUCH;
    out->text = grown;
    const ssize_t n = read(fd, out->text + out->size, PIECE);
    if (n > 0)
        out->size += (size_t)n;
    out->text[out->size] = '\0';
    return n > 0 || (n < 0 && errno == EINTR) ? MORE : END;
}

/* Both until their ends, or for too long (MORE). */
static enum heard hear(int out, int errors, uint64_t end_ns, struct rg_slurm_environment *texts)
{
    struct pollfd fds[2] = {{.fd = out, .events = POLLIN}, {.fd = errors, .events = POLLIN}};
    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        const uint64_t now = rg_now_ns();
        if (now >= end_ns)
            return MORE;
        if (poll(fds, 2, (int)((end_ns - now) / 1000000) + 1) <= 0)
            continue;
        for (unsigned i = 0; i < 2; i++) {
            const enum heard heard = fds[i].revents ? read_more(fds[i].fd, &texts[i]) : MORE;
            if (heard == TOO_MUCH)
                return heard;
            if (heard == END)
                fds[i].fd = -1;
        }
    }
    return END;
}

static bool has_too_many(const struct rg_slurm_environment *environment)
{
    unsigned n = 0;
    for (size_t i = 0; i < environment->size && n <= VARIABLES_MAX; i++)
        n += !environment->text[i];
    return n > VARIABLES_MAX;
}

/* The last line that says something, without our own name in front of it. */
static void explain(const struct rg_slurm_environment *errors, const char *command, char *why,
                    size_t why_size)
{
    static const char ours[] = "remote-gpu: ";
    char *end = errors->text ? errors->text + errors->size : NULL;
    while (end > errors->text && (end[-1] == '\n' || end[-1] == '\r' || end[-1] == ' '))
        *--end = '\0';
    char *line = errors->text ? strrchr(errors->text, '\n') : NULL;
    line = line ? line + 1 : errors->text;
    if (line)
        rg_printable_clean(line); /* it goes to the log of a node */
    if (!line || !*line)
        rg_explain(why, why_size, "%s failed and said nothing", command);
    else
        rg_explain(why, why_size, "%s", strncmp(line, ours, sizeof ours - 1) ? line : line + sizeof ours - 1);
}

static bool take(pid_t child, int out, int errors, const char *command, int timeout_ms,
                 struct rg_slurm_environment *environment, char *why, size_t why_size)
{
    struct rg_slurm_environment texts[2] = {0};
    int status = 0;
    enum heard heard = hear(out, errors, rg_now_ns() + (uint64_t)timeout_ms * 1000000, texts);
    if (heard == END && has_too_many(&texts[0]))
        heard = TOO_MUCH;
    if (heard != END)
        (void)kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    const bool good = heard == END && WIFEXITED(status) && WEXITSTATUS(status) == 0 && texts[0].size &&
                      texts[0].text[texts[0].size - 1] == '\0';
    if (heard == MORE)
        rg_explain(why, why_size, "%s has not ended within %d s", command, timeout_ms / 1000);
    else if (heard == TOO_MUCH)
        rg_explain(why, why_size, "%s has printed more than an environment can have", command);
    else if (!good)
        explain(&texts[1], command, why, why_size);
    if (good) {
        *environment = texts[0];
        texts[0].text = NULL;
    }
    free(texts[0].text);
    free(texts[1].text);
    return good;
}

bool rg_slurm_environment_ask(struct rg_slurm_environment *out, char *const argv[], char *const envp[],
                              int timeout_ms, char *why, size_t why_size)
{
    int outputs[2], errors[2];
    unsigned n = 0;
    *out = (struct rg_slurm_environment){0};
    while (n <= VARIABLES_MAX && envp[n])
        n++;
    if (n > VARIABLES_MAX) {
        rg_explain(why, why_size, "the job's environment has more than %u variables", VARIABLES_MAX);
        return false;
    }
    if (pipe2(outputs, O_CLOEXEC) != 0) {
        rg_explain(why, why_size, "no pipe: %s", strerror(errno));
        return false;
    }
    RG_CLEANUP_FD const int from = outputs[0];
    if (pipe2(errors, O_CLOEXEC) != 0) {
        rg_explain(why, why_size, "no pipe: %s", strerror(errno));
        close(outputs[1]);
        return false;
    }
    RG_CLEANUP_FD const int from_errors = errors[0];
    const pid_t child = fork();
    if (child == 0)
        start(argv, envp, outputs[1], errors[1]);
    close(outputs[1]);
    close(errors[1]);
    if (child < 0) {
        rg_explain(why, why_size, "no process: %s", strerror(errno));
        return false;
    }
    return take(child, from, from_errors, argv[0], timeout_ms, out, why, why_size);
}

void rg_slurm_environment_fini(struct rg_slurm_environment *environment)
{
    free(environment->text);
    *environment = (struct rg_slurm_environment){0};
}

/* --- the difference ------------------------------------------------------------------------------------------------ */

/* The value in NAME=VALUE lists; NULL: none. */
static const char *find_in(char *const list[], const char *name, size_t size)
{
    for (; *list; list++)
        if (strncmp(*list, name, size) == 0 && (*list)[size] == '=')
            return *list + size + 1;
    return NULL;
}

static bool is_in(const struct rg_slurm_environment *environment, const char *name, size_t size)
{
    for (size_t at = 0; at < environment->size; at += strlen(environment->text + at) + 1)
        if (strncmp(environment->text + at, name, size) == 0 && environment->text[at + size] == '=')
            return true;
    return false;
}

/* `variable` is NAME=…; the value NULL: it goes. */
static bool tell(const char *variable, size_t size, const char *value,
                 bool (*set)(void *context, const char *name, const char *value), void *context)
{
    RG_CLEANUP_FREE char *name = strndup(variable, size);
    return name && set(context, name, value);
}

/* The list as it is now, in one piece of memory; NULL: there is none. */
static char **copy_list(char *const list[])
{
    size_t n = 0, size = 0;
    for (; list[n]; n++)
        size += strlen(list[n]) + 1;
    char **copy = malloc((n + 1) * sizeof *copy + size), *text = copy ? (char *)(copy + n + 1) : NULL;
    for (size_t i = 0; copy && i < n; i++) {
        copy[i] = text;
        text = stpcpy(text, list[i]) + 1;
    }
    if (copy)
        copy[n] = NULL;
    return copy;
}

bool rg_slurm_environment_compare(const struct rg_slurm_environment *now, char *const before[],
                                  bool (*set)(void *context, const char *name, const char *value),
                                  void *context)
{
    RG_CLEANUP_FREE char **known = copy_list(before);
    if (!known)
        return false;
    for (size_t at = 0; at < now->size; at += strlen(now->text + at) + 1) {
        const char *variable = now->text + at, *value = strchr(variable, '=');
        const size_t size = value ? (size_t)(value - variable) : 0;
        const char *old = size ? find_in(known, variable, size) : NULL;
        if (size && (!old || strcmp(old, value + 1) != 0) && !tell(variable, size, value + 1, set, context))
            return false;
    }
    for (char *const *at = known; *at; at++) {
        const size_t size = strcspn(*at, "=");
        if (size && (*at)[size] && !is_in(now, *at, size) && !tell(*at, size, NULL, set, context))
            return false;
    }
    return true;
}
