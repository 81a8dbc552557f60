/*
 * changing.c - what others do with a lease, and with the queue, between a look at them and what is done then. etcd is played by the test:
 * each call of the agent's is answered when the test says so.
 */
#include "common/base/clock.h"
#include "common/base/file.h"
#include "pool/etcd/base64.h"
#include "tests/server/pool/lone_agent.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define LEASE "00c0ffee00000001"

static struct rg_agent agent;
static struct {
    char path[64];
    json_t *body;
    rg_etcd_done *done;
    void *data;
} call; /* the last that was not answered */
static unsigned n_calls;

void __wrap_rg_etcd_call(struct rg_etcd *etcd, const char *path, json_t *body, rg_etcd_done *done,
                         void *data);

void __wrap_rg_etcd_call(struct rg_etcd *etcd, const char *path, json_t *body, rg_etcd_done *done, void *data)
{
    (void)etcd;
    json_decref(call.body);
    snprintf(call.path, sizeof call.path, "%s", path);
    call.body = body;
    call.done = done;
    call.data = data;
    n_calls++;
}

static void start(void)
{
    lone_agent_start(&agent);
    snprintf(agent.run, sizeof agent.run, "5555666677778888");
    agent.membership.state = RG_MEMBER_IN;
    agent.membership.valid_until_ns = rg_now_ns() + 3600000000000ull;
}

/* Asks as somebody; returns the end at which the answer comes. */
static int ask(const char *key, const char *text)
{
    struct rg_agent_word word = {.kind = RG_AGENT_ASK};
    int ends[2], question = rg_file_in_memory("question", text, strlen(text));
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    word.ask.size = (uint32_t)strlen(text);
    snprintf(word.ask.key, sizeof word.ask.key, "%s", key);
    rg_asks_take(&agent, &word, ends[1], question);
    return ends[0];
}

/* What has come; "": nothing yet. */
static const char *said(int end)
{
    static char text[2048];
    const ssize_t got = recv(end, text, sizeof text - 1, MSG_DONTWAIT);
    text[got > 0 ? got : 0] = '\0';
    return text;
}

/* The lease as etcd has it: whose, and by which changes. */
static json_t *lease(const char *user, const char *created, const char *changed)
{
    char value[128];
    snprintf(value, sizeof value, "{\"user\":\"%s\",\"kept\":true,\"gpus\":[]}", user);
    char *encoded = rg_base64_encode(value, strlen(value));
    json_t *pair =
        json_pack("{s:s, s:s, s:s}", "value", encoded, "create_revision", created, "mod_revision", changed);
    free(encoded);
    return json_pack("{s:[o]}", "kvs", pair);
}

static void answer(json_t *reply)
{
    cr_assert_not_null(call.done);
    rg_etcd_done *done = call.done;
    call.done = NULL;
    done(call.data, RG_OK, reply, "");
    json_decref(reply);
}

/* The transaction has failed, and this is what is there. */
static json_t *instead(json_t *range)
{
    return json_pack("{s:[{s:o}]}", "responses", "response_range", range);
}

/* The revision of the lease by which alone the last call removes it; "": it removes one whatever it is. */
static const char *removes(void)
{
    static char revision[32];
    const json_t *compare = json_array_get(json_object_get(call.body, "compare"), 0);
    const char *text = json_string_value(json_object_get(compare, "mod_revision"));
    snprintf(revision, sizeof revision, "%s", text ? text : "");
    cr_expect_str_eq(call.path, "/v3/kv/txn");
    return revision;
}

static const char release[] = "{\"ask\":\"release\",\"lease\":\"" LEASE "\"}";

Test(changing, a_lease_is_given_back_as_it_was_read, .init = start)
{
    const int end = ask("3 alice", release);
    answer(lease("3 alice", "5", "7"));
    cr_expect_str_eq(removes(), "7");
    answer(json_pack("{s:b}", "succeeded", 1));
    cr_expect(strstr(said(end), "\"released\""));
}

/* As somebody renews it: it is still the one that was meant. */
Test(changing, one_that_has_changed_meanwhile_is_looked_at_again, .init = start)
{
    const int end = ask("3 alice", release);
    answer(lease("3 alice", "5", "7"));
    answer(instead(lease("3 alice", "5", "8")));
    cr_expect_str_eq(removes(), "8");
    answer(json_pack("{s:b}", "succeeded", 1));
    cr_expect(strstr(said(end), "\"released\""));
}

/* It is over, and the id is another one's. */
Test(changing, the_next_lease_of_an_id_is_not_given_back, .init = start)
{
    const unsigned before = n_calls;
    const int of_alice = ask("3 alice", release);
    answer(lease("3 alice", "5", "7"));
    answer(instead(lease("3 alice", "9", "9")));
    cr_expect(strstr(said(of_alice), "[lease-gone]"));
    const int of_bob = ask("3 bob", release);
    answer(lease("3 bob", "5", "7"));
    answer(instead(lease("3 alice", "9", "9")));
    cr_expect(strstr(said(of_bob), "[lease-not-yours]"));
    cr_expect_eq(n_calls - before, 4, "two looks, and two removals that compare");
}

Test(changing, one_that_changes_for_ever_is_let_be, .init = start)
{
    const int end = ask("3 alice", release);
    answer(lease("3 alice", "5", "7"));
    for (unsigned i = 0; i < 10 && call.done; i++)
        answer(instead(lease("3 alice", "5", "8")));
    cr_expect(strstr(said(end), "[lease-busy]"));
}

Test(changing, one_that_is_gone_is_said_to_be, .init = start)
{
    const int end = ask("3 alice", release);
    answer(lease("3 alice", "5", "7"));
    answer(instead(json_pack("{s:[]}", "kvs")));
    cr_expect(strstr(said(end), "[lease-gone]"));
}

/* --- what nobody holds ---------------------------------------------------------------------------------------------- */

/* Whether the last call changes nothing unless a key is as it was read. */
static bool compares(const char *key)
{
    char whole[96];
    const json_t *one;
    size_t i;
    bool found = false;
    snprintf(whole, sizeof whole, "%s%s", agent.prefix, key);
    char *encoded = rg_base64_encode(whole, strlen(whole));
    json_array_foreach(json_object_get(call.body, "compare"), i, one) found |=
        strcmp(rg_json_get_text(one, "key"), encoded) == 0;
    free(encoded);
    return found;
}

/* Its client comes back to it while it is taken away: then it stays. */
Test(changing, what_nobody_holds_is_taken_back_as_it_was_read, .init = start)
{
    rg_pool_mirror_put(&agent.mirror, "servers/1111222233334444", "{\"address\":\"gpu:7600\"}", 2, 2);
    rg_pool_mirror_put(&agent.mirror, "servers/1111222233334444/gpus/0",
                       "{\"uuid\":\"GPU-1\",\"name\":\"x\",\"memory\":1000,\"granted\":[{\"lease\":\"" LEASE
                       "\",\"memory\":1000}]}",
                       3, 3);
    rg_pool_mirror_put(&agent.mirror, "leases/" LEASE, "{\"user\":\"3 alice\",\"holder\":\"\",\"gpus\":[]}",
                       4, 4);
    rg_pool_mirror_whole(&agent.mirror, 5);
    agent.own_changes++;
    (void)rg_own_look(&agent);
    cr_assert_eq(agent.own.n, 1);
    cr_assert_null(call.done, "its client is waited for");
    agent.own.leases[0]->idle_ns = 1; /* for long */
    agent.own_changes++;
    (void)rg_own_look(&agent);
    cr_assert_not_null(call.done);
    cr_expect(compares("servers/1111222233334444/gpus/0"));
    cr_expect(compares("leases/" LEASE));
}

/* --- the queue ------------------------------------------------------------------------------------------------------ */

static void put(const char *folder, unsigned id, const char *user)
{
    char key[64], value[128];
    snprintf(key, sizeof key, "%s/%016x", folder, id);
    snprintf(value, sizeof value, "{\"address\":\"gpu:7600\",\"user\":\"%s\",\"gpus\":1}", user);
    rg_pool_mirror_put(&agent.mirror, key, value, id, id);
}

/* So many requests of a user that wait. */
static void put_requests(unsigned first, unsigned n, const char *user)
{
    put("servers", 1, "");
    rg_pool_mirror_put(&agent.mirror, "servers/0000000000000001/gpus/0",
                       "{\"uuid\":\"GPU-1\",\"name\":\"x\",\"memory\":1000}", 1, 1);
    for (unsigned i = 0; i < n; i++)
        put("requests", first + i, user);
    rg_pool_mirror_whole(&agent.mirror, 1);
}

static const char wait_for_one[] = "{\"ask\":\"request\",\"gpus\":1,\"wait\":true}";

Test(changing, one_user_leaves_places_in_the_queue, .init = start)
{
    put_requests(100, RG_POOL_REQUESTS_OF_ONE_MAX - 1, "3 alice");
    const int last = ask("3 alice", wait_for_one);
    cr_expect_str_empty(said(last), "it is written");
    put("requests", 99, "3 alice");
    rg_pool_mirror_whole(&agent.mirror, 1);
    const int more = ask("3 alice", wait_for_one);
    cr_expect(strstr(said(more), "[lease-requests]"));
    const int other = ask("3 bob", wait_for_one);
    cr_expect_str_empty(said(other));
}

/* Other servers have written some of the same user meanwhile. */
Test(changing, who_comes_at_the_same_moment_goes_again, .init = start)
{
    char key[64];
    put_requests(100, RG_POOL_REQUESTS_OF_ONE_MAX - 1, "3 alice");
    const int late = ask("3 alice", wait_for_one);
    cr_assert_eq(agent.n_asks, 1);
    snprintf(key, sizeof key, "requests/%s", agent.asks[0]->id);
    answer(json_pack("{s:b, s:{s:s}}", "succeeded", 1, "header", "revision", "1"));
    put("requests", 99, "3 alice");
    rg_pool_mirror_put(&agent.mirror, key, "{\"user\":\"3 alice\",\"gpus\":1}", 100000, 100000);
    rg_pool_mirror_whole(&agent.mirror, 2);
    (void)rg_grants_look(&agent);
    cr_expect(strstr(said(late), "[lease-requests]"));
    cr_expect_eq(agent.n_undo, 1, "its request goes");
    cr_expect_eq(agent.n_asks, 0);
}
