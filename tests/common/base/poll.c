/* Waiting where a filter of system calls refuses how one waits. */
#include "common/base/poll.h"
#include "common/base/clock.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static bool refuse(unsigned first, unsigned second, unsigned third)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, first, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, second, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, third, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

/* What a child of this process returns, and in `said` what it told. */
static int in_child(int (*run)(void), char *said, size_t size)
{
    int ends[2], status;
    size_t n = 0;
    ssize_t got;
    cr_assert_eq(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        close(ends[1]);
        _exit(run());
    }
    close(ends[1]);
    while (n < size - 1 && (got = read(ends[0], said + n, size - 1 - n)) > 0)
        n += (size_t)got;
    said[n] = '\0';
    close(ends[0]);
    cr_assert_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Of what can be read, written to and waited for in vain, one of each, and of one end of a pair of sockets when the other ends. */
static int wait_for_all(const int ends[2], const int pair[2])
{
    struct pollfd p[] = {{.fd = ends[0], .events = POLLIN},
                         {.fd = -1, .events = POLLIN},
                         {.fd = pair[0], .events = POLLIN | POLLRDHUP}};
    struct pollfd out = {.fd = ends[1], .events = POLLIN | POLLOUT};
    if (rg_poll(p, 3, 1) != 0 || rg_poll(&out, 1, -1) != 1 || out.revents != POLLOUT ||
        write(ends[1], "x", 1) != 1)
        return 2;
    if (rg_poll(p, 3, -1) != 1 || p[0].revents != POLLIN || p[1].revents || p[2].revents)
        return 3;
    char byte;
    if (read(ends[0], &byte, 1) != 1 || rg_poll(p, 3, 0) != 0 || shutdown(pair[1], SHUT_WR) != 0)
        return 4;
    if (rg_poll(p, 3, -1) != 1 || p[2].revents != (POLLIN | POLLRDHUP))
        return 5;
    struct pollfd end = {.fd = pair[0], .events = POLLRDHUP}, open = {.fd = pair[1], .events = POLLRDHUP};
    return rg_poll(&end, 1, -1) == 1 && end.revents == POLLRDHUP && rg_poll(&open, 1, 1) == 0 ? 0 : 6;
}

static int by_ppoll(void)
{
    int ends[2], pair[2];
    return pipe(ends) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0 ||
                   !refuse(SYS_poll, SYS_poll, SYS_poll)
               ? 1
               : wait_for_all(ends, pair);
}

static int by_select(void)
{
    int ends[2], pair[2];
    return pipe(ends) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0 ||
                   !refuse(SYS_poll, SYS_poll, SYS_ppoll)
               ? 1
               : wait_for_all(ends, pair);
}

static int without_descriptors(void)
{
    const struct rlimit none = {0, 0};
    int ends[2], pair[2];
    return pipe(ends) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0 ||
                   setrlimit(RLIMIT_NOFILE, &none) != 0
               ? 1
               : wait_for_all(ends, pair);
}

static int not_at_all(void)
{
    struct pollfd p = {.fd = 0, .events = POLLIN};
    if (!refuse(SYS_poll, SYS_ppoll, SYS_pselect6))
        return 1;
    for (int i = 0; i < 3; i++)
        if (rg_poll(&p, 1, -1) != -1 || errno != EACCES || !rg_poll_is_refused())
            return 2;
    return 0;
}

static int asleep(void)
{
    if (!refuse(SYS_nanosleep, SYS_clock_nanosleep, SYS_nanosleep) || usleep(1) == 0)
        return 1;
    const uint64_t began = rg_now_ns();
    for (int i = 0; i < 3; i++)
        rg_pause(2000000);
    return rg_now_ns() - began >= 6000000 ? 0 : 2;
}

Test(ready, by_ppoll)
{
    char said[1024];
    cr_expect_eq(in_child(by_ppoll, said, sizeof said), 0);
    cr_expect_str_empty(said);
}

Test(ready, by_select)
{
    char said[1024];
    cr_expect_eq(in_child(by_select, said, sizeof said), 0);
    cr_expect_str_empty(said);
}

Test(ready, where_no_descriptors_may_be_opened)
{
    char said[1024];
    cr_expect_eq(in_child(without_descriptors, said, sizeof said), 0);
    cr_expect_str_empty(said);
}

Test(ready, refused_is_told_once)
{
    char said[1024];
    cr_expect_eq(in_child(not_at_all, said, sizeof said), 0);
    const char *first = strstr(said, "poll, ppoll and select are refused");
    cr_assert_not_null(first);
    cr_expect_null(strstr(first + 1, "poll, ppoll"));
}

Test(pause, lasts_where_sleep_is_refused)
{
    char said[1024];
    cr_expect_eq(in_child(asleep, said, sizeof said), 0);
}
