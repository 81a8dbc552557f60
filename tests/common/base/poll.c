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
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static bool refuse(unsigned first, unsigned second)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, first, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, second, 0, 1),
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

static int by_ppoll(void)
{
    int ends[2];
    if (pipe(ends) != 0 || !refuse(SYS_poll, SYS_poll))
        return 1;
    struct pollfd p = {.fd = ends[0], .events = POLLIN};
    if (rg_poll(&p, 1, 1) != 0 || write(ends[1], "x", 1) != 1)
        return 2;
    return rg_poll(&p, 1, -1) == 1 && p.revents == POLLIN ? 0 : 3;
}

static int not_at_all(void)
{
    struct pollfd p = {.fd = 0, .events = POLLIN};
    if (!refuse(SYS_poll, SYS_ppoll))
        return 1;
    for (int i = 0; i < 3; i++)
        if (rg_poll(&p, 1, -1) != -1 || errno != EACCES || !rg_poll_is_refused())
            return 2;
    return 0;
}

static int asleep(void)
{
    if (!refuse(SYS_nanosleep, SYS_clock_nanosleep) || usleep(1) == 0)
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

Test(ready, refused_is_told_once)
{
    char said[1024];
    cr_expect_eq(in_child(not_at_all, said, sizeof said), 0);
    const char *first = strstr(said, "poll and ppoll are refused");
    cr_assert_not_null(first);
    cr_expect_null(strstr(first + 1, "poll and ppoll"));
}

Test(pause, lasts_where_sleep_is_refused)
{
    char said[1024];
    cr_expect_eq(in_child(asleep, said, sizeof said), 0);
}
