/*
 * fake_worker.c - stands in for the worker in tests of the daemon: answers the hello over the descriptor that
 * it was given, then lives until its client leaves or it is told to end, as the real one does.
 *
 * A connection that the daemon hands over later is answered with a Move that says which session's worker got
 * it.
 *
 * It first checks what the daemon promises: the three descriptors and no others, the arguments, no blocked
 * signals. The client's command line steers it: "worker:stubborn" ignores SIGTERM, "worker:crash" aborts,
 * "worker:fail" exits 3.
 */
#include "server/handshake/end_reason.h"
#include "server/handshake/handed.h"
#include "transport/connect/connect.h"
#include "transport/control.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "fake worker: %s\n", what);
    exit(70);
}

static const char *find(int argc, char **argv, const char *name)
{
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    return NULL;
}

static const char *argument(int argc, char **argv, const char *name)
{
    const char *value = find(argc, argv, name);
    if (!value)
        fail(name);
    return value;
}

static void check_descriptors(int last)
{
    DIR *directory = opendir("/proc/self/fd");
    if (!directory)
        fail("no /proc/self/fd");
    for (struct dirent *entry; (entry = readdir(directory));)
        if (entry->d_name[0] != '.' && atoi(entry->d_name) > last && atoi(entry->d_name) != dirfd(directory))
            fail("a descriptor of the daemon's leaked");
    closedir(directory);
}

/* "0,1": each has a page of its own. */
static int n_devices(const char *list)
{
    int n = 1;
    for (; *list; list++)
        n += *list == ',';
    return n;
}

static void check_process(void)
{
    sigset_t blocked;
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    for (int number = 1; number < 32; number++)
        if (sigismember(&blocked, number) == 1)
            fail("a signal is blocked");
    struct sigaction action;
    if (sigaction(SIGPIPE, NULL, &action) != 0 || action.sa_handler != SIG_DFL)
        fail("SIGPIPE is not at its default");
    int death = 0;
    if (prctl(PR_GET_PDEATHSIG, &death) != 0 || death != SIGTERM)
        fail("it would outlive the daemon");
}

static void read_hello(int fd, struct rg_control *hello)
{
    static char bytes[RG_MESSAGE_MAX];
    ssize_t size = read(fd, bytes, sizeof bytes);
    if (size <= 0 || rg_control_unpack(bytes, (size_t)size, hello) != RG_OK ||
        hello->kind != RG_CONTROL_CLIENT_HELLO)
        fail("no client hello");
    close(fd);
}

static void answer(struct rg_conn *conn, int argc, char **argv)
{
    struct rg_device_info devices[RG_DEVICES_MAX] = {0};
    struct rg_control message;
    rg_server_hello_init(&message);
    struct rg_server_hello *hello = &message.server_hello;
    char list[256];
    snprintf(list, sizeof list, "%s", argument(argc, argv, "--devices"));
    char *rest = list;
    for (char *item; (item = strsep(&rest, ","));)
        devices[hello->n_devices++].ordinal = (uint32_t)atoi(item);
    hello->devices = devices;
    hello->session = strtoull(argument(argc, argv, "--session"), NULL, 10);
    snprintf(hello->driver.path, sizeof hello->driver.path, "%s", argument(argc, argv, "--driver"));
    snprintf(hello->driver.kind, sizeof hello->driver.kind, "%s", argument(argc, argv, "--driver-kind"));
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    /* a test looks at it there */
    snprintf(hello->software, sizeof hello->software, "%s", visible ? visible : "-");
    if (strcmp(argument(argc, argv, "--rdma"), "1") == 0) {
        hello->transports.n = 2;
        strcpy(hello->transports.names[1], "rdma");
    }
    if (rg_control_send(conn, &message) != RG_OK)
        fail("hello not sent");
}

/* Takes what the daemon hands over. */
static void take(const char *session)
{
    static unsigned char data[RG_MESSAGE_MAX];
    struct rg_handed handed;
    struct iovec part = {&handed, sizeof handed};
    _Alignas(struct cmsghdr) char space[CMSG_SPACE(sizeof(int) * RG_HANDED_FDS)];
    struct msghdr packet = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    ssize_t got = recvmsg(5, &packet, MSG_CMSG_CLOEXEC);
    struct cmsghdr *head = got == sizeof handed ? CMSG_FIRSTHDR(&packet) : NULL;
    struct rg_control hello, message;
    int fds[RG_HANDED_FDS], fd;
    if (!head || head->cmsg_type != SCM_RIGHTS || head->cmsg_len != CMSG_LEN(sizeof(int) * handed.n_fds) ||
        handed.n_fds > RG_HANDED_FDS)
        fail("nothing was handed over");
    memcpy(fds, CMSG_DATA(head), sizeof(int) * handed.n_fds);
    fd = fds[0];
    got = read(fds[1], data, sizeof data);
    close(fds[1]);
    if (got <= 0 || rg_control_unpack(data, (size_t)got, &hello) != RG_OK ||
        hello.client_hello.purpose != RG_PURPOSE_BULK || hello.client_hello.bulk_token[15] != 15)
        fail("nothing useful was handed over");
    struct rg_conn *conn;
    char name[16];
    snprintf(name, sizeof name, "to %.8s", session);
    rg_upgrade_init(&message, name);
    if (rg_handed_adopt(fd, handed.n_fds == 3 ? fds[2] : -1, &conn) != RG_OK ||
        rg_control_send(conn, &message) != RG_OK)
        fail("what was handed over is no connection");
    rg_conn_destroy(conn);
    rg_control_fini(&hello);
}

int main(int argc, char **argv)
{
    const char *tls = find(argc, argv, "--tls-fd");
    check_descriptors(6 + n_devices(argument(argc, argv, "--devices")) + (tls != NULL));
    check_process();
    if (strcmp(argument(argc, argv, "--fd"), "3") != 0 ||
        strcmp(argument(argc, argv, "--hello-fd"), "4") != 0 ||
        strcmp(argument(argc, argv, "--hand-fd"), "5") != 0 ||
        strcmp(argument(argc, argv, "--share-fd"), "6") != 0)
        fail("wrong descriptors");
    struct rg_control hello;
    read_hello(4, &hello);
    const char *command = hello.client_hello.identity.command;
    if (strstr(command, "worker:crash"))
        abort();
    if (strstr(command, "worker:fail"))
        return 3;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int signals = signalfd(-1, &set, SFD_CLOEXEC);

    struct rg_conn *conn;
    if (rg_handed_adopt(3, tls ? atoi(tls) : -1, &conn) != RG_OK)
        fail("descriptor 3 is no connection");
    answer(conn, argc, argv);
    for (;;) {
        struct pollfd fds[] = {{.fd = rg_conn_fd(conn), .events = POLLIN},
                               {.fd = signals, .events = POLLIN},
                               {.fd = 5, .events = POLLIN}};
        if (strstr(command, "worker:stubborn"))
            fds[1].fd = -1;
        if (poll(fds, 3, -1) < 0)
            fail("poll");
        if (fds[1].revents) {
            struct rg_control end;
            struct signalfd_siginfo info;
            static const char *const reasons[] = {"the server is shutting down", "revoked", "expired"};
            const bool told = read(signals, &info, sizeof info) == sizeof info && info.ssi_code == SI_QUEUE;
            rg_session_end_init(&end, "%s", reasons[told ? info.ssi_int : RG_END_SHUTDOWN]);
            if (rg_control_send(conn, &end) != RG_OK)
                fail("end not sent");
            rg_conn_destroy(conn);
            return 0;
        }
        if (fds[2].revents & POLLHUP) /* the daemon has gone: SIGTERM is on its way */
            continue;
        if (fds[2].revents)
            take(argument(argc, argv, "--session"));
        struct rg_message message;
        if (fds[0].revents && rg_conn_recv(conn, -1, &message) != RG_OK) {
            rg_conn_destroy(conn);
            return 0;
        }
    }
}
