/*
 * kube_grpc.c - what a kubelet says to the parts of the Kubernetes driver that it asks, and what it answers them: HTTP/2, frames of gRPC,
 * the messages of device plugins, of dynamic resource allocation and of registration. There is no API server and no pool behind them, and
 * one thread alone: calls are answered when all that has come of a connection is read.
 *
 * The input: u8 way (modulo WAYS), then
 *
 *   RAW       bytes of a connection behind HTTP/2's preface
 *   REQUESTS  u8 method and text (steps.h) each: calls with that message
 *   ANSWER    u8 flags (FRAMED: a good answer of HTTP/2 with these bytes as its message), bytes: what the kubelet answers to our call
 */
#include "common/base/log.h"
#include "generated/places/kubernetes/proto/podresources.pb-c.h"
#include "places/kubernetes/grpc/client.h"
#include "places/kubernetes/grpc/header.h"
#include "places/kubernetes/grpc/internal.h"
#include "places/kubernetes/node/service.h"
#include "places/kubernetes/plugin/plugin.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/steps.h"

#include <sys/socket.h>
#include <sys/un.h>

enum { RAW, REQUESTS, ANSWER, WAYS };
enum { FRAMED = 1, SERVERS = 2, PATIENCE_NS = 200000000, ANSWER_MAX = 16384 };

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

static const struct rg_kube_cluster cluster = {.url = "http://127.0.0.1:1"};
static struct rg_kube_node node = {
    .cluster = &cluster, .endpoint = "/plugin.sock", .files = PTHREAD_MUTEX_INITIALIZER};
static struct rg_kube_plugin plugin;
static struct rg_grpc_server *servers[SERVERS];

/* --- the kubelet asks -------------------------------------------------------------------------------------------- */

/* What the server would have threads do. */
static struct {
    void *(*run)(void *);
    void *argument;
} jobs[RG_KUBE_CALLS_MAX];
static unsigned n_jobs;

bool __wrap_rg_thread_start(const char *name, void *(*run)(void *), void *argument);
bool __wrap_rg_thread_start(const char *name, void *(*run)(void *), void *argument)
{
    (void)name;
    CHECK(n_jobs < RG_KUBE_CALLS_MAX);
    jobs[n_jobs].run = run;
    jobs[n_jobs++].argument = argument;
    return true;
}

/* Answers the calls that have begun, and has their answers sent. */
static void settle(struct rg_grpc_server *server)
{
    for (unsigned i = 0; i < n_jobs; i++)
        (void)jobs[i].run(jobs[i].argument);
    n_jobs = 0;
    CHECK(!server->n_running);
    rg_grpc_calls_submit(server);
    rg_grpc_streams_resume(server);
}

static void drain(int fd)
{
    static char thrown[65536];
    while (recv(fd, thrown, sizeof thrown, MSG_DONTWAIT) > 0)
        ;
}

/* What a peer has written on a connection is served to its end. */
static void serve(struct rg_grpc_server *server, const void *data, size_t size)
{
    int ends[2];
    bool goes_on = true;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    struct rg_grpc_connection *connection = rg_grpc_connection_open(server, ends[1]);
    CHECK(connection);
    server->connections[server->n_connections++] = connection;
    while (goes_on) {
        const ssize_t sent = size ? send(ends[0], data, size, MSG_NOSIGNAL) : 0;
        if (sent > 0) {
            data = (const char *)data + sent;
            size -= (size_t)sent;
        }
        goes_on = rg_grpc_connection_read(connection) && nghttp2_session_send(connection->session) == 0;
        settle(server);
        goes_on = goes_on && nghttp2_session_send(connection->session) == 0 && (size || sent > 0);
        drain(ends[0]);
    }
    server->n_connections--;
    rg_grpc_connection_close(connection);
    close(ends[0]);
}

/* --- the kubelet's side, by nghttp2 -------------------------------------------------------------------------------- */

struct writing {
    unsigned char *out;
    size_t size, room;
    const unsigned char *body;
    size_t body_size, sent;
};

static ssize_t keep(nghttp2_session *session, const uint8_t *data, size_t size, int flags, void *context)
{
    struct writing *writing = context;
    (void)session, (void)flags;
    if (size > writing->room - writing->size)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    memcpy(writing->out + writing->size, data, size);
    writing->size += size;
    return (ssize_t)size;
}

static ssize_t put_body(nghttp2_session *session, int32_t stream, uint8_t *out, size_t room, uint32_t *flags,
                        nghttp2_data_source *source, void *context)
{
    struct writing *writing = context;
    const size_t left = writing->body_size - writing->sent, put = left < room ? left : room;
    (void)session, (void)stream, (void)source;
    memcpy(out, writing->body + writing->sent, put);
    writing->sent += put;
    if (writing->sent == writing->body_size)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)put;
}

static nghttp2_session *open_session(struct writing *writing, bool is_server)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_session *session = NULL;
    CHECK(nghttp2_session_callbacks_new(&callbacks) == 0);
    nghttp2_session_callbacks_set_send_callback(callbacks, keep);
    CHECK((is_server ? nghttp2_session_server_new : nghttp2_session_client_new)(&session, callbacks,
                                                                                writing) == 0);
    nghttp2_session_callbacks_del(callbacks);
    CHECK(nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, NULL, 0) == 0);
    return session;
}

/* A call with a message as the kubelet would make it. */
static void call(unsigned which, const char *message, size_t size)
{
    static unsigned char out[FUZZ_TEXT_MAX + 1024], body[FUZZ_TEXT_MAX + RG_GRPC_FRAME];
    struct rg_grpc_server *server = servers[which % SERVERS];
    const nghttp2_nv headers[] = {
        RG_GRPC_HEADER(":method", "POST"), RG_GRPC_HEADER(":scheme", "http"),
        RG_GRPC_HEADER(":path", server->methods[which / SERVERS % server->n_methods].path),
        RG_GRPC_HEADER(":authority", "localhost"), RG_GRPC_HEADER("content-type", "application/grpc")};
    struct writing writing = {
        .out = out, .room = sizeof out, .body = body, .body_size = size + RG_GRPC_FRAME};
    const nghttp2_data_provider provider = {.read_callback = put_body};
    rg_grpc_frame(body, size);
    memcpy(body + RG_GRPC_FRAME, message, size);
    nghttp2_session *session = open_session(&writing, false);
    CHECK(nghttp2_submit_request(session, NULL, headers, sizeof headers / sizeof headers[0], &provider,
                                 NULL) > 0);
    CHECK(nghttp2_session_send(session) == 0);
    nghttp2_session_del(session);
    serve(server, out, writing.size);
}

/* --- the kubelet answers ------------------------------------------------------------------------------------------- */

static const char kubelet_path[] = "/kubelet.sock"; /* where there is nothing */
static int kubelet_end = -1;
static const unsigned char *answer;
static size_t answer_size;

/* The kubelet's end of a connection has answered before it is asked, whatever that will be. */
int __real_connect(int fd, const struct sockaddr *to, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t size)
{
    int ends[2];
    if (to->sa_family != AF_UNIX || strcmp(((const struct sockaddr_un *)to)->sun_path, kubelet_path) != 0)
        return __real_connect(fd, to, size);
    CHECK(kubelet_end < 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0 &&
          dup3(ends[1], fd, O_CLOEXEC) == fd && close(ends[1]) == 0);
    kubelet_end = ends[0];
    CHECK(send(kubelet_end, answer, answer_size, MSG_NOSIGNAL) == (ssize_t)answer_size &&
          shutdown(kubelet_end, SHUT_WR) == 0);
    return 0;
}

/* Headers, a message and a status as gRPC has them. */
static size_t frame_answer(const uint8_t *message, size_t size, unsigned char *out)
{
    static unsigned char body[ANSWER_MAX];
    const nghttp2_nv headers[] = {RG_GRPC_HEADER(":status", "200"), RG_GRPC_HEADER("grpc-status", "0")};
    struct writing writing = {.out = out, .room = ANSWER_MAX, .body = body};
    const nghttp2_data_provider provider = {.read_callback = put_body};
    const nghttp2_nv asked[] = {RG_GRPC_HEADER(":method", "POST"), RG_GRPC_HEADER(":scheme", "http"),
                                RG_GRPC_HEADER(":path", "/"), RG_GRPC_HEADER(":authority", "a")};
    size = size < ANSWER_MAX / 2 ? size : ANSWER_MAX / 2;
    rg_grpc_frame(body, size);
    memcpy(body + RG_GRPC_FRAME, message, size);
    writing.body_size = size + RG_GRPC_FRAME;
    unsigned char request[1024];
    struct writing theirs = {.out = request, .room = sizeof request};
    nghttp2_session *client = open_session(&theirs, false), *session = open_session(&writing, true);
    CHECK(nghttp2_submit_request(client, NULL, asked, 4, NULL, NULL) == 1 &&
          nghttp2_session_send(client) == 0);
    CHECK(nghttp2_session_mem_recv(session, request, theirs.size) == (ssize_t)theirs.size);
    CHECK(nghttp2_submit_response(session, 1, headers, 2, &provider) == 0 &&
          nghttp2_session_send(session) == 0);
    nghttp2_session_del(client);
    nghttp2_session_del(session);
    return writing.size;
}

static void ask_kubelet(const uint8_t *data, size_t size)
{
    static unsigned char framed[ANSWER_MAX];
    char why[512] = "";
    struct rg_kube_kubelet kubelet = {.pods = kubelet_path, .resource = "remote-gpu.io/gpu"};
    if (!size)
        return;
    answer = framed;
    answer_size = size - 1 < sizeof framed ? size - 1 : sizeof framed;
    if (data[0] & FRAMED)
        answer_size = frame_answer(data + 1, size - 1, framed);
    else
        memcpy(framed, data + 1, answer_size);
    json_t *devices = rg_kube_kubelet_devices(&kubelet, why, sizeof why);
    CHECK(devices || why[0]);
    json_decref(devices);
    if (kubelet_end >= 0)
        close(kubelet_end);
    kubelet_end = -1;
}

/* --- the whole ------------------------------------------------------------------------------------------------------ */

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static char name[] = "unix:@nobody", *names[] = {name};
    static const struct rg_text_list pool = {.items = names, .n = 1};
    static char kept[200];
    char why[256];
    (void)argc, (void)argv;
    rg_log_set_fd(open("/dev/null", O_WRONLY | O_CLOEXEC));
    fuzz_folder_make();
    snprintf(kept, sizeof kept, "%s/leases.json", fuzz_folder);
    node.places = plugin.places = (struct rg_kube_places){.state_folder = fuzz_folder,
                                                          .cdi_folder = fuzz_folder,
                                                          .client_root = fuzz_folder,
                                                          .client_here = fuzz_folder};
    plugin.user = "cluster";
    CHECK(rg_kube_plugin_create(&plugin, &pool, 1000000, kept, why, sizeof why));
    servers[0] = rg_grpc_create(rg_kube_node_methods, rg_kube_node_n_methods, &node);
    servers[1] = rg_grpc_create(rg_kube_plugin_methods, rg_kube_plugin_n_methods, &plugin);
    CHECK(servers[0] && servers[1] && rg_grpc_publish(servers[1], (const uint8_t *)"devices", 7));
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char raw[FUZZ_TEXT_MAX + sizeof PREFACE];
    if (size < 1 || size > FUZZ_TEXT_MAX)
        return 0;
    switch (data[0] % WAYS) {
    case RAW:
        memcpy(raw, PREFACE, sizeof PREFACE - 1);
        memcpy(raw + sizeof PREFACE - 1, data + 1, size - 1);
        serve(servers[size % SERVERS], raw, sizeof PREFACE - 1 + size - 1);
        break;
    case REQUESTS:
        fuzz_in = rg_reader_of(data + 1, size - 1);
        while (fuzz_more()) {
            const unsigned which = fuzz_u8();
            size_t n;
            const char *message = fuzz_text(&n);
            call(which, message, n);
        }
        break;
    default:
        ask_kubelet(data + 1, size - 1);
    }
    return 0;
}

void fuzz_seeds(void)
{
    static const unsigned char settings[] = {RAW, 0, 0, 0, 4, 0, 0, 0, 0, 0};
    static const char claim[] = "\x0a\x17\x0a\x07"
                                "default\x12\x05"
                                "a-uid\x1a\x05"
                                "claim",
                      devices[] = "\x0a\x08\x0a\x06"
                                  "GPU-01",
                      choice[] = "\x0a\x0a\x0a\x06"
                                 "GPU-01\x18\x01",
                      pods[] = "\x0a\x2a\x0a\x03"
                               "pod\x12\x02"
                               "ns\x1a\x1f\x0a\x01"
                               "c\x12\x1a\x0a\x11"
                               "remote-gpu.io/gpu\x12\x05"
                               "GPU-1";
    fuzz_seed("settings", settings, sizeof settings);
    FUZZ_STEP("", REQUESTS, 0); /* the node's, then the plugin's */
    FUZZ_STEP("\x08\x01", 2);
    FUZZ_STEP(claim, 4);
    FUZZ_STEP(claim, 6);
    fuzz_finish("node");
    FUZZ_STEP("", REQUESTS, 1);
    FUZZ_STEP("", 3);
    FUZZ_STEP(choice, 5);
    FUZZ_STEP(devices, 7);
    FUZZ_STEP("", 9);
    fuzz_finish("plugin");
    FUZZ_STEP(NULL, ANSWER, FRAMED);
    fuzz_add(pods, sizeof pods - 1);
    fuzz_finish("answer");
}
