/*
 * http.c - requests to the process that answers HTTP, whose list of sessions has names that clients chose, too. A thread plays the
 * monitor: it shows what there is and refuses all else. libmicrohttpd has no threads here: it is run until there is nothing more to do.
 * What is answered must be HTTP, and JSON where it says so.
 *
 * The input: u8 flags (LOOPBACK: only this machine reaches the port), u8 n, n bytes of a session's texts, then what a peer writes.
 */
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/packet.h"
#include "server/daemon/shared/snapshot.h"
#include "server/http/service.h"
#include "tests/check.h"
#include "tests/fuzz/fuzzer.h"

#include <assert.h>
#include <fcntl.h>
#include <jansson.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    LOOPBACK = 1,
    WAYS = 2,
    ANSWER_MAX = 1 << 20,
    REQUEST_MAX = 64 << 10 /* a socket takes that at once */
};
enum {
    IDLE_RUNS = 3, /* of libmicrohttpd, with nothing to do, before all is done */
    OPTIONS_MAX = 16
};

static struct rg_monitor_link link_to_monitor;
static struct rg_management management;
static struct rg_gpus gpus;
static struct rg_snapshot *snapshot;

enum { SNAPSHOT_SIZE = sizeof(struct rg_snapshot) + sizeof(struct rg_snapshot_session) };
static int monitor = -1; /* the monitor's end */
static struct sockaddr_un addresses[WAYS];
static socklen_t address_sizes[WAYS];

/* The monitor, and the main thread of the process, which gives its answers to those who wait. */
static void *answer_questions(void *unused)
{
    struct rg_monitor_question question;
    struct rg_monitor_word word;
    int fds[RG_PACKET_FDS_MAX];
    unsigned n_fds;
    (void)unused;
    while (rg_packet_receive(monitor, 0, &question, sizeof question, fds, RG_PACKET_FDS_MAX, &n_fds) ==
           RG_OK) {
        CHECK(n_fds == 0);
        memset(&word, 0, sizeof word);
        word.kind = RG_TELL_ANSWER;
        word.answer.number = question.number;
        word.answer.status = question.kind == RG_ASK_LOOK ? RG_OK : RG_ERR_REFUSED;
        const int file =
            question.kind == RG_ASK_LOOK ? rg_file_in_memory("snapshot", snapshot, SNAPSHOT_SIZE) : -1;
        CHECK(rg_packet_send(monitor, &word, sizeof word, &file, file >= 0 ? 1 : 0));
        if (file >= 0)
            close(file);
        word.kind = RG_TELL_BEAT;
        CHECK(rg_packet_send(monitor, &word, sizeof word, NULL, 0)); /* which ends the wait for words */
        CHECK(rg_monitor_link_receive(&link_to_monitor, 0, &word, fds, &n_fds) == RG_OK);
    }
    return NULL;
}

/* --- the service, without threads ------------------------------------------------------------------------------------- */

static struct MHD_Daemon *daemons[WAYS];
static int starting; /* the way whose service is being started */

struct MHD_Daemon *__real_MHD_start_daemon(unsigned flags, uint16_t port,
                                           MHD_AcceptPolicyCallback may_connect, void *may_connect_data,
                                           MHD_AccessHandlerCallback answer, void *answer_data, ...);
struct MHD_Daemon *__wrap_MHD_start_daemon(unsigned flags, uint16_t port,
                                           MHD_AcceptPolicyCallback may_connect, void *may_connect_data,
                                           MHD_AccessHandlerCallback answer, void *answer_data, ...);

/* Its options, without those of threads. */
static void take_options(va_list *arguments, struct MHD_OptionItem *out)
{
    for (int option, n = 0; (option = va_arg(*arguments, int)) != MHD_OPTION_END;) {
        struct MHD_OptionItem item = {.option = (enum MHD_OPTION)option};
        switch (option) {
        case MHD_OPTION_EXTERNAL_LOGGER:
        case MHD_OPTION_NOTIFY_CONNECTION:
        case MHD_OPTION_NOTIFY_COMPLETED:
            item.value = (intptr_t)va_arg(*arguments, void *);
            item.ptr_value = va_arg(*arguments, void *);
            break;
        case MHD_OPTION_CONNECTION_MEMORY_LIMIT:
            item.value = (intptr_t)va_arg(*arguments, size_t);
            break;
        case MHD_OPTION_LISTEN_SOCKET:
        case MHD_OPTION_CONNECTION_LIMIT:
        case MHD_OPTION_PER_IP_CONNECTION_LIMIT:
        case MHD_OPTION_CONNECTION_TIMEOUT:
            item.value = va_arg(*arguments, int);
            break;
        case MHD_OPTION_THREAD_POOL_SIZE:
            (void)va_arg(*arguments, unsigned);
            continue;
        default: /* another one has to be added here */
            CHECK(option == MHD_OPTION_ARRAY);
            item.ptr_value = va_arg(*arguments, void *);
        }
        CHECK(n < OPTIONS_MAX);
        out[n++] = item;
    }
}

struct MHD_Daemon *__wrap_MHD_start_daemon(unsigned flags, uint16_t port,
                                           MHD_AcceptPolicyCallback may_connect, void *may_connect_data,
                                           MHD_AccessHandlerCallback answer, void *answer_data, ...)
{
    struct MHD_OptionItem options[OPTIONS_MAX + 1] = {{.option = MHD_OPTION_END}};
    va_list arguments;
    static_assert(MHD_OPTION_END == 0, "what is not set ends the options");
    va_start(arguments, answer_data);
    take_options(&arguments, options);
    va_end(arguments);
    return daemons[starting] = __real_MHD_start_daemon(
               flags & ~(unsigned)MHD_USE_INTERNAL_POLLING_THREAD, port, may_connect, may_connect_data,
               answer, answer_data, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
}

/* A service at an address of the kernel's choice. */
static void start_service(int way)
{
    const sa_family_t family = AF_UNIX;
    struct rg_service *service;
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    address_sizes[way] = sizeof addresses[way];
    CHECK(listener >= 0 && bind(listener, (const struct sockaddr *)&family, sizeof family) == 0 &&
          listen(listener, 16) == 0 &&
          getsockname(listener, (struct sockaddr *)&addresses[way], &address_sizes[way]) == 0);
    const struct rg_service_settings settings = {
        .listener = listener,
        .loopback = way == LOOPBACK,
        .pool = "",
        .source = {.link = &link_to_monitor, .gpus = &gpus, .host = "here"}};
    starting = way;
    CHECK(rg_service_start(&settings, NULL, &service) == RG_OK && daemons[way]);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    pthread_t thread;
    int ends[2];
    (void)argc, (void)argv;
    rg_log_set_fd(open("/dev/null", O_WRONLY | O_CLOEXEC));
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    monitor = ends[0];
    rg_monitor_link_init(&link_to_monitor, ends[1]);
    rg_management_init(&management, &link_to_monitor);
    rg_gpus_init(&gpus, &management);
    snapshot = calloc(1, SNAPSHOT_SIZE);
    CHECK(snapshot);
    snprintf(snapshot->driver.info.kind, sizeof snapshot->driver.info.kind, "soft");
    snapshot->reader.scope = RG_READER_OPERATOR;
    snapshot->driver.n_devices = 1;
    snapshot->gauges.frontend_ready = true;
    CHECK(pthread_create(&thread, NULL, answer_questions, NULL) == 0);
    for (int way = 0; way < WAYS; way++)
        start_service(way);
    return 0;
}

/* A session whose texts are these bytes. */
static void show_session(const uint8_t *data, size_t size)
{
    struct rg_session_info *session = &snapshot->sessions[0].info;
    struct {
        char *text;
        size_t room;
    } texts[] = {{session->identity.command, sizeof session->identity.command},
                 {session->identity.user, sizeof session->identity.user},
                 {session->identity.host, sizeof session->identity.host},
                 {session->identity_name, sizeof session->identity_name}};
    snapshot->n_sessions = size != 0;
    memset(session, 0, sizeof *session);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        memcpy(texts[i].text, data, size < texts[i].room ? size : texts[i].room - 1);
}

/* What the service makes of a connection until nothing more happens; `answer` NULL: to nowhere. */
static size_t run_service(int way, int peer, char *answer, size_t got)
{
    static char thrown[4096];
    for (int idle = 0; idle < IDLE_RUNS; idle++) {
        CHECK(MHD_run(daemons[way]) == MHD_YES);
        ssize_t n = 0;
        while (peer >= 0 && (n = got < ANSWER_MAX ? recv(peer, answer + got, ANSWER_MAX - got, MSG_DONTWAIT)
                                                  : recv(peer, thrown, sizeof thrown, MSG_DONTWAIT)) > 0) {
            got += got < ANSWER_MAX ? (size_t)n : 0;
            idle = 0;
        }
        if (peer >= 0 && n == 0)
            break;
    }
    return got;
}

static size_t ask(int way, const uint8_t *data, size_t size, char *answer)
{
    const int peer = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t got = 0;
    CHECK(peer >= 0 && connect(peer, (const struct sockaddr *)&addresses[way], address_sizes[way]) == 0);
    CHECK(!size || send(peer, data, size, MSG_NOSIGNAL) == (ssize_t)size);
    (void)shutdown(peer, SHUT_WR);
    got = run_service(way, peer, answer, got);
    close(peer);
    (void)run_service(way, -1, NULL, 0); /* it has noticed that */
    answer[got] = 0;
    return got;
}

/* Of the first answer. */
static void check_answer(const char *answer, size_t size)
{
    const char *body = strstr(answer, "\r\n\r\n"), *length = strcasestr(answer, "\r\nContent-Length: ");
    if (!size)
        return;
    CHECK(strncmp(answer, "HTTP/1.", 7) == 0 && body);
    body += 4;
    const char *json = strstr(answer, "\r\nContent-Type: application/json\r\n");
    const size_t there = size - (size_t)(body - answer),
                 said = length && length < body ? strtoul(length + 18, NULL, 10) : 0;
    if (!json || json > body || !said || said > there)
        return;
    json_t *value = json_loadb(body, said, JSON_REJECT_DUPLICATES, NULL);
    CHECK(value);
    json_decref(value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char answer[ANSWER_MAX + 1];
    if (size < 2 || size > REQUEST_MAX || data[1] > size - 2)
        return 0;
    const uint8_t *request = data + 2 + data[1];
    const size_t request_size = size - 2 - data[1];
    show_session(data + 2, data[1]);
    const size_t got = ask(data[0] & LOOPBACK, request, request_size, answer);
    if (!memmem(request, request_size, "HEAD", 4)) /* what follows the headers then is not theirs */
        check_answer(answer, got);
    return 0;
}

void fuzz_seeds(void)
{
    static const struct {
        const char *name, *request;
        unsigned flags;
    } seeds[] = {
        {"page", "GET / HTTP/1.1\r\nHost: localhost:9600\r\n\r\n", LOOPBACK},
        {"metrics", "GET /metrics HTTP/1.1\r\nHost: 10.0.0.1\r\nAccept: application/openmetrics-text\r\n\r\n",
         0},
        {"plain-metrics", "GET /metrics HTTP/1.0\r\n\r\n", 0},
        {"sessions",
         "GET /api/v1/sessions?user=a%20b HTTP/1.1\r\nHost: [::1]:80\r\nConnection: close\r\n\r\n", LOOPBACK},
        {"gpus", "GET /api/v1/gpus HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", LOOPBACK},
        {"server",
         "GET /api/v1/server HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\nGET /readyz HTTP/1.1\r\nHost: "
         "10.0.0.1\r\n\r\n",
         0},
        {"pool", "HEAD /api/v1/pool HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n", 0},
        {"other-host", "GET /healthz HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n", LOOPBACK},
        {"post",
         "POST /api/v1/sessions HTTP/1.1\r\nHost: 10.0.0.1\r\nContent-Type: "
         "application/json\r\nContent-Length: "
         "13\r\n\r\n{\"action\":\"x\"}",
         0},
        {"act",
         "POST /api/v1/sessions/7/suspend HTTP/1.1\r\nHost: [::1]\r\nOrigin: http://[::1]\r\nX-Remote-Gpu: "
         "1\r\n"
         "Cookie: rgpu-0=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\r\nContent-Length: "
         "13\r\n\r\n{\"hold\":true}",
         LOOPBACK},
        {"login",
         "POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nX-Remote-Gpu: 1\r\nContent-Length: 13\r\n\r\n"
         "{\"token\":\"0\"}",
         LOOPBACK},
        {"bearer",
         "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n",
         LOOPBACK},
        {"chunked",
         "POST / HTTP/1.1\r\nHost: 10.0.0.1\r\nTransfer-Encoding: chunked\r\nExpect: "
         "100-continue\r\n\r\n4\r\nabcd\r\n0\r\n\r\n",
         0},
    };
    static const char text[] = "<b>\"a\\\n\x01\xc3\xa9\xff";
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        unsigned char made[512];
        const size_t size = strlen(seeds[i].request), texts = sizeof text - 1;
        made[0] = (unsigned char)seeds[i].flags;
        made[1] = (unsigned char)texts;
        memcpy(made + 2, text, texts);
        memcpy(made + 2 + texts, seeds[i].request, size);
        fuzz_seed(seeds[i].name, made, 2 + texts + size);
    }
}
