/*
 * handshake.c - see handshake.h.
 *
 * Life of a handshake: the main thread creates it and puts it into `running`; its thread receives one message
 * and answers or sets `wants_session`, then moves it to `done` and writes the eventfd; the main thread joins
 * the thread, acts, and destroys it. Only the main thread touches `running` and the deadline;
 * rg_conn_interrupt is how it cuts the thread off, wherever that is.
 */
#include "server/daemon/handshake.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/daemon/management.h"
#include "transport/control.h"
#include "transport/topology/rails.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* A hello is small; what is larger is not worth taking apart. */
#define HELLO_SIZE_MAX 16384
/* How long a refused client may take to read why before its connection is closed under it. */
#define LINGER_MS 1000
/* How long a client waits for a session to end where there are too many, and how often that is looked at. */
#define ROOM_PATIENCE_MS 2000
#define ROOM_STEP_MS     10

struct rg_handshake {
    struct rg_handshake *next, *next_done;
    struct rg_handshakes *owner;
    struct rg_conn *conn;
    pthread_t thread;
    uint64_t deadline_ns;
    bool cut;           /* main thread: interrupted already */
    bool wants_session; /* set by its thread before it is done */
    struct rg_control hello;
};

enum rg_status rg_handshakes_init(struct rg_handshakes *handshakes, struct rg_driver *driver,
                                  struct rg_sessions *sessions, bool allow_unauthenticated)
{
    *handshakes = (struct rg_handshakes){.driver = driver,
                                         .sessions = sessions,
                                         .allow_unauthenticated = allow_unauthenticated,
                                         .refusals = RG_LOG_LIMIT_INIT};
    pthread_mutex_init(&handshakes->lock, NULL);
    rg_management_init(&handshakes->management);
    handshakes->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (handshakes->wake < 0) {
        rg_error("eventfd: %s", strerror(errno));
        return RG_ERR_NO_MEMORY;
    }
    return RG_OK;
}

/* --- the thread of one handshake ---------------------------------------------------------------------------
 */

static void say_refused(struct rg_handshakes *owner, const struct rg_conn *conn,
                        const struct rg_control *refusal)
{
    rg_log_limited(&owner->refusals, rg_now_ns(), RG_LOG_INFO, "%s: refused: %s", rg_conn_peer(conn),
                   refusal->refusal.reason);
}

/* Sends a refusal, then waits for the client to close first: data that it has sent and that nobody read would
 * make the kernel reset the connection, and the refusal would be lost with it. */
static void refuse(const struct rg_handshake *handshake, const struct rg_control *refusal)
{
    struct rg_conn *conn = handshake->conn;
    say_refused(handshake->owner, conn, refusal);
    if (rg_control_send(conn, refusal) != RG_OK)
        return;
    int fd = rg_conn_fd(conn);
    if (fd < 0 || shutdown(fd, SHUT_WR) != 0)
        return;
    uint64_t deadline = rg_now_ns() + LINGER_MS * 1000000ull;
    for (uint64_t now; (now = rg_now_ns()) < deadline;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        char rest[4096];
        if (poll(&wait, 1, (int)((deadline - now) / 1000000u) + 1) <= 0 ||
            recv(fd, rest, sizeof rest, MSG_DONTWAIT) <= 0)
            return;
    }
}

/* For those who look for a fault between the two machines. */
static void describe_machine(const struct rg_driver *driver, struct rg_machine_info *out)
{
    struct timespec now;
    struct utsname name;
    if (clock_gettime(CLOCK_REALTIME, &now) == 0)
        out->clock_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    if (uname(&name) == 0)
        rg_control_text(out->kernel, sizeof out->kernel, name.release, strlen(name.release));
    rg_rdma_describe(out->rdma, sizeof out->rdma);
    const char *gpus[RG_DEVICES_MAX];
    struct rg_rail rails[RG_CONTROL_ADDRESSES];
    for (uint32_t i = 0; i < driver->n_devices; i++)
        gpus[i] = driver->devices[i].pci;
    rg_rails_describe(rails, rg_rails_here(gpus, driver->n_devices, rails, RG_CONTROL_ADDRESSES), out->rails,
                      sizeof out->rails);
}

static void answer_inventory(struct rg_handshake *handshake)
{
    struct rg_handshakes *owner = handshake->owner;
    const struct rg_driver *driver = owner->driver;
    struct rg_device_info *devices = calloc(driver->n_devices, sizeof *devices);
    struct rg_session_info *sessions = calloc(RG_CONTROL_SESSIONS, sizeof *sessions);
    struct rg_control *answer = calloc(1, sizeof *answer);
    if (devices && sessions && answer) {
        answer->kind = RG_CONTROL_INVENTORY;
        struct rg_inventory *inventory = &answer->inventory;
        snprintf(inventory->software, sizeof inventory->software, "remote-gpu %s", RG_VERSION);
        if (gethostname(inventory->host, sizeof inventory->host - 1) != 0)
            inventory->host[0] = 0;
        inventory->protocol_major = RG_PROTOCOL_MAJOR;
        inventory->protocol_minor = RG_PROTOCOL_MINOR;
        inventory->driver = driver->info;
        bool status_wanted = handshake->hello.client_hello.purpose == RG_PURPOSE_STATUS;
        rg_driver_devices(owner->driver, status_wanted, devices);
        inventory->n_devices = driver->n_devices;
        inventory->devices = devices;
        inventory->sessions_running = rg_sessions_running(owner->sessions);
        inventory->sessions = sessions;
        if (status_wanted)
            inventory->n_sessions = rg_sessions_list(owner->sessions, sessions, RG_CONTROL_SESSIONS);
        describe_machine(driver, &inventory->machine);
        inventory->limits = (struct rg_limits_info){
            .message_bytes = RG_MESSAGE_MAX, .bulk_bytes = RG_BULK_MAX, .sessions = owner->sessions->max};
        enum rg_status status;
        /* what does not fit into a message is left out; the count stays true */
        while ((status = rg_control_send(handshake->conn, answer)) == RG_ERR_LIMIT &&
               inventory->n_sessions > 0)
            inventory->n_sessions /= 2;
        if (status != RG_OK)
            rg_debug("%s: inventory not sent: %s", rg_conn_peer(handshake->conn), rg_status_string(status));
    }
    free(devices);
    free(sessions);
    free(answer);
}

static void answer_question(struct rg_handshake *handshake)
{
    const struct rg_client_hello *hello = &handshake->hello.client_hello;
    void *data = malloc(RG_ANSWER_SIZE_MAX);
    struct rg_control *answer = calloc(1, sizeof *answer);
    size_t size = 0;
    if (data && answer) {
        answer->kind = RG_CONTROL_ANSWER;
        answer->answer.data = data;
        rg_management_ask(&handshake->owner->management, handshake->owner->driver->info.path, hello->question,
                          hello->question_size, data, &size);
        answer->answer.size = (uint32_t)size;
        if (rg_control_send(handshake->conn, answer) != RG_OK)
            rg_debug("%s: left before its question was answered", rg_conn_peer(handshake->conn));
    }
    free(answer);
    free(data);
}

/* A unix socket without permissions (an abstract one) is reachable for every local user: let in this one and
 * root. */
static bool peer_is_trusted(const struct rg_handshake *handshake)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (handshake->owner->allow_unauthenticated || strcmp(rg_conn_transport(handshake->conn), "unix") != 0)
        return true;
    int fd = rg_conn_fd(handshake->conn);
    if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return false;
    return peer.uid == 0 || peer.uid == geteuid();
}

/* Receives the hello. False: the connection is of no use, or was refused. */
static bool receive_hello(struct rg_handshake *handshake)
{
    struct rg_conn *conn = handshake->conn;
    struct rg_control refusal;
    struct rg_message message;
    enum rg_status status = rg_conn_recv(conn, RG_HELLO_TIMEOUT_MS, &message);
    if (status == RG_OK)
        status = message.bulk_size != 0 ? RG_ERR_PROTOCOL
                 : message.size > HELLO_SIZE_MAX
                     ? RG_ERR_LIMIT
                     : rg_control_unpack(message.data, message.size, &handshake->hello);
    if (status == RG_OK && handshake->hello.kind == RG_CONTROL_CLIENT_HELLO)
        return true;
    if (status == RG_OK || status == RG_ERR_PROTOCOL || status == RG_ERR_LIMIT) {
        rg_refusal_init(
            &refusal, RG_REFUSAL_MALFORMED,
            "this is a remote-gpu server, and what was sent is no greeting of a remote-gpu client; "
            "check which program was pointed at this address");
        refuse(handshake, &refusal);
    } else if (status == RG_ERR_CLOSED || status == RG_ERR_LOST) {
        rg_debug("%s: left before the handshake", rg_conn_peer(conn));
    } else {
        rg_log_limited(&handshake->owner->refusals, rg_now_ns(), RG_LOG_INFO, "%s: no greeting came: %s",
                       rg_conn_peer(conn), rg_status_string(status));
    }
    return false;
}

/*
 * A program that has just ended may still have its worker: the one that starts next, as the next line of a
 * script does, must not be refused for it. Waits a moment for a session to end if there are as many as there
 * may be, or for the client to go.
 */
static void wait_for_room(const struct rg_handshake *handshake)
{
    struct rg_sessions *sessions = handshake->owner->sessions;
    const uint64_t end = rg_now_ns() + ROOM_PATIENCE_MS * 1000000ull;
    while (rg_sessions_running(sessions) >= sessions->max && rg_now_ns() < end) {
        struct pollfd client = {.fd = rg_conn_fd(handshake->conn), .events = POLLRDHUP};
        if (poll(&client, 1, ROOM_STEP_MS) != 0)
            return;
    }
}

static void converse(struct rg_handshake *handshake)
{
    struct rg_control refusal;
    if (!receive_hello(handshake))
        return;
    const struct rg_client_hello *hello = &handshake->hello.client_hello;
    if (hello->protocol_major != RG_PROTOCOL_MAJOR) {
        rg_refusal_init(
            &refusal, RG_REFUSAL_VERSION,
            "the client (%s) speaks version %u of the protocol and the server (remote-gpu %s) version %u; "
            "install the same release on both sides",
            hello->software, hello->protocol_major, RG_VERSION, RG_PROTOCOL_MAJOR);
        refuse(handshake, &refusal);
    } else if (!peer_is_trusted(handshake)) {
        rg_refusal_init(
            &refusal, RG_REFUSAL_UNAUTHORISED,
            "this server's socket is for the user who started it; run your own, or have it started with "
            "--allow-unauthenticated");
        refuse(handshake, &refusal);
    } else if (hello->purpose == RG_PURPOSE_MANAGEMENT) {
        answer_question(handshake);
    } else if (hello->purpose != RG_PURPOSE_SESSION && hello->purpose != RG_PURPOSE_NETPERF &&
               hello->purpose != RG_PURPOSE_BULK && hello->purpose != RG_PURPOSE_RESUME) {
        answer_inventory(handshake);
    } else {
        if (hello->purpose == RG_PURPOSE_SESSION || hello->purpose == RG_PURPOSE_NETPERF)
            wait_for_room(handshake);
        handshake->wants_session = true;
    }
}

static void *handshake_main(void *argument)
{
    struct rg_handshake *handshake = argument;
    struct rg_handshakes *owner = handshake->owner;
    converse(handshake);
    pthread_mutex_lock(&owner->lock);
    handshake->next_done = owner->done;
    owner->done = handshake;
    pthread_mutex_unlock(&owner->lock);
    uint64_t one = 1;
    if (write(owner->wake, &one, sizeof one) < 0)
        rg_error("eventfd: %s", strerror(errno)); /* cannot be: the counter does not overflow */
    return NULL;
}

/* --- main thread -------------------------------------------------------------------------------------------
 */

/* The oldest is the last of the list. */
static void cut_oldest(struct rg_handshakes *handshakes)
{
    struct rg_handshake *oldest = NULL;
    for (struct rg_handshake *at = handshakes->running; at; at = at->next)
        if (!at->cut)
            oldest = at;
    if (oldest) {
        oldest->cut = true;
        rg_conn_interrupt(oldest->conn);
    }
}

void rg_handshakes_start(struct rg_handshakes *handshakes, struct rg_conn *conn)
{
    if (handshakes->n >= RG_HANDSHAKES_MAX)
        cut_oldest(handshakes);
    struct rg_handshake *handshake = calloc(1, sizeof *handshake);
    pthread_attr_t attributes;
    if (!handshake || pthread_attr_init(&attributes) != 0) {
        rg_error("%s: no memory for a handshake", rg_conn_peer(conn));
        free(handshake);
        rg_conn_destroy(conn);
        return;
    }
    handshake->owner = handshakes;
    handshake->conn = conn;
    handshake->deadline_ns = rg_now_ns() + RG_HELLO_TIMEOUT_MS * 1000000ull;
    (void)pthread_attr_setstacksize(&attributes, 512 * 1024);
    int error = pthread_create(&handshake->thread, &attributes, handshake_main, handshake);
    pthread_attr_destroy(&attributes);
    if (error != 0) {
        rg_error("%s: no thread for a handshake: %s", rg_conn_peer(conn), strerror(error));
        rg_conn_destroy(conn);
        free(handshake);
        return;
    }
    handshake->next = handshakes->running;
    handshakes->running = handshake;
    handshakes->n++;
}

/* A worker is not started for somebody who has left, which costs who does it often next to nothing. */
static bool has_left(const struct rg_conn *conn)
{
    struct pollfd client = {.fd = rg_conn_fd(conn), .events = POLLRDHUP};
    return poll(&client, 1, 0) > 0;
}

/* The client asked for a session, or brings a connection for one: give it to a worker, or say why not. */
static void start_session(struct rg_handshake *handshake, bool stopping)
{
    struct rg_conn *conn = handshake->conn;
    struct rg_control refusal;
    if (has_left(conn)) {
        rg_debug("%s: left before its session began", rg_conn_peer(conn));
        return;
    }
    if (handshake->hello.client_hello.purpose == RG_PURPOSE_RESUME) {
        const enum rg_status status =
            rg_sessions_hand_over(handshake->owner->sessions, handshake->hello.client_hello.resume_session,
                                  &handshake->hello, rg_conn_fd(conn), &refusal);
        if (status == RG_OK)
            return;
        if (status != RG_ERR_TIMEOUT)
            rg_refusal_init(&refusal, RG_REFUSAL_NO_SUCH_SESSION, "the session has ended on the server");
    } else if (stopping) {
        rg_refusal_init(&refusal, RG_REFUSAL_SHUTTING_DOWN,
                        "the server is shutting down; use another, or try later");
    } else if (handshake->hello.client_hello.purpose == RG_PURPOSE_BULK) {
        if (rg_sessions_hand_over(handshake->owner->sessions, handshake->hello.client_hello.bulk_session,
                                  &handshake->hello, rg_conn_fd(conn), &refusal) == RG_OK)
            return;
    } else if (rg_sessions_start(handshake->owner->sessions, handshake->owner->driver, &handshake->hello,
                                 rg_conn_peer(conn), rg_conn_fd(conn), &refusal) == RG_OK) {
        return;
    }
    say_refused(handshake->owner, conn, &refusal);
    /* The client waits for the answer and has sent nothing else, and an answer this small never blocks. */
    if (rg_control_send(conn, &refusal) != RG_OK)
        rg_debug("%s: left before it was refused", rg_conn_peer(conn));
}

static void destroy(struct rg_handshakes *handshakes, struct rg_handshake *handshake)
{
    struct rg_handshake **link = &handshakes->running;
    while (*link != handshake)
        link = &(*link)->next;
    *link = handshake->next;
    handshakes->n--;
    rg_conn_destroy(handshake->conn);
    rg_control_fini(&handshake->hello);
    free(handshake);
}

void rg_handshakes_finish(struct rg_handshakes *handshakes, bool stopping)
{
    uint64_t count;
    if (read(handshakes->wake, &count, sizeof count) < 0)
        return; /* nobody is done */
    pthread_mutex_lock(&handshakes->lock);
    struct rg_handshake *done = handshakes->done;
    handshakes->done = NULL;
    pthread_mutex_unlock(&handshakes->lock);
    while (done) {
        struct rg_handshake *handshake = done;
        done = handshake->next_done;
        pthread_join(handshake->thread, NULL);
        if (handshake->wants_session && !handshake->cut)
            start_session(handshake, stopping);
        destroy(handshakes, handshake);
    }
}

int rg_handshakes_expire(struct rg_handshakes *handshakes)
{
    uint64_t now = rg_now_ns(), next = UINT64_MAX;
    for (struct rg_handshake *at = handshakes->running; at; at = at->next) {
        if (at->cut)
            continue;
        if (at->deadline_ns <= now) {
            at->cut = true;
            rg_conn_interrupt(at->conn);
        } else if (at->deadline_ns < next) {
            next = at->deadline_ns;
        }
    }
    return next == UINT64_MAX ? -1 : (int)((next - now) / 1000000u) + 1;
}

void rg_handshakes_fini(struct rg_handshakes *handshakes)
{
    for (struct rg_handshake *at = handshakes->running; at; at = at->next)
        rg_conn_interrupt(at->conn);
    while (handshakes->running) {
        struct rg_handshake *handshake = handshakes->running;
        pthread_join(handshake->thread, NULL);
        destroy(handshakes, handshake);
    }
    rg_management_fini(&handshakes->management);
    if (handshakes->wake >= 0)
        close(handshakes->wake);
    pthread_mutex_destroy(&handshakes->lock);
}
