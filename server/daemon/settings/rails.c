/* rails.c - see rails.h. */
#include "server/daemon/settings/rails.h"

#include "proto/control/control.h"
#include "server/daemon/settings/listeners.h"
#include "transport/address.h"
#include "transport/connect/connect.h"
#include "transport/topology/rails.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

enum { LINKS = 16 };

enum rg_status rg_daemon_rails_check(const char *text, char *why, size_t why_size)
{
    unsigned char number[16];
    char one[INET6_ADDRSTRLEN];
    unsigned n = 0;
    if (strcmp(text, "auto") == 0 || strcmp(text, "off") == 0)
        return RG_OK;
    for (const char *at = text; *at; n++) {
        const size_t size = strcspn(at, ",");
        snprintf(one, sizeof one, "%.*s", (int)size, at);
        if (size >= sizeof one || inet_pton(strchr(one, ':') ? AF_INET6 : AF_INET, one, number) != 1)
            break;
        at += size + (at[size] == ',');
        if (!*at && n < RG_CONTROL_ADDRESSES)
            return RG_OK;
    }
    return RG_FAILED(RG_ERR_INVALID, why, why_size,
                     "'%s' is neither auto, off nor addresses as numbers, without ports (at most %d)", text,
                     RG_CONTROL_ADDRESSES);
}

void rg_daemon_rails_begin(struct rg_daemon_rails *rails, const char *setting,
                           const struct rg_listeners *listeners)
{
    *rails = (struct rg_daemon_rails){0};
    if (strcmp(setting, "off") == 0)
        return;
    if (strcmp(setting, "auto") != 0)
        rails->told = setting;
    for (uint32_t i = 0; i < listeners->n && !rails->told; i++) {
        struct rg_daemon_rails_listener *to = &rails->listeners[rails->n_listeners];
        struct rg_address address;
        if (listeners->reach[i] != RG_REACH_NETWORK ||
            rg_address_parse(rg_listener_address(listeners->items[i]), &address, NULL, 0) != RG_OK)
            continue;
        snprintf(to->host, sizeof to->host, "%.63s", address.host);
        to->port = address.port;
        rails->n_listeners++;
    }
}

/* Whether what comes to this number is the listener's. */
static bool takes(const struct rg_daemon_rails_listener *listener, const char *number)
{
    const char *host = listener->host;
    return strcmp(host, number) == 0 || strcmp(host, "::") == 0 || strcmp(host, "*") == 0 ||
           (strcmp(host, "0.0.0.0") == 0 && !strchr(number, ':'));
}

static size_t put(char *out, size_t size, size_t used, unsigned port, unsigned rail, int length,
                  const char *number)
{
    const int more =
        snprintf(out + used, size - used, "%s%u/%u/%.*s", used ? "," : "", port, rail, length, number);
    if ((size_t)more < size - used)
        return used + (size_t)more;
    out[used] = 0; /* what has no room is left out */
    return used;
}

/* Whether one of the listeners takes what comes to this number. */
static bool any_takes(const struct rg_daemon_rails *rails, const char *number)
{
    for (uint32_t i = 0; i < rails->n_listeners; i++)
        if (takes(&rails->listeners[i], number))
            return true;
    return false;
}

static size_t list_links(const struct rg_daemon_rails *rails, char *out, size_t size)
{
    struct rg_rail links[LINKS];
    const unsigned n = rails->n_listeners ? rg_rails_links(links, LINKS) : 0;
    size_t used = 0;
    for (unsigned i = 0; i < n; i++)
        for (uint32_t k = 0; k < rails->n_listeners; k++)
            if (takes(&rails->listeners[k], links[i].way.address))
                used = put(out, size, used, rails->listeners[k].port, links[i].number,
                           (int)strlen(links[i].way.address), links[i].way.address);
    return used;
}

bool rg_daemon_rails_list(const struct rg_daemon_rails *rails, char *out, size_t size)
{
    size_t used = 0;
    *out = 0;
    if (!rails->told)
        return list_links(rails, out, size) != 0;
    unsigned number = 0;
    for (const char *at = rails->told; *at; number++) {
        const size_t length = strcspn(at, ",");
        used = put(out, size, used, 0, number, (int)length, at);
        at += length + (at[length] == ',');
    }
    return used != 0;
}

/* Appends "ADDRESS (INTERFACE, SPEED)"; what has no room is left out. */
static size_t add_link(char *out, size_t size, size_t used, const struct rg_rail *link)
{
    char speed[32] = "";
    if (link->mbps)
        snprintf(speed, sizeof speed, ", %g Gb/s", link->mbps / 1000.0);
    const int more = snprintf(out + used, size - used, "%s%s (%s%s)", used ? ", " : "", link->way.address,
                              link->way.interface, speed);
    if ((size_t)more < size - used)
        return used + (size_t)more;
    out[used] = 0;
    return used;
}

static void describe_links(const struct rg_daemon_rails *rails, char *out, size_t size)
{
    struct rg_rail links[LINKS];
    const unsigned n = rails->n_listeners ? rg_rails_links(links, LINKS) : 0;
    const struct rg_rail *first = NULL;
    bool several = false;
    size_t used = 0;
    for (unsigned i = 0; i < n; i++) {
        if (!any_takes(rails, links[i].way.address))
            continue;
        first = first ? first : &links[i];
        several = several || links[i].number != first->number;
        used = add_link(out, size, used, &links[i]);
    }
    if (!several)
        *out = 0;
}

void rg_daemon_rails_describe(const struct rg_daemon_rails *rails, char *out, size_t size)
{
    size_t used = 0;
    *out = 0;
    if (!rails->told) {
        describe_links(rails, out, size);
        return;
    }
    for (const char *at = rails->told; *at && used < size;) {
        const size_t length = strcspn(at, ",");
        used += (size_t)snprintf(out + used, size - used, "%s%.*s", used ? ", " : "", (int)length, at);
        at += length + (at[length] == ',');
    }
}
