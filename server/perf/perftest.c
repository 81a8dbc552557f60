/* perftest.c - see perftest.h. */
#include "server/perf/perftest.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* A port that TCP does not use now; rdma_cm has ports of its own, which are as good as unused. */
static uint32_t free_port(void)
{
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    uint32_t port = 0;
    if (fd >= 0 && listen(fd, 1) == 0 && getsockname(fd, (struct sockaddr *)&address, &size) == 0)
        port = ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                                   : ((struct sockaddr_in *)&address)->sin_port);
    if (fd >= 0)
        close(fd);
    return port;
}

/* In the child: becomes the program, or writes why not. */
static _Noreturn void become(const char **words, int failed)
{
    int null = open("/dev/null", O_RDWR);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int fd = 0; fd < 3; fd++)
        if (null >= 0)
            dup2(null, fd);
    (void)close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    execvp(words[0], (char **)(uintptr_t)words);
    int error = errno;
    (void)!write(failed, &error, sizeof error);
    _exit(127);
}

void rg_perftest_stop(pid_t *pid)
{
    if (*pid <= 0)
        return;
    kill(*pid, SIGKILL);
    while (waitpid(*pid, NULL, 0) < 0 && errno == EINTR)
        ;
    *pid = 0;
}

enum rg_status rg_perftest_start(pid_t *pid, const struct rg_netperf_perftest *request,
                                 struct rg_netperf_started *out)
{
    *out = (struct rg_netperf_started){
        .header = {.kind = RG_MESSAGE_PERFTEST, .version = RG_PROTOCOL_MAJOR, .count = 1}};
    if (request->program < RG_NETPERF_SEND_LAT || request->program > RG_NETPERF_READ_BW ||
        request->size == 0 || request->size > RG_NETPERF_RAW_MAX || request->iterations < 5 ||
        request->iterations > RG_NETPERF_ITERATIONS_MAX || request->single > 1)
        return RG_ERR_LIMIT;
    rg_perftest_stop(pid);
    out->port = free_port();
    int ends[2];
    if (out->port == 0 || pipe2(ends, O_CLOEXEC) != 0) {
        out->error = (uint32_t)errno;
        return RG_OK;
    }
    char text[3][RG_NETPERF_WORD];
    const char *words[RG_NETPERF_WORDS];
    rg_netperf_command(request, out->port, text, words);
    *pid = fork();
    if (*pid == 0)
        become(words, ends[1]);
    int error = errno;
    close(ends[1]);
    if (*pid < 0 || read(ends[0], &error, sizeof error) == (ssize_t)sizeof error) {
        out->error = (uint32_t)error;
        rg_perftest_stop(pid);
        *pid = 0;
    }
    close(ends[0]);
    return RG_OK;
}
