/*
 * sockets.c - what is special to sockets: stale unix paths, the wildcard address, a connect that gets no
 * answer, and the transport loaded as a part instead of linked.
 *
 * With an argument (the folder lib/remote-gpu) the part in it is loaded; without, the linked transport is
 * used.
 */
#include "tests/transport/support.h"
#include "transport/connect/connect.h"
#include "transport/tcp/socket.h"

#include "common/base/clock.h"
#include "common/base/path.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static const struct rg_transport_options plain = {.filters = ""};

/* Where there is no IPv6, something else is wrong with it. */
static void test_address_of_a_link(void)
{
    char why[128] = "";
    struct rg_conn *conn;
    const int probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_STATUS(rg_transport_connect("[fe80::1]:7600", &plain, why, sizeof why, &conn), RG_ERR_UNREACHABLE);
    CHECK(probe < 0 || strstr(why, "[fe80::1%eth0]") || strstr(why, "unreachable"));
    if (probe >= 0)
        close(probe);
}

static void test_stale_unix_path(void)
{
    char path[64], address[80], why[128] = "";
    snprintf(path, sizeof path, "/tmp/remote-gpu-stale.%d", (int)getpid());
    snprintf(address, sizeof address, "unix:%s", path);

    /* left behind by a process that is gone */
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    strcpy(sun.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(fd, (struct sockaddr *)&sun, sizeof sun) == 0);
    close(fd);
    struct rg_listener *listener, *second;
    CHECK_OK(rg_transport_listen(address, &plain, why, sizeof why, &listener));

    /* of one that lives */
    CHECK_STATUS(rg_transport_listen(address, &plain, why, sizeof why, &second), RG_ERR_UNREACHABLE);
    CHECK(strcmp(why, "address already in use") == 0);
    struct rg_conn *conn;
    CHECK_STATUS(rg_listener_accept(listener, 0, &conn), RG_ERR_TIMEOUT); /* the look did not disturb it */

    rg_listener_destroy(listener);
    struct stat st;
    CHECK(lstat(path, &st) != 0);

    /* something that is not a socket stays */
    FILE *file = fopen(path, "w");
    CHECK(file);
    fclose(file);
    CHECK_STATUS(rg_transport_listen(address, &plain, why, sizeof why, &listener), RG_ERR_UNREACHABLE);
    CHECK(lstat(path, &st) == 0 && S_ISREG(st.st_mode));
    unlink(path);

    CHECK_STATUS(rg_transport_listen("unix:/nonexistent/folder/socket", &plain, why, sizeof why, &listener),
                 RG_ERR_UNREACHABLE);
    CHECK(strcmp(why, "no such folder") == 0);
}

static void test_wildcard(void)
{
    struct rg_listener *listener;
    char why[128] = "", address[64];
    CHECK_OK(rg_transport_listen("*:0", &plain, why, sizeof why, &listener));
    const char *port = strrchr(rg_listener_address(listener), ':');
    snprintf(address, sizeof address, "127.0.0.1%s", port);
    struct rg_conn *a, *b;
    CHECK_OK(rg_transport_connect(address, &plain, why, sizeof why, &a));
    CHECK_OK(rg_listener_accept(listener, 5000, &b));
    CHECK(strncmp(rg_conn_peer(b), "127.0.0.1:", 10) == 0);
    expect_good(a, b);
    rg_conn_destroy(a);
    rg_conn_destroy(b);
    rg_listener_destroy(listener);
}

/* A listener whose queue is full does not answer: the connect gives up when its time is over. */
static void test_connect_timeout(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof in;
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&in, sizeof in) == 0 && listen(fd, 0) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&in, &size) == 0);
    char address[64], why[128] = "";
    snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(in.sin_port));
    const struct rg_transport_options options = {.filters = "", .connect_timeout_ms = 200};
    struct rg_conn *conns[8] = {0};
    enum rg_status status = RG_OK;
    uint64_t before = 0;
    int n = 0;
    while (n < 8 && status == RG_OK) {
        before = rg_now_ns();
        status = rg_transport_connect(address, &options, why, sizeof why, &conns[n++]);
    }
    CHECK_STATUS(status, RG_ERR_UNREACHABLE);
    CHECK(strcmp(why, "timed out") == 0);
    uint64_t waited = rg_now_ns() - before;
    CHECK(waited >= 199000000u && waited < 5000000000u);
    for (int i = 0; i < n - 1; i++)
        rg_conn_destroy(conns[i]);
    close(fd);
}

/* The first address of a name answers nothing, or refuses; the second is tried. */
static void test_second_address(void)
{
    struct rg_listener *listener;
    char why[128] = "", address[64];
    CHECK_OK(rg_transport_listen("127.0.0.1:0", &plain, why, sizeof why, &listener));
    snprintf(address, sizeof address, "localhost%s", strrchr(rg_listener_address(listener), ':'));
    struct rg_conn *a;
    CHECK_OK(rg_transport_connect(address, &plain, why, sizeof why, &a));
    rg_conn_destroy(a);
    rg_listener_destroy(listener);
}

/* A socket that listens on this machine, and answers nobody any more. */
static int silent_listener(struct sockaddr_in *at)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t size = sizeof *at;
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)at, size) == 0 && listen(fd, 0) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)at, &size) == 0);
    struct addrinfo alone = {
        .ai_family = AF_INET, .ai_addr = (struct sockaddr *)at, .ai_addrlen = sizeof *at};
    int n = 0;
    while (rg_tcp_connect_first(&alone, 200) >= 0) /* the queue's; they end with this program */
        CHECK(++n < 8);
    CHECK(errno == ETIMEDOUT);
    return fd;
}

/* The addresses of one name: one that answers is not waited for behind one that does not. */
static void test_several_addresses(void)
{
    enum { PATIENCE_MS = 20000 };
    struct sockaddr_in silent,
        refused = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons(1)},
        good = refused, peer;
    socklen_t size = sizeof good;
    const int silent_fd = silent_listener(&silent), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    good.sin_port = 0;
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&good, size) == 0 && listen(fd, 4) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&good, &size) == 0);
    struct addrinfo list[3] = {{.ai_addr = (struct sockaddr *)&silent, .ai_next = &list[1]},
                               {.ai_addr = (struct sockaddr *)&refused, .ai_next = &list[2]},
                               {.ai_addr = (struct sockaddr *)&good}};
    for (int i = 0; i < 3; i++) {
        list[i].ai_family = AF_INET;
        list[i].ai_addrlen = sizeof good;
    }
    const uint64_t before = rg_now_ns();
    const int connected = rg_tcp_connect_first(list, PATIENCE_MS);
    CHECK(connected >= 0 && getpeername(connected, (struct sockaddr *)&peer, &size) == 0);
    CHECK(peer.sin_port == good.sin_port);
    CHECK(!(fcntl(connected, F_GETFL) & O_NONBLOCK));
    CHECK(rg_now_ns() - before < PATIENCE_MS / 4 * 1000000ull);
    close(connected);

    list[1].ai_next = NULL; /* nobody is left: one is silent, and one has refused, which says more */
    CHECK(rg_tcp_connect_first(list, 500) < 0 && errno == ECONNREFUSED);
    close(silent_fd);
    close(fd);
}

/* --- names ------------------------------------------------------------------------------------------------ */

enum { CONNECT_MS = 1000, LOOK_UP_MS = CONNECT_MS + 100 };
#define SLOW_NAME "slow.example"

static struct sockaddr_in addresses[2]; /* of that name */
static int n_look_ups, look_up_error;

static struct addrinfo *copy_address(const struct sockaddr_in *address, struct addrinfo *next)
{
    struct addrinfo *one = calloc(1, sizeof *one + sizeof *address); /* as freeaddrinfo frees it */
    CHECK(one);
    memcpy(one + 1, address, sizeof *address);
    *one = (struct addrinfo){.ai_family = AF_INET,
                             .ai_socktype = SOCK_STREAM,
                             .ai_addrlen = sizeof *address,
                             .ai_addr = (struct sockaddr *)(void *)(one + 1),
                             .ai_next = next};
    return one;
}

typedef int look_up_function(const char *, const char *, const struct addrinfo *, struct addrinfo **);

/* As where the first server for names is dead. */
__attribute__((visibility("default"))) int getaddrinfo(const char *host, const char *port,
                                                       const struct addrinfo *hints, struct addrinfo **list)
{
    if (!host || strcmp(host, SLOW_NAME) != 0)
        return ((look_up_function *)dlsym(RTLD_NEXT, "getaddrinfo"))(host, port, hints, list);
    if (hints->ai_flags & AI_NUMERICHOST)
        return EAI_NONAME;
    n_look_ups++;
    usleep(LOOK_UP_MS * 1000);
    if (!look_up_error)
        *list = copy_address(&addresses[0], copy_address(&addresses[1], NULL));
    return look_up_error;
}

/* It takes longer to look a name up than to connect may, and the first address answers nobody. */
static void test_slow_names(void)
{
    const struct rg_transport_options options = {.filters = "", .connect_timeout_ms = CONNECT_MS};
    const int silent = silent_listener(&addresses[0]);
    socklen_t size = sizeof addresses[1];
    struct rg_listener *listener;
    struct rg_conn *conn;
    char why[128] = "";
    CHECK_OK(rg_transport_listen("127.0.0.1:0", &plain, why, sizeof why, &listener));
    CHECK(getsockname(rg_listener_fd(listener), (struct sockaddr *)&addresses[1], &size) == 0);
    CHECK_OK(rg_transport_connect("tcp://" SLOW_NAME, &options, why, sizeof why, &conn));
    rg_conn_destroy(conn);
    CHECK(n_look_ups == 1);

    rg_transport_look_up("tcp://" SLOW_NAME, false); /* what was looked up before serves one connection */
    CHECK(n_look_ups == 2);
    CHECK_OK(rg_transport_connect("tcp://" SLOW_NAME ":1", &options, why, sizeof why, &conn));
    rg_conn_destroy(conn);
    CHECK(n_look_ups == 3);
    CHECK_OK(rg_transport_connect("tcp://" SLOW_NAME, &options, why, sizeof why, &conn));
    rg_conn_destroy(conn);
    CHECK(n_look_ups == 3);
    CHECK_OK(rg_transport_connect("tcp://" SLOW_NAME, &options, why, sizeof why, &conn));
    rg_conn_destroy(conn);
    CHECK(n_look_ups == 4);

    look_up_error = EAI_AGAIN;
    rg_transport_look_up("tcp://" SLOW_NAME, false);
    CHECK_STATUS(rg_transport_connect("tcp://" SLOW_NAME, &options, why, sizeof why, &conn),
                 RG_ERR_UNREACHABLE);
    CHECK(n_look_ups == 5 && *why);
    look_up_error = 0;
    rg_listener_destroy(listener);
    close(silent);
}

/* A peer that is gone, told from one that does not read, by what the kernel says of either (as it said of real ones). */
static void test_answered(void)
{
    enum { PATIENCE_MS = 60000 };
    struct tcp_info info = {.tcpi_last_ack_recv = 90000, .tcpi_last_data_recv = 90000};
    CHECK(rg_tcp_is_answered(&info, PATIENCE_MS)); /* nothing is on its way */
    info.tcpi_unacked = 1;
    info.tcpi_retransmits = 7;
    CHECK(!rg_tcp_is_answered(&info, PATIENCE_MS));
    info.tcpi_last_ack_recv = 100;
    CHECK(rg_tcp_is_answered(&info, PATIENCE_MS));

    /* its window is closed, and it says so */
    info = (struct tcp_info){
        .tcpi_notsent_bytes = 65, .tcpi_probes = 5, .tcpi_last_ack_recv = 100, .tcpi_last_data_recv = 90000};
    CHECK(rg_tcp_is_answered(&info, PATIENCE_MS));

    /* nothing leaves this machine, where OUTPUT rejects it; the peer repeats what it has sent, and what it hears of that is nothing */
    info.tcpi_snd_wnd = 64240;
    CHECK(!rg_tcp_is_answered(&info, PATIENCE_MS));
    info.tcpi_last_data_recv = 59000;
    CHECK(rg_tcp_is_answered(&info, PATIENCE_MS));
    info = (struct tcp_info){.tcpi_notsent_bytes = 65, .tcpi_snd_wnd = 64240, .tcpi_last_data_recv = 90000};
    CHECK(rg_tcp_is_answered(&info, PATIENCE_MS)); /* a moment before it is sent */
}

static void test_part(const char *library_dir)
{
    struct rg_conn *conn;
    char why[256] = "";
    rg_path_set_library_dir("/nonexistent");
    CHECK_STATUS(rg_transport_connect("127.0.0.1:1", &plain, why, sizeof why, &conn), RG_ERR_UNREACHABLE);
    CHECK(strcmp(why, "there is no transport tcp (/nonexistent/transport/tcp.so does not exist)") == 0);
    rg_path_set_library_dir(library_dir);
    CHECK_STATUS(rg_transport_connect("carrierpigeon://x", &plain, why, sizeof why, &conn),
                 RG_ERR_UNREACHABLE);
    CHECK(strstr(why, "there is no transport carrierpigeon") == why);
    struct pair pair = pair_open("127.0.0.1:0", "", RG_WAIT_AUTO);
    expect_good(pair.a, pair.b);
    pair_close(&pair);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        alarm(60);
        test_part(argv[1]);
    } else {
        test_begin();
    }
    test_address_of_a_link();
    test_stale_unix_path();
    test_wildcard();
    test_connect_timeout();
    test_second_address();
    test_several_addresses();
    test_slow_names();
    test_answered();
    return 0;
}
