/* json.c - what a view becomes: names of peers that would be something else than text. */
#include "server/http/json.h"

#include <criterion/criterion.h>
#include <string.h>

static struct rg_view *view;

static void init(void)
{
    view = calloc(1, sizeof *view);
    cr_assert(view && (view->sessions = calloc(2, sizeof *view->sessions)));
    view->max_sessions = 2;
    view->n_sessions = 1;
    view->driver.n_devices = 1;
    view->driver.devices[0].memory_total = UINT64_MAX;
    view->sessions[0].info.n_devices = view->sessions[0].info.n_shares = 1;
}

static void fini(void)
{
    rg_view_release(view);
}

TestSuite(json, .init = init, .fini = fini);

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    cr_assert(text, "%s", key);
    return text;
}

Test(json, hostile_names_are_text)
{
    struct rg_identity *identity = &view->sessions[0].info.identity;
    strcpy(identity->user, "</script><script>alert(1)</script>\"\\");
    strcpy(identity->host, "a\x1b[31m\xff\xe2\x80\xae");
    strcpy(identity->command, "/home/alice/<img>/secret\n --token=hidden");
    strcpy(view->sessions[0].info.peer, "10.0.0.7:1234");
    json_t *all = rg_json_sessions(view);
    char *dumped = json_dumps(all, JSON_COMPACT);
    json_t *again = json_loads(dumped, 0, NULL);
    const json_t *session = json_array_get(json_object_get(again, "sessions"), 0);
    cr_assert(session);
    cr_assert_str_eq(text_of(session, "user"), identity->user);
    cr_assert_str_eq(text_of(session, "host"), "a?[31m????");
    cr_assert_str_eq(text_of(session, "program"), "secret?",
                     "no folder, no arguments, no control characters");
    cr_assert(!strstr(dumped, "hidden") && !strstr(dumped, "10.0.0.7"));
    free(dumped);
    json_decref(again);
    json_decref(all);
}

/* Why the server is not ready comes from its pool's agent, and is cut to fit. */
Test(json, a_reason_that_is_no_text)
{
    view->gauges.in_pool = true;
    view->gauges.frontend_ready = true;
    strcpy(view->gauges.pool_why, "etcd says \xe2\x80\x1b[31m\xff");
    json_t *server = rg_json_server(view);
    cr_assert(server);
    cr_assert(strstr(text_of(server, "why"), "etcd says ???[31m?"), "%s", text_of(server, "why"));
    json_decref(server);
}

Test(json, a_text_that_was_cut_within_a_character)
{
    memset(view->sessions[0].info.identity.user, 'a', RG_CONTROL_TEXT - 2);
    view->sessions[0].info.identity.user[RG_CONTROL_TEXT - 2] = '\xc3';
    json_t *all = rg_json_sessions(view);
    cr_assert(all);
    json_decref(all);
}

Test(json, numbers_that_nothing_can_be)
{
    view->gauges.devices[0].held = view->gauges.granted = UINT64_MAX;
    json_t *gpus = rg_json_gpus(view), *server = rg_json_server(view);
    const json_t *memory = json_object_get(json_array_get(json_object_get(gpus, "gpus"), 0), "memory");
    cr_assert_eq(json_integer_value(json_object_get(memory, "held")), INT64_MAX);
    cr_assert_eq(json_integer_value(json_object_get(server, "sessions_started")), INT64_MAX);
    cr_assert(json_is_null(json_object_get(server, "pool")));
    json_decref(gpus);
    json_decref(server);
}

Test(json, why_it_is_not_ready)
{
    view->gauges.stopping = true;
    json_t *server = rg_json_server(view);
    cr_assert(json_is_false(json_object_get(server, "ready")));
    cr_assert(strstr(text_of(server, "why"), "shutting down"));
    json_decref(server);
}
