/*
 * pool_client.c - what a server says to a client of its pool (client/pool/): of leases, of waiting, of what there is. What is shown is
 * clean, a lease is one that can be used, no address leads to this machine, and every conversation has an end.
 *
 * The input: u8 which question (modulo QUESTIONS), then texts (steps.h), an answer each; behind the last one the server has gone.
 */
#include "client/pool/internal.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "tests/fuzz/steps.h"

#include <fcntl.h>

enum { REQUEST, FIND, HOLD, RENEW, RELEASE, LIST, USAGE, QUESTIONS };

#define ASKED "gpu1.example:7600"

/* --- the server ------------------------------------------------------------------------------------------------------ */

enum rg_status rg_pool_talk_begin(struct rg_pool_talk *talk, const char *server, const char *question,
                                  uint64_t timeout_ns, char *why, size_t why_size)
{
    json_t *asked = json_loads(question, JSON_REJECT_DUPLICATES, NULL);
    (void)server, (void)timeout_ns, (void)why, (void)why_size;
    CHECK(json_is_object(asked));
    json_decref(asked);
    memset(talk, 0, sizeof *talk);
    return RG_OK;
}

enum rg_status rg_pool_talk_next(struct rg_pool_talk *talk, int timeout_ms, const char **text, size_t *size,
                                 char *why, size_t why_size)
{
    (void)talk, (void)timeout_ms, (void)why, (void)why_size;
    if (!fuzz_more())
        return RG_ERR_CLOSED;
    *text = fuzz_text(size);
    return RG_OK;
}

void rg_pool_talk_end(struct rg_pool_talk *talk)
{
    (void)talk;
}

/* --- the client ------------------------------------------------------------------------------------------------------- */

static bool is_clean(const char *text)
{
    char clean[4096];
    snprintf(clean, sizeof clean, "%s", text);
    rg_printable_clean(clean);
    return strcmp(clean, text) == 0;
}

static void waiting(void *data, int position, int of, int64_t since, const char *why)
{
    (void)data, (void)position, (void)of, (void)since;
    CHECK(is_clean(why));
}

static void check_lease(bool good, struct rg_pool_lease_of *lease)
{
    const json_t *gpu;
    size_t i;
    if (!good)
        return;
    CHECK(strlen(lease->id) == 16 && is_clean(lease->id) && is_clean(lease->user) &&
          is_clean(lease->servers) && is_clean(lease->variable) && lease->n_gpus &&
          lease->n_gpus <= RG_POOL_GPUS_MAX);
    json_array_foreach(lease->gpus, i, gpu)
        CHECK(rg_pool_may_lead(ASKED, json_string_value(json_object_get(gpu, "address"))));
    rg_pool_lease_fini(lease);
}

static bool ask(unsigned question, struct rg_pool_failure *failure)
{
    static const struct rg_pool_lease_of before = {.id = "00000000000000a1", .hold = "00000000000000c1"};
    const struct rg_pool_wish wish = {.waits = true, .waiting = waiting};
    struct rg_pool_lease_of lease;
    json_t *answer = NULL, *server;
    int64_t expires;
    size_t i;
    bool good = false;
    switch (question) {
    case REQUEST:
        good = rg_pool_request(ASKED, &wish, &lease, failure);
        check_lease(good, &lease);
        break;
    case FIND:
        good = rg_pool_find(ASKED, before.id, 1, &lease, failure);
        check_lease(good, &lease);
        break;
    case HOLD:
        good = rg_pool_hold(ASKED, &before, 1, &lease, failure);
        check_lease(good, &lease);
        break;
    case RENEW:
        good = rg_pool_renew(ASKED, before.id, 1, 1, &expires, failure);
        break;
    case RELEASE:
        good = rg_pool_release(ASKED, before.id, 1, failure);
        break;
    case LIST:
        answer = rg_pool_list(ASKED, "here", 1, failure);
        good = answer;
        json_array_foreach(json_object_get(answer, "servers"), i, server)
        {
            const char *address = json_string_value(json_object_get(server, "address"));
            CHECK(!address || rg_pool_may_lead(ASKED, address));
        }
        break;
    default:
        answer = rg_pool_usage(ASKED, "ml", 1, failure);
        good = answer;
    }
    json_decref(answer);
    return good;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    rg_log_set_fd(open("/dev/null", O_WRONLY | O_CLOEXEC));
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rg_pool_failure failure = {.status = RG_OK};
    fuzz_in = rg_reader_of(data, size);
    if (!ask(fuzz_u8() % QUESTIONS, &failure))
        CHECK(failure.status != RG_OK && is_clean(failure.why) && is_clean(failure.code));
    return 0;
}

/* --- seeds ------------------------------------------------------------------------------------------------------------ */

static void add(const char *answer)
{
    fuzz_add_text(answer, strlen(answer));
}

void fuzz_seeds(void)
{
    FUZZ_STEP("{\"state\":\"waiting\",\"position\":1,\"of\":2,\"why\":\"a\\u001b[2J\",\"since\":7}", REQUEST);
    add("{\"state\":\"granted\",\"lease\":\"00000000000000a1\",\"hold\":\"00000000000000c1\",\"user\":"
        "\"alice\","
        "\"gpus\":[{\"server\":\"1\",\"index\":3,\"address\":\"gpu2:7600\"},{\"server\":\"2\",\"index\":0,"
        "\"address\":\"[fe80::1]:1\"}]}");
    fuzz_finish("granted");
    FUZZ_STEP("{\"state\":\"refused\",\"why\":\"no [lease-gone]\"}", FIND);
    fuzz_finish("refused");
    FUZZ_STEP(
        "{\"state\":\"granted\",\"lease\":\"00000000000000a1\",\"gpus\":[{\"address\":\"unix:/run/x\"}]}",
        HOLD);
    fuzz_finish("here");
    FUZZ_STEP("{\"state\":\"renewed\",\"expires\":1700000000}", RENEW);
    fuzz_finish("renewed");
    FUZZ_STEP("{\"servers\":[{\"address\":\"gpu2:7600\",\"gpus\":[]}],\"leases\":[],\"next\":1,\"more_"
              "leases\":\"a\"}",
              LIST);
    add("{\"servers\":[{\"address\":\"127.0.0.1:1\"}],\"next\":1}");
    add("{\"leases\":[{}],\"more_leases\":\"a\"}");
    fuzz_finish("list");
    FUZZ_STEP("{\"users\":{\"alice\":5}}", USAGE);
    fuzz_finish("usage");
}
