/*
 * pool.c - a client of a pool whose server says anything: what is shown has nothing in it that controls a terminal, what is granted is a
 * lease of servers that the client may go to, and a list has an end. The conversation is the test's own.
 */
#include "client/pool/internal.h"
#include "common/base/limits.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* --- the server ----------------------------------------------------------------------------------------------------- */

#define ASKED "gpu1.example:7600"

static const char *const *script; /* its answers, NULL behind the last one */
static const char *again;         /* what it answers from then on; NULL: it has gone */
static unsigned n_answers;

enum rg_status rg_pool_talk_begin(struct rg_pool_talk *talk, const char *server, const char *question,
                                  uint64_t timeout_ns, char *why, size_t why_size)
{
    (void)server, (void)question, (void)timeout_ns, (void)why, (void)why_size;
    memset(talk, 0, sizeof *talk);
    return RG_OK;
}

enum rg_status rg_pool_talk_next(struct rg_pool_talk *talk, int timeout_ms, const char **text, size_t *size,
                                 char *why, size_t why_size)
{
    (void)talk, (void)timeout_ms, (void)why, (void)why_size;
    cr_assert_lt(n_answers++, 200000, "the client asks for ever");
    *text = script && *script ? *script++ : again;
    *size = *text ? strlen(*text) : 0;
    return *text ? RG_OK : RG_ERR_CLOSED;
}

void rg_pool_talk_end(struct rg_pool_talk *talk)
{
    (void)talk;
}

/* --- what is shown -------------------------------------------------------------------------------------------------- */

#define EVIL  "a\\u001b[2J\\u009bb\\u202e\\nc"
#define CLEAN "a?[2J??b????c"

static char waited[2048];

static void waiting(void *data, int position, int of, int64_t since, const char *why)
{
    (void)data, (void)position, (void)of, (void)since;
    snprintf(waited, sizeof waited, "%s", why);
}

Test(client_pool, what_a_server_says_controls_no_terminal)
{
    const char *const answers[] = {"{\"state\":\"waiting\",\"position\":1,\"of\":2,\"why\":\"" EVIL "\"}",
                                   "{\"state\":\"refused\",\"why\":\"" EVIL "\",\"code\":\"x\\u001b\"}",
                                   NULL};
    const struct rg_pool_wish wish = {.waits = true, .waiting = waiting};
    struct rg_pool_lease_of lease;
    struct rg_pool_failure failure;
    script = answers;
    cr_assert(!rg_pool_request(ASKED, &wish, &lease, &failure));
    cr_expect_str_eq(waited, CLEAN);
    cr_expect_str_eq(failure.why, CLEAN);
    cr_expect_str_eq(failure.code, "x?");
}

/* --- what is granted ------------------------------------------------------------------------------------------------ */

/* Asks one server, which grants a lease of that id, at an address. */
static bool is_taken(const char *asked, const char *id, const char *hold, const char *address)
{
    struct rg_pool_lease_of lease;
    struct rg_pool_failure failure;
    char answer[1024];
    const char *const answers[] = {answer, NULL};
    snprintf(answer, sizeof answer,
             "{\"state\":\"granted\",\"lease\":\"%s\",\"hold\":\"%s\",\"user\":\"" EVIL
             "\",\"gpus\":[{\"server\":\"1\",\"index\":3,\"address\":\"%s\"}]}",
             id, hold, address);
    script = answers;
    const bool taken = rg_pool_find(asked, "00000000000000a1", 1, &lease, &failure);
    if (taken) {
        cr_expect_str_eq(lease.user, CLEAN);
        cr_expect_str_eq(lease.servers, address);
        cr_expect_str_eq(lease.variable, "00000000000000a1/3");
        rg_pool_lease_fini(&lease);
    } else {
        cr_expect_eq(failure.status, RG_ERR_PROTOCOL);
    }
    return taken;
}

Test(client_pool, what_is_granted_is_a_lease)
{
    static const char good[] = "00000000000000a1";
    cr_expect(is_taken(ASKED, good, "", "gpu2:7600"));
    cr_expect(is_taken(ASKED, good, "0123456789abcdef", "10.0.0.7:7600"));
    cr_expect_not(is_taken(ASKED, "", "", "gpu2:7600"));
    cr_expect_not(is_taken(ASKED, "00000000000000A1", "", "gpu2:7600"));
    cr_expect_not(is_taken(ASKED, "$(id)", "", "gpu2:7600"));
    cr_expect_not(is_taken(ASKED, good, EVIL, "gpu2:7600"));
}

/* Of what a program is told of its servers, there is something. */
Test(client_pool, what_is_granted_is_of_servers)
{
    const char *const answers[] = {"{\"state\":\"granted\",\"lease\":\"00000000000000a1\",\"gpus\":[{"
                                   "\"index\":3,\"address\":\"gpu2:7600\"}]}",
                                   NULL};
    struct rg_pool_lease_of lease;
    struct rg_pool_failure failure;
    script = answers;
    cr_assert_not(rg_pool_find(ASKED, "00000000000000a1", 1, &lease, &failure));
    cr_expect_eq(failure.status, RG_ERR_PROTOCOL);
}

Test(client_pool, a_server_elsewhere_sends_nobody_to_this_machine)
{
    static const char *const here[] = {"127.0.0.1:22", "localhost", "[::1]:7600", "unix:/run/some/socket",
                                       "[::ffff:127.0.0.1]", "0.0.0.0:80", "[::]:80", "mem:x",
                                       "rdma://127.0.0.1", "unix:@name", "scripted://here",
                                       /* other spellings that connecting takes */
                                       "127.1:22", "0x7f.1", "2130706433", "0:80", "[0:0:0:0:0:0:0:1]",
                                       "[::ffff:7f00:1]:7600", "[0::0]", "[::ffff:0.0.0.0]", "localhost.",
                                       "a.localhost:7600", "LocalHost.LocalDomain", "ip6-localhost", "*:80"};
    static const char *const elsewhere[] = {"gpu2:7600",   "10.0.0.1",    "[2001:db8::1]:7600",
                                            "128.1",       "mylocalhost", "localhost.example",
                                            "rdma://gpu2", "1.0.0.127",   "[::ffff:a00:1]"};
    static const char *const wrong[] = {"",      "a,unix:/b",  "a|localhost", "a b",
                                        "a:1:2", "\\u001b[2J", "a:99999"};
    static const char good[] = "00000000000000a1";
    for (size_t i = 0; i < sizeof here / sizeof here[0]; i++) {
        cr_expect_not(is_taken(ASKED, good, "", here[i]), "%s", here[i]);
        cr_expect(rg_pool_may_lead("127.0.0.1:7600", here[i]), "%s", here[i]);
        cr_expect(rg_pool_may_lead("unix:/run/remote-gpu/socket", here[i]), "%s", here[i]);
    }
    for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++)
        cr_expect(rg_pool_may_lead(ASKED, elsewhere[i]), "%s", elsewhere[i]);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        cr_expect_not(is_taken(ASKED, good, "", wrong[i]), "%s", wrong[i]);
        cr_expect_not(rg_pool_may_lead("localhost", wrong[i]), "%s", wrong[i]);
    }
}

/* --- lists ---------------------------------------------------------------------------------------------------------- */

static json_t *list(const char *first, const char *from_then_on)
{
    struct rg_pool_failure failure;
    const char *const answers[] = {first, NULL};
    script = answers;
    again = from_then_on;
    json_t *pool = rg_pool_list(ASKED, NULL, 1, &failure);
    cr_assert_not_null(pool);
    return pool;
}

Test(client_pool, a_list_has_an_end)
{
    json_decref(list("{\"servers\":[],\"leases\":[],\"next\":1}", "{\"servers\":[{}],\"next\":1}"));
    cr_expect_lt(n_answers, 10);
    n_answers = 0;
    json_decref(list("{\"servers\":[],\"leases\":[],\"more_leases\":\"b\"}",
                     "{\"leases\":[{}],\"more_leases\":\"b\"}"));
    cr_expect_lt(n_answers, 10);
    n_answers = 0;
    json_decref(list("{\"servers\":[],\"leases\":[],\"next\":-1,\"more_leases\":7}", "{}"));
    cr_expect_lt(n_answers, 10);
}

Test(client_pool, a_list_names_no_server_of_this_machine)
{
    json_t *pool = list(
        "{\"servers\":[{\"address\":\"gpu2:7600\"},{\"address\":\"unix:/run/x\"},{\"address\":7}]}", NULL);
    const json_t *servers = json_object_get(pool, "servers");
    cr_expect_str_eq(json_string_value(json_object_get(json_array_get(servers, 0), "address")), "gpu2:7600");
    cr_expect_null(json_string_value(json_object_get(json_array_get(servers, 1), "address")));
    json_decref(pool);
}
