/*
 * learn.c - mode log: system calls and files that would be refused are let through and named, each once.
 *
 * The kernel holds such a call up until it is answered. That is done by a process of its own, made before the
 * filter is, which reads what it needs (the path of a file) of the confined one's memory through /proc and says "go on". As it
 * is meant for learning, it costs the calls in question some microseconds. When the confined process ends, it does.
 */
#include "server/sandbox/internal.h"

#include "common/base/log.h"
#include "common/base/packet.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FILES_TOLD = 256 };

/* A string of the process's. */
static bool read_text(pid_t process, uint64_t address, char *out, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", (int)process);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = -1;
    if (fd >= 0) {
        got = pread(fd, out, size - 1, (off_t)address);
        close(fd);
    }
    if (got <= 0)
        return false;
    out[got] = '\0';
    return memchr(out, '\0', (size_t)got) != NULL;
}

static bool is_first(const char *text)
{
    static char *told[FILES_TOLD];
    static int n;
    for (int i = 0; i < n; i++)
        if (strcmp(told[i], text) == 0)
            return false;
    if (n < FILES_TOLD && (told[n] = strdup(text)))
        n++;
    return true;
}

static bool is_open(const char *name)
{
    return strcmp(name, "open") == 0 || strcmp(name, "openat") == 0 || strcmp(name, "creat") == 0;
}

static void tell_file(const struct rg_sandbox_policy *policy, const struct seccomp_notif *asked,
                      const char *name)
{
    char path[PATH_MAX], text[PATH_MAX + 32];
    const bool at = strcmp(name, "openat") == 0;
    const uint64_t flags = asked->data.args[at ? 2 : 1];
    const bool write = strcmp(name, "creat") == 0 || (flags & O_ACCMODE) != O_RDONLY;
    if (!read_text((pid_t)asked->pid, asked->data.args[at ? 1 : 0], path, sizeof path) || path[0] != '/' ||
        rg_sandbox_file_allowed(policy, path, write))
        return;
    snprintf(text, sizeof text, "%s for %s", path, write ? "writing" : "reading");
    if (is_first(text))
        rg_warn("sandbox: would refuse to open %s", text);
}

static void tell_call(const struct seccomp_notif *asked, const char *name)
{
    char text[96];
    snprintf(text, sizeof text, "%s(0x%llx, 0x%llx)", name, (unsigned long long)asked->data.args[0],
             (unsigned long long)asked->data.args[1]);
    char key[48];
    snprintf(key, sizeof key, "%s/%llx", name,
             strcmp(name, "ioctl") == 0 ? (unsigned long long)asked->data.args[1]
             : strcmp(name, "prctl") == 0 || strcmp(name, "socket") == 0
                 ? (unsigned long long)asked->data.args[0]
                 : 0ull);
    if (is_first(key))
        rg_warn("sandbox: would refuse the system call %s", text);
}

static _Noreturn void answer(int socket, const struct rg_sandbox_policy *policy)
{
    struct seccomp_notif *asked = NULL;
    struct seccomp_notif_resp *told = NULL;
    /* what the confined one holds, a connection above all, is to close with it */
    if (dup2(socket, 3) < 0)
        _exit(1);
    (void)syscall(SYS_close_range, 4u, ~0u, 0u);
    const int fd = rg_packet_receive_fd(3); /* the filter's, which the confined process has */
    close(3);
    if (fd < 0 || seccomp_notify_alloc(&asked, &told) != 0)
        _exit(1);
    for (;;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, -1) < 0 && errno != EINTR)
            break;
        if (wait.revents & (POLLHUP | POLLERR))
            break;
        /* the kernel wants it zeroed */
        memset(asked, 0, sizeof *asked);
        if (!(wait.revents & POLLIN) || seccomp_notify_receive(fd, asked) != 0)
            continue;
        char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, asked->data.nr);
        if (name && is_open(name))
            tell_file(policy, asked, name);
        else
            tell_call(asked, name ? name : "?");
        free(name);
        *told = (struct seccomp_notif_resp){.id = asked->id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        (void)seccomp_notify_respond(fd, told);
    }
    _exit(0);
}

int rg_sandbox_learn(void *filter, const struct rg_sandbox_policy *policy)
{
    int ends[2];
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* where that is restricted to parents */
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return errno;
    const pid_t middle = fork();
    if (middle == 0) {
        /* a grandchild, so that nobody reaps it by mistake */
        if (fork() == 0) {
            close(ends[0]);
            answer(ends[1], policy);
        }
        _exit(0);
    }
    close(ends[1]);
    int error = middle < 0 ? errno : 0;
    if (!error)
        rg_sandbox_reap(middle);
    if (!error)
        error = -seccomp_load(filter);
    if (!error) {
        const int fd = seccomp_notify_fd(filter);
        if (fd < 0 || !rg_packet_send(ends[0], "", 1, &fd, 1))
            error = EIO;
        if (fd >= 0)
            close(fd);
    }
    close(ends[0]);
    return error;
}
