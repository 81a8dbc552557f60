/* Frames of gRPC, and the server, which libcurl speaks HTTP/2 with. */
#include "common/base/thread.h"
#include "places/kubernetes/grpc/client.h"
#include "places/kubernetes/grpc/frame.h"
#include "places/kubernetes/grpc/server.h"

#include <criterion/criterion.h>
#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

Test(kube_grpc_frame, one_whole_message)
{
    const uint8_t good[] = {0, 0, 0, 0, 2, 'h', 'i'}, compressed[] = {1, 0, 0, 0, 0}, odd[] = {2, 0, 0, 0, 0};
    const uint8_t *message;
    size_t size;
    uint8_t head[RG_GRPC_FRAME];
    cr_assert_eq(rg_grpc_unframe(good, sizeof good, &message, &size), RG_GRPC_OK);
    cr_expect(size == 2 && memcmp(message, "hi", 2) == 0);
    for (size_t less = 0; less < sizeof good; less++)
        cr_expect_eq(rg_grpc_unframe(good, less, &message, &size), RG_GRPC_INTERNAL, "%zu bytes", less);
    const uint8_t more[] = {0, 0, 0, 0, 1, 'h', 'i'}, huge[] = {0, 0xff, 0xff, 0xff, 0xff};
    cr_expect_eq(rg_grpc_unframe(more, sizeof more, &message, &size), RG_GRPC_INTERNAL);
    cr_expect_eq(rg_grpc_unframe(huge, sizeof huge, &message, &size), RG_GRPC_INTERNAL);
    cr_expect_eq(rg_grpc_unframe(odd, sizeof odd, &message, &size), RG_GRPC_INTERNAL);
    cr_expect_eq(rg_grpc_unframe(compressed, sizeof compressed, &message, &size), RG_GRPC_UNIMPLEMENTED);
    rg_grpc_frame(head, 0x01020304);
    cr_expect_eq(memcmp(head, (const uint8_t[]){0, 1, 2, 3, 4}, sizeof head), 0);
}

Test(kube_grpc_frame, messages_of_failures_are_escaped)
{
    char out[32], small[8];
    rg_grpc_escape("50 %\n\xc3\xa4", out, sizeof out);
    cr_expect_str_eq(out, "50 %25%0A%C3%A4");
    rg_grpc_escape("abcdefgh\n", small, sizeof small);
    cr_expect_lt(strlen(small), sizeof small);
}

/* --- the server ------------------------------------------------------------------------------------------------------ */

static atomic_bool released;

/* Says everything twice; "!" is wrong, and "~" takes until it is released. */
static enum rg_grpc_status repeat(void *context, const uint8_t *message, size_t size,
                                  struct rg_grpc_answer *answer)
{
    (void)context;
    if (size && message[0] == '!') {
        snprintf(answer->why, sizeof answer->why, "100 %% wrong");
        return RG_GRPC_INVALID_ARGUMENT;
    }
    if (size && message[0] == '~')
        while (!atomic_load(&released))
            usleep(1000);
    answer->message = malloc(2 * size + 1);
    memcpy(answer->message, message, size);
    memcpy(answer->message + size, message, size);
    answer->size = 2 * size;
    return RG_GRPC_OK;
}

static const struct rg_grpc_method methods[] = {{"/a.B/Repeat", repeat}, {"/a.B/Watch", NULL}};
static struct rg_grpc_server *server;
static pthread_t thread;
static char path[64];

static void *serve(void *context)
{
    (void)context;
    cr_expect_eq(rg_grpc_serve(server), RG_OK);
    return NULL;
}

static void begin(void)
{
    char why[256] = "";
    snprintf(path, sizeof path, "/tmp/rg-grpc-%d.sock", (int)getpid());
    server = rg_grpc_create(methods, 2, NULL);
    cr_assert(server);
    cr_assert_eq(rg_grpc_listen(server, path, why, sizeof why), RG_OK, "%s", why);
    cr_assert_eq(rg_thread_create(&thread, "serve", serve, NULL), RG_OK);
}

static void finish(void)
{
    rg_grpc_stop(server);
    pthread_join(thread, NULL);
    rg_grpc_destroy(server);
    cr_expect_neq(access(path, F_OK), 0, "the socket is gone");
}

TestSuite(kube_grpc, .init = begin, .fini = finish, .timeout = 60);

struct answer {
    char body[1 << 20], headers[4096];
    size_t size;
    char status[8], message[128];
};

static size_t take(char *data, size_t one, size_t n, void *context)
{
    struct answer *answer = context;
    cr_assert_lt(answer->size + one * n, sizeof answer->body);
    memcpy(answer->body + answer->size, data, one * n);
    answer->size += one * n;
    return one * n;
}

static size_t take_header(char *data, size_t one, size_t n, void *context)
{
    struct answer *answer = context;
    char line[256];
    snprintf(line, sizeof line, "%.*s", (int)(one * n), data);
    sscanf(line, "grpc-status: %7s", answer->status);
    sscanf(line, "grpc-message: %127[^\r\n]", answer->message);
    return one * n;
}

/* Calls a method as clients of gRPC do, by a connection of its own: libcurl of Debian 12 cannot use one without TLS again. */
static void call(const char *method, const char *message, size_t size, struct answer *out)
{
    char url[128];
    uint8_t *framed = malloc(RG_GRPC_FRAME + size);
    CURL *curl = curl_easy_init();
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/grpc+proto");
    headers = curl_slist_append(headers, "TE: trailers");
    rg_grpc_frame(framed, size);
    memcpy(framed + RG_GRPC_FRAME, message, size);
    snprintf(url, sizeof url, "http://localhost%s", method);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, path);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, framed);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)(RG_GRPC_FRAME + size));
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, out);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, out);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    memset(out, 0, sizeof *out);
    const CURLcode went = curl_easy_perform(curl);
    cr_assert_eq(went, CURLE_OK, "%s", curl_easy_strerror(went));
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    free(framed);
}

Test(kube_grpc, answers_and_trailers)
{
    static struct answer answer;
    call("/a.B/Repeat", "hello", 5, &answer);
    cr_expect_str_eq(answer.status, "0");
    cr_expect_eq(answer.size, RG_GRPC_FRAME + 10);
    cr_expect_eq(memcmp(answer.body, "\0\0\0\0\x0ahellohello", answer.size), 0);
    call("/a.B/Repeat", "", 0, &answer);
    cr_expect_str_eq(answer.status, "0");
    cr_expect_eq(answer.size, RG_GRPC_FRAME);
}

Test(kube_grpc, large_messages_both_ways)
{
    static struct answer answer;
    const size_t size = 300000; /* more than a window of HTTP/2 */
    char *message = malloc(size);
    memset(message, 'x', size);
    call("/a.B/Repeat", message, size, &answer);
    cr_expect_str_eq(answer.status, "0");
    cr_expect_eq(answer.size, RG_GRPC_FRAME + 2 * size);
    free(message);
    message = calloc(1, (1u << 20) + 1);
    call("/a.B/Repeat", message, (1u << 20) + 1, &answer);
    cr_expect_str_eq(answer.status, "8", "it is larger than the limit");
    free(message);
}

Test(kube_grpc, failures_have_a_status_and_a_message)
{
    static struct answer answer;
    call("/a.B/Repeat", "!", 1, &answer);
    cr_expect_str_eq(answer.status, "3");
    cr_expect_str_eq(answer.message, "100 %25 wrong");
    call("/a.B/Other", "x", 1, &answer);
    cr_expect_str_eq(answer.status, "12");
}

static void *slow(void *context)
{
    call("/a.B/Repeat", "~", 1, context);
    return NULL;
}

Test(kube_grpc, calls_do_not_wait_for_each_other)
{
    static struct answer late, soon;
    pthread_t other;
    cr_assert_eq(rg_thread_create(&other, "slow", slow, &late), RG_OK);
    call("/a.B/Repeat", "x", 1, &soon);
    cr_expect_str_eq(soon.status, "0");
    cr_expect_str_empty(late.status);
    atomic_store(&released, true);
    pthread_join(other, NULL);
    cr_expect_str_eq(late.status, "0");
}

/* A client that does not wait for its answer. */
static void give_up(void)
{
    static struct answer answer;
    CURL *curl = curl_easy_init();
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/grpc");
    curl_easy_setopt(curl, CURLOPT_URL, "http://localhost/a.B/Repeat");
    curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, path);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, "\0\0\0\0\1~");
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)RG_GRPC_FRAME + 1);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, 200L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    cr_expect_eq(curl_easy_perform(curl), CURLE_OPERATION_TIMEDOUT);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
}

Test(kube_grpc, who_has_gone_is_answered_to_nobody)
{
    static struct answer answer;
    give_up();
    call("/a.B/Repeat", "x", 1, &answer);
    atomic_store(&released, true);
    call("/a.B/Repeat", "x", 1, &answer);
    cr_expect_str_eq(answer.status, "0");
}

Test(kube_grpc, what_is_no_http2_ends_its_connection_alone)
{
    static struct answer answer;
    struct answer *out = &answer;
    CURL *curl = curl_easy_init();
    curl_easy_setopt(curl, CURLOPT_URL, "http://localhost/");
    curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, path);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, out);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    cr_expect_neq(curl_easy_perform(curl), CURLE_OK, "HTTP/1.1 is not spoken here");
    curl_easy_cleanup(curl);
    call("/a.B/Repeat", "x", 1, &answer);
    cr_expect_str_eq(answer.status, "0");
}

/* --- the client ------------------------------------------------------------------------------------------------------- */

static enum rg_status ask(const char *method, const void *message, size_t size, struct rg_grpc_reply *reply,
                          char why[256])
{
    return rg_grpc_call(path, method, message, size, 20000000000u, reply, why, 256);
}

Test(kube_grpc, the_client_gets_answers_and_reasons)
{
    static uint8_t much[200000]; /* more than a window of HTTP/2 */
    struct rg_grpc_reply reply;
    char why[256] = "";
    cr_assert_eq(ask("/a.B/Repeat", "ab", 2, &reply, why), RG_OK, "%s", why);
    cr_expect(reply.size == 4 && memcmp(reply.message, "abab", 4) == 0);
    free(reply.message);
    cr_assert_eq(ask("/a.B/Repeat", NULL, 0, &reply, why), RG_OK, "%s", why);
    cr_expect_eq(reply.size, 0);
    free(reply.message);
    memset(much, 'm', sizeof much);
    cr_assert_eq(ask("/a.B/Repeat", much, sizeof much, &reply, why), RG_OK, "%s", why);
    cr_expect(reply.size == 2 * sizeof much && reply.message[reply.size - 1] == 'm');
    free(reply.message);
    cr_expect_eq(ask("/a.B/Repeat", "!", 1, &reply, why), RG_ERR_REFUSED);
    cr_expect(strstr(why, "status 3: 100 %25 wrong") && !reply.message, "%s", why);
    cr_expect_eq(ask("/a.B/Nothing", "a", 1, &reply, why), RG_ERR_REFUSED);
    cr_expect(strstr(why, "status 12"), "%s", why);
}

Test(kube_grpc, the_client_finds_nobody_or_is_let_down)
{
    struct rg_grpc_reply reply;
    char why[256] = "";
    cr_expect_eq(
        rg_grpc_call("/tmp/rg-no-such.sock", "/a.B/Repeat", NULL, 0, 1000000000u, &reply, why, sizeof why),
        RG_ERR_UNREACHABLE);
    cr_expect(strstr(why, "/tmp/rg-no-such.sock"), "%s", why);
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "/tmp/rg-mute-%d.sock", (int)getpid());
    unlink(address.sun_path);
    cr_assert(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 1) == 0);
    cr_expect_eq(rg_grpc_call(address.sun_path, "/a.B/Repeat", NULL, 0, 50000000u, &reply, why, sizeof why),
                 RG_ERR_IO);
    cr_expect(strstr(why, "does not answer"), "%s", why);
    close(listener);
    unlink(address.sun_path);
}

/* --- the stream ------------------------------------------------------------------------------------------------------- */

struct watcher {
    char seen[256]; /* what has come, frames included; one character a byte, '.' for those of frames */
    atomic_uint n;
    unsigned until;
};

static size_t watch_body(char *data, size_t one, size_t n, void *context)
{
    struct watcher *watcher = context;
    for (size_t i = 0; i < one * n; i++) {
        const unsigned at = atomic_load(&watcher->n);
        if (at + 1 < sizeof watcher->seen)
            watcher->seen[at] = data[i] >= 'a' ? data[i] : '.';
        atomic_store(&watcher->n, at + 1);
    }
    return atomic_load(&watcher->n) >= watcher->until ? 0 : one * n; /* nothing taken: it ends */
}

static void *watch(void *context)
{
    CURL *curl = curl_easy_init();
    struct curl_slist *headers = curl_slist_append(NULL, "content-type: application/grpc");
    curl_easy_setopt(curl, CURLOPT_URL, "http://localhost/a.B/Watch");
    curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, path);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, "\0\0\0\0\0");
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, 5L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, watch_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, context);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, 30L);
    curl_easy_perform(curl);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    return NULL;
}

static void wait_for(const struct watcher *watcher, unsigned bytes)
{
    for (int i = 0; i < 20000 && atomic_load(&watcher->n) < bytes; i++)
        usleep(1000);
    cr_assert_geq(atomic_load(&watcher->n), bytes);
}

Test(kube_grpc, streams_are_told_what_is_published)
{
    struct watcher first = {.until = 15}, late = {.until = 8};
    pthread_t threads[2];
    cr_assert_eq(rg_thread_create(&threads[0], "watch", watch, &first), RG_OK);
    usleep(50000);
    cr_expect_eq(atomic_load(&first.n), 0, "nothing was published yet");
    cr_assert(rg_grpc_publish(server, (const uint8_t *)"hi", 2));
    wait_for(&first, 7);
    cr_assert(rg_grpc_publish(server, (const uint8_t *)"you", 3));
    pthread_join(threads[0], NULL);
    cr_expect_str_eq(first.seen, ".....hi.....you");
    cr_assert_eq(rg_thread_create(&threads[1], "watch", watch, &late), RG_OK);
    pthread_join(threads[1], NULL);
    cr_expect_str_eq(late.seen, ".....you", "who comes later is told the last");
}
