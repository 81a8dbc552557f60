/* pool.c - see pool.h. The agent answers in pages. */
#include "server/http/pool.h"

#include "common/base/cleanup.h"
#include "common/base/json_value.h"
#include "common/base/printable.h"
#include "server/http/json.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PAGES_MAX = 64, ANSWER_MS = 3000 };

/* What comes by the socket, once; NULL: nothing that is understood. */
static json_t *receive(int socket)
{
    struct pollfd wait = {.fd = socket, .events = POLLIN};
    RG_CLEANUP_FREE char *text = malloc(RG_ANSWER_SIZE_MAX);
    if (!text || poll(&wait, 1, ANSWER_MS) <= 0)
        return NULL;
    const ssize_t got = recv(socket, text, RG_ANSWER_SIZE_MAX, MSG_DONTWAIT);
    return got > 0 ? json_loadb(text, (size_t)got, JSON_REJECT_DUPLICATES, NULL) : NULL;
}

/* What the question says. */
static enum rg_status ask_page(const struct rg_view_source *source, struct rg_monitor_question *reader,
                               json_t **page, char *why, size_t why_size)
{
    struct rg_monitor_answer answer;
    int socket = -1;
    if (rg_monitor_ask(source->link, reader, NULL, 0, RG_VIEW_LOOK_MS, &answer, &socket) != RG_OK)
        return RG_ERR_TIMEOUT;
    if (answer.status == RG_ERR_REFUSED && answer.code == RG_REFUSAL_UNAUTHORISED) {
        snprintf(why, why_size, "%s", answer.why);
        return RG_ERR_REFUSED;
    }
    *page = answer.status == RG_OK && socket >= 0 ? receive(socket) : NULL;
    if (socket >= 0)
        close(socket);
    if (json_is_object(*page))
        return RG_OK;
    json_decref(*page);
    return RG_ERR_TIMEOUT;
}

/* Texts of other servers' operators, and names of users: as all that is shown. */
static json_t *cleaned(const json_t *value)
{
    const char *key;
    json_t *item, *out;
    size_t i;
    if (json_is_string(value))
        return rg_json_text(json_string_value(value));
    if (json_is_array(value)) {
        out = json_array();
        json_array_foreach(value, i, item)(void) json_array_append_new(out, cleaned(item));
        return out;
    }
    if (!json_is_object(value))
        return json_deep_copy(value);
    out = json_object();
    json_object_foreach((json_t *)(uintptr_t)value, key, item)
    {
        char clean[RG_CONTROL_TEXT];
        snprintf(clean, sizeof clean, "%s", key);
        rg_printable_clean(clean);
        (void)json_object_set_new(out, clean, cleaned(item));
    }
    return out;
}

/* --- servers and requests ------------------------------------------------------------------------------------- */

static void add_members(json_t *members, const json_t *page)
{
    const json_t *member;
    size_t i;
    json_array_foreach(json_object_get(page, "servers"), i, member)(void)
        json_array_append_new(members, cleaned(member));
}

/* Those that the reader may see, which the agent says. */
static void add_requests(json_t *requests, const json_t *page)
{
    const json_t *request;
    size_t i;
    json_array_foreach(json_object_get(page, "requests"), i, request)(void)
        json_array_append_new(requests, cleaned(request));
}

enum rg_status rg_json_pool(const struct rg_view_source *source, struct rg_monitor_question *reader,
                            json_t **out, char *refused, size_t refused_size)
{
    json_t *members = json_array(), *requests = json_array(), *history = NULL, *page = NULL, *next = NULL;
    json_int_t waiting = 0;
    enum rg_status status = RG_OK;
    char pool[RG_CONTROL_TEXT] = "", why[1024] = "";
    uint64_t from = 0;
    for (int i = 0; i < PAGES_MAX && (i == 0 || from); i++) {
        reader->kind = RG_ASK_LIST;
        reader->page.first = (uint32_t)from;
        if ((status = ask_page(source, reader, &page, refused, refused_size)) != RG_OK)
            break;
        add_members(members, page);
        if (i == 0) {
            add_requests(requests, page);
            history = json_incref(json_object_get(page, "history"));
        }
        next = json_object_get(page, "next");
        const uint64_t after = json_is_integer(next) ? (uint64_t)json_integer_value(next) : 0;
        from = after > from ? after : 0;
        waiting = json_integer_value(json_object_get(page, "waiting"));
        snprintf(pool, sizeof pool, "%s", rg_json_get_text(page, "pool"));
        snprintf(why, sizeof why, "%s", rg_json_get_text(page, "etcd"));
        json_decref(page);
    }
    if (status == RG_OK) {
        *out =
            json_pack("{s:o, s:o, s:I, s:O, s:O, s:O}", "pool", rg_json_text(pool), "why", rg_json_text(why),
                      "waiting", waiting, "members", members, "requests", requests, "history", history);
        status = *out ? RG_OK : RG_ERR_NO_MEMORY;
    }
    json_decref(members);
    json_decref(requests);
    json_decref(history);
    return status;
}

/* --- what was measured ---------------------------------------------------------------------------------------- */

/* [nanoseconds, bytes a second] of each server, by its address. */
static json_t *servers_json(const json_t *servers)
{
    json_t *out = json_array(), *figures;
    const char *address;
    json_object_foreach((json_t *)(uintptr_t)servers, address, figures)
    {
        const json_int_t latency = json_integer_value(json_array_get(figures, 0)),
                         bandwidth = json_integer_value(json_array_get(figures, 1));
        if (latency > 0 && bandwidth >= 0)
            (void)json_array_append_new(out, json_pack("{s:o, s:f, s:I}", "address", rg_json_text(address),
                                                       "round_trip_seconds", (double)latency * 1e-9,
                                                       "bytes_per_second", bandwidth));
    }
    return out;
}

static void add_machines(json_t *links, const json_t *page)
{
    const json_t *one;
    size_t i;
    json_array_foreach(json_object_get(page, "links"), i, one)
    {
        const json_int_t measured = json_integer_value(json_object_get(one, "measured")),
                         left_out = json_integer_value(json_object_get(one, "left_out"));
        (void)json_array_append_new(
            links, json_pack("{s:o, s:o, s:I, s:I, s:o}", "machine",
                             rg_json_text(json_string_value(json_object_get(one, "machine"))), "name",
                             rg_json_text(json_string_value(json_object_get(one, "name"))), "measured",
                             measured > 0 ? measured : 0, "left_out", left_out > 0 ? left_out : 0, "servers",
                             servers_json(json_object_get(one, "servers"))));
    }
}

enum rg_status rg_json_links(const struct rg_view_source *source, struct rg_monitor_question *reader,
                             json_t **out, char *refused, size_t refused_size)
{
    json_t *links = json_array(), *page = NULL;
    enum rg_status status = RG_OK;
    bool more = true;
    reader->kind = RG_ASK_LINKS;
    reader->page.after = 0;
    for (int i = 0; i < PAGES_MAX && more && status == RG_OK; i++) {
        if ((status = ask_page(source, reader, &page, refused, refused_size)) != RG_OK)
            break;
        const char *next = json_string_value(json_object_get(page, "more_links"));
        const uint64_t after = next ? strtoull(next, NULL, 16) : 0;
        add_machines(links, page);
        more = after > reader->page.after; /* they come in the order of their ids */
        reader->page.after = after;
        if (strcmp(rg_json_get_text(page, "state"), "links") != 0)
            status = RG_ERR_TIMEOUT;
        json_decref(page);
    }
    if (status == RG_OK) {
        *out = json_pack("{s:O, s:b}", "links", links, "more", (int)more);
        status = *out ? RG_OK : RG_ERR_NO_MEMORY;
    }
    json_decref(links);
    return status;
}
