/*
 * http.c - requests to the process that answers HTTP, whose list of sessions has names that clients chose, too. A thread plays the
 * monitor: it shows what there is and refuses all else. What is answered must be HTTP, and JSON where it says so.
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

#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { LOOPBACK = 1, WAYS = 2, ANSWER_MAX = 1 << 20 };
enum {
    PATIENCE_MS = 5
}; /* for an answer: the rest of a request that is not whole is waited for by the service */

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
    CHECK(rg_service_start(&settings, NULL, &service) == RG_OK);
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

static size_t ask(int way, const uint8_t *data, size_t size, char *answer)
{
    const int peer = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t got = 0;
    ssize_t n;
    CHECK(peer >= 0 && connect(peer, (const struct sockaddr *)&addresses[way], address_sizes[way]) == 0);
    while (size && (n = send(peer, data, size, MSG_NOSIGNAL)) > 0) {
        data += n;
        size -= (size_t)n;
    }
    (void)shutdown(peer, SHUT_WR);
    struct pollfd wait = {.fd = peer, .events = POLLIN};
    while (got < ANSWER_MAX && poll(&wait, 1, PATIENCE_MS) > 0 &&
           (n = read(peer, answer + got, ANSWER_MAX - got)) > 0)
        got += (size_t)n;
    close(peer);
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
    if (size < 2 || data[1] > size - 2)
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
