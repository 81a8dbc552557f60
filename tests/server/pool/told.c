/*
 * told.c - what clients of the pool are told of each other: whatever users have called their projects and jobs, and other servers their
 * users, each answer has room for what is in it, and all of it comes in the end. What would not is not taken.
 */
#include "common/base/file.h"
#include "common/base/hash_table.h"
#include "common/cache/digest.h"
#include "tests/server/pool/lone_agent.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define LONG                                                                                                 \
    20000 /* bytes of a text: of what a server of another version, or one that was taken over, has written */

static struct rg_agent agent;

static void start(void)
{
    lone_agent_start(&agent);
}

static void put(const char *folder, unsigned id, json_t *value)
{
    char key[64], *text = json_dumps(value, JSON_COMPACT);
    snprintf(key, sizeof key, "%s/%016x", folder, id);
    cr_assert_not_null(text);
    rg_pool_mirror_put(&agent.mirror, key, text, 1, 1);
    rg_pool_mirror_whole(&agent.mirror, 1);
    free(text);
    json_decref(value);
}

static json_t *text_of(char letter, size_t size)
{
    char text[LONG + 1];
    memset(text, letter, size);
    text[size] = '\0';
    return json_string(text);
}

/* A lease whose texts are as long as that. */
static void put_lease(unsigned id, size_t size)
{
    put("leases", id,
        json_pack("{s:s, s:o, s:o, s:o, s:o, s:b, s:[]}", "user", "3 alice", "name", text_of('"', size),
                  "project", text_of('\\', size), "job", text_of('"', size), "by", text_of('"', size), "kept",
                  1, "gpus"));
}

static size_t size_of(const json_t *answer)
{
    char *text = json_dumps(answer, JSON_COMPACT);
    cr_assert_not_null(text);
    const size_t size = strlen(text);
    free(text);
    return size;
}

/* All leases that an operator is told, page by page. */
static size_t count_leases(void)
{
    char after[RG_POOL_ID] = "";
    json_t *answer = rg_listing_pool(&agent, "3 op", true, 0, "");
    size_t n = 0;
    for (unsigned page = 0; page < 500; page++) {
        cr_assert_leq(size_of(answer), RG_ANSWER_SIZE_MAX);
        const char *more = json_string_value(json_object_get(answer, "more_leases"));
        n += json_array_size(json_object_get(answer, "leases"));
        cr_assert(!more || strcmp(more, after) > 0);
        snprintf(after, sizeof after, "%s", more ? more : "");
        json_decref(answer);
        if (!*after)
            return n;
        answer = rg_listing_leases(&agent, "3 op", true, after);
    }
    return 0;
}

Test(told, leases_with_long_texts_come_in_pages, .init = start)
{
    for (unsigned i = 1; i <= 100; i++)
        put_lease(i, i % 3 ? RG_CONTROL_TEXT - 1 : LONG);
    cr_expect_eq(count_leases(), 100);
}

Test(told, servers_come_with_leases_and_requests_that_are_many, .init = start)
{
    uint64_t from = 0;
    size_t n = 0, servers = 0;
    for (unsigned i = 1; i <= 400; i++)
        put("servers", i,
            json_pack("{s:s, s:{s:o}}", "address", "gpu:7600", "labels", "rack", text_of('r', 200)));
    for (unsigned i = 1; i <= 64; i++) {
        put_lease(i, RG_CONTROL_TEXT - 1);
        put("requests", i,
            json_pack("{s:s, s:o, s:i}", "user", "3 alice", "name", text_of('"', 255), "gpus", 1));
    }
    for (unsigned page = 0; page == 0 || from; page++) {
        cr_assert_lt(page, 100);
        json_t *answer = rg_listing_pool(&agent, "3 op", true, from, "");
        const json_t *next = json_object_get(answer, "next");
        servers = json_array_size(json_object_get(answer, "servers"));
        cr_assert_leq(size_of(answer), RG_ANSWER_SIZE_MAX);
        cr_assert_gt(servers, 0);
        cr_assert(json_is_null(next) || (uint64_t)json_integer_value(next) > from);
        if (!page)
            cr_expect(json_array_size(json_object_get(answer, "requests")) > 0 &&
                      json_array_size(json_object_get(answer, "leases")) > 0);
        from = (uint64_t)json_integer_value(next);
        n += servers;
        json_decref(answer);
    }
    cr_expect_eq(n, 400);
    cr_expect_eq(count_leases(), 64);
}

Test(told, use_by_many_projects, .init = start)
{
    json_t *projects = json_object();
    char name[RG_CONTROL_TEXT];
    for (int i = 0; i < 2000; i++) {
        memset(name, 1, sizeof name); /* which JSON has as six letters */
        snprintf(name, sizeof name, "%04d", i);
        name[strlen(name)] = 1;
        name[sizeof name - 1] = '\0';
        (void)json_object_set_new(projects, name, json_integer(i));
    }
    *name = '\0';
    put("usage", 1,
        json_pack("{s:i, s:{s:i}, s:o}", "as_of", 0, "users", "3 alice", 5, "projects", projects));
    put("usage", 2, json_pack("{s:I, s:{s:I}}", "as_of", INT64_MAX, "users", "3 alice", INT64_MAX));
    put("usage", 3, json_pack("{s:I, s:{s:I}}", "as_of", INT64_MAX, "users", "3 alice", INT64_MAX));
    put("servers", 7, json_pack("{s:s}", "address", "gpu:7600"));
    put("leases", 1,
        json_pack("{s:s, s:[{s:s, s:I}, {s:s, s:I}, {s:s, s:I}]}", "user", "3 op", "gpus", "server",
                  "0000000000000007", "memory", INT64_MAX, "server", "0000000000000007", "memory", INT64_MAX,
                  "server", "0000000000000008", "memory", INT64_MAX));
    size_t n = 0;
    bool more = true;
    for (unsigned page = 0; more; page++) {
        cr_assert_lt(page, 500);
        char last[RG_CONTROL_TEXT] = "";
        json_t *question = json_pack("{s:s, s:s}", "users_after", page ? "zzz" : "", "projects_after", name);
        json_t *answer = rg_agent_usage_json(&agent, "3 op", true, question), *used;
        const char *project;
        cr_assert_leq(size_of(answer), RG_ANSWER_SIZE_MAX);
        cr_expect_eq(json_integer_value(json_object_get(json_object_get(answer, "held"), "memory")),
                     INT64_MAX);
        cr_expect_eq(json_integer_value(json_object_get(json_object_get(answer, "held"), "gpus")), 2);
        if (!page)
            cr_expect_eq(json_integer_value(json_object_get(json_object_get(answer, "users"), "alice")),
                         INT64_MAX);
        json_object_foreach(json_object_get(answer, "projects"), project, used) if (strcmp(project, last) > 0)
            snprintf(last, sizeof last, "%s", project);
        n += json_object_size(json_object_get(answer, "projects"));
        more = json_is_true(json_object_get(answer, "more"));
        snprintf(name, sizeof name, "%s", last);
        json_decref(answer);
        json_decref(question);
    }
    cr_expect_eq(n, 2000);
}

/* What a client is told at once; "": it waits. */
static void ask(const char *key, const char *text, char *said, size_t size)
{
    struct rg_agent_word word = {.kind = RG_AGENT_ASK};
    int ends[2], question = rg_file_in_memory("question", text, strlen(text));
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    word.ask.size = (uint32_t)strlen(text);
    snprintf(word.ask.key, sizeof word.ask.key, "%s", key);
    rg_asks_take(&agent, &word, ends[1], question);
    const ssize_t got = recv(ends[0], said, size - 1, MSG_DONTWAIT);
    said[got > 0 ? got : 0] = '\0';
}

Test(told, names_of_projects_have_an_end, .init = start)
{
    char text[RG_QUESTION_SIZE_MAX], said[2048];
    snprintf(text, sizeof text, "{\"ask\":\"request\",\"kept\":true,\"project\":\"%0*d\"}", RG_CONTROL_TEXT,
             0);
    ask("3 alice", text, said, sizeof said);
    cr_expect(strstr(said, "[lease-project]"), "%s", said);
    ask("3 alice", "{\"ask\":\"request\",\"project\":\"a\\u001b[2J\"}", said, sizeof said);
    cr_expect(strstr(said, "[lease-project]"), "%s", said);
    snprintf(text, sizeof text, "{\"ask\":\"request\",\"project\":\"%0*d\"}", RG_CONTROL_TEXT - 1, 0);
    ask("3 alice", text, said, sizeof said);
    cr_expect(!strstr(said, "[lease-project]"), "%s", said);
}

/* Alice's figures, under an id. */
static void put_figures_of_alice(uint64_t id)
{
    char key[64];
    snprintf(key, sizeof key, "links/%016" PRIx64, id);
    rg_pool_mirror_put(&agent.mirror, key,
                       "{\"user\":\"3 alice\",\"machine\":\"node\",\"servers\":{\"gpu:7600\":[1,2]}}", 1, 1);
    rg_pool_mirror_whole(&agent.mirror, 1);
}

#define BOB     "3 bob"
#define MADE_UP "made-up"

static const char measured[] =
    "{\"ask\":\"measured\",\"machine\":\"" MADE_UP "\",\"servers\":{\"gpu:7600\":[3,4]}}";

/* Whatever id somebody's figures have by chance, nobody else writes them. */
Test(told, figures_of_somebody_else_stay, .init = start)
{
    const struct rg_digest_part parts[] = {{BOB, strlen(BOB)}, {MADE_UP, strlen(MADE_UP)}};
    const struct rg_digest digest = rg_digest_of(parts, 2);
    uint64_t id;
    char said[2048] = "";
    memcpy(&id, digest.bytes, sizeof id);
    put("servers", 1, json_pack("{s:s}", "address", "gpu:7600"));
    put_figures_of_alice(id);
    ask(BOB, measured, said, sizeof said);
    cr_expect(strstr(said, "call it differently"), "%s", said);
    ask(BOB, "{\"ask\":\"measured\",\"machine\":\"other\",\"servers\":{\"gpu:7600\":[3,4]}}", said,
        sizeof said);
    cr_expect_str_empty(said, "%s", said);
}

/* A hash that can be turned round would let anybody find a name for a machine by which somebody else can tell of theirs no more. */
Test(told, nobody_finds_the_id_of_somebody_elses_figures, .init = start)
{
    char said[2048] = "";
    put("servers", 1, json_pack("{s:s}", "address", "gpu:7600"));
    put_figures_of_alice(
        rg_hash_bytes(rg_hash_bytes(RG_HASH_EMPTY, BOB, sizeof BOB), MADE_UP, strlen(MADE_UP)));
    ask(BOB, measured, said, sizeof said);
    cr_expect_str_empty(said, "%s", said);
}

/* What a machine has measured, as links.c writes it: of `servers` servers of the pool, and of one that has gone. */
static void put_links(unsigned id, const char *user, unsigned servers)
{
    json_t *figures = json_object();
    json_object_set_new(figures, "gone:7600", json_pack("[i, i]", 1, 1));
    for (unsigned i = 1; i <= servers; i++) {
        char address[24];
        snprintf(address, sizeof address, "gpu%u:7600", i);
        json_object_set_new(figures, address, json_pack("[i, i]", 1000 + i, 2000 + i));
    }
    put("links", id,
        json_pack("{s:s, s:s, s:i, s:o}", "user", user, "machine", "client", "as_of", 7, "servers", figures));
}

static void put_servers(unsigned n)
{
    for (unsigned i = 1; i <= n; i++)
        put("servers", i, json_pack("{s:o}", "address", json_sprintf("gpu%u:7600", i)));
}

/* All figures that somebody is told, page by page; *machines: of so many. */
static size_t count_links(const char *key, bool is_operator, size_t *machines)
{
    char after[RG_POOL_ID] = "0000000000000000";
    size_t n = 0;
    *machines = 0;
    for (unsigned page = 0; page < 500 && *after; page++) {
        json_t *answer = rg_links_told(&agent, key, is_operator, after);
        cr_assert_leq(size_of(answer), RG_ANSWER_SIZE_MAX);
        const char *more = json_string_value(json_object_get(answer, "more_links"));
        const json_t *one;
        size_t i;
        json_array_foreach(json_object_get(answer, "links"), i, one)
        {
            const json_t *servers = json_object_get(one, "servers");
            ++*machines;
            n += json_object_size(servers) + (size_t)json_integer_value(json_object_get(one, "left_out"));
            cr_assert_null(json_object_get(servers, "gone:7600"));
        }
        cr_assert(!more || strcmp(more, after) > 0);
        snprintf(after, sizeof after, "%s", more ? more : "");
        json_decref(answer);
    }
    return n;
}

Test(told, links_are_their_measurers_and_operators, .init = start)
{
    size_t machines;
    put_servers(64);
    for (unsigned i = 1; i <= 100; i++)
        put_links(i, i % 4 ? "3 alice" : "3 bob", 64);
    cr_expect_eq(count_links("3 op", true, &machines), 6400);
    cr_expect_eq(machines, 100);
    cr_expect_eq(count_links("3 bob", false, &machines), 25 * 64);
    cr_expect_eq(machines, 25);
    cr_expect_eq(count_links("3 carol", false, &machines), 0);
    json_t *answer = rg_links_told(&agent, "3 bob", false, "");
    const json_t *one = json_array_get(json_object_get(answer, "links"), 0),
                 *first = json_object_get(json_object_get(one, "servers"), "gpu1:7600");
    cr_expect_str_eq(json_string_value(json_object_get(one, "name")), "bob");
    cr_expect_str_eq(json_string_value(json_object_get(one, "machine")), "client");
    cr_expect_eq(json_integer_value(json_array_get(first, 0)), 1001);
    cr_expect_eq(json_integer_value(json_array_get(first, 1)), 2001);
    json_decref(answer);
}

Test(told, links_to_more_servers_than_fit_are_cut, .init = start)
{
    size_t machines;
    put_servers(2000);
    put_links(1, "3 alice", 2000);
    put_links(2, "3 alice", 2000);
    cr_expect_eq(count_links("3 alice", false, &machines), 4000);
    cr_expect_eq(machines, 2);
}
