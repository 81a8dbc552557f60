/* show.c - what list shows of a pool; see pool.h. What comes of it was written by servers: it is cleaned before it is printed. */
#include "client/cli/base/output.h"
#include "client/cli/pool/pool.h"
#include "common/base/json_value.h"
#include "common/base/printable.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* A text that came from servers, for a terminal. */
static const char *text_of(const json_t *object, const char *name, char *out, size_t size)
{
    snprintf(out, size, "%s", rg_json_get_text(object, name));
    rg_printable_clean(out);
    return out;
}

static json_int_t number_of(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

static void print_gpu(const json_t *gpu)
{
    char name[128], total[24], available[24];
    const json_t *share;
    size_t i, suspended = 0;
    const json_int_t memory = number_of(gpu, "memory"), left = number_of(gpu, "free");
    rg_cli_bytes_text((uint64_t)memory, total, sizeof total);
    rg_cli_bytes_text((uint64_t)left, available, sizeof available);
    printf("    GPU %lld: %s, %s, ", (long long)number_of(gpu, "index"),
           text_of(gpu, "name", name, sizeof name), total);
    json_array_foreach(json_object_get(gpu, "granted"), i, share) suspended +=
        strcmp(text_of(share, "state", name, sizeof name), "suspended") == 0;
    if (left == memory)
        printf("free");
    else if (left == 0)
        printf("granted");
    else
        printf("%s free", available);
    if (suspended)
        printf(", %zu lease%s suspended", suspended, suspended == 1 ? "" : "s");
    printf("\n");
}

/* Labels or taints of a server, "NAME=VALUE" or "NAME" each, behind a word; nothing where there are none. */
static void print_labels(const char *word, const json_t *labels)
{
    const char *name, *before = word;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)labels, name, value)
    {
        const char *text = json_string_value(value);
        char shown[2 * RG_CONTROL_TEXT];
        snprintf(shown, sizeof shown, "%s%s%s", name, text && *text ? "=" : "", text ? text : "");
        rg_printable_clean(shown);
        printf(", %s%s", before, shown);
        before = "";
    }
}

void rg_pool_print_link(const json_t *pool, const json_t *member)
{
    const char *address = json_string_value(json_object_get(member, "address"));
    const json_t *figures = address ? json_object_get(json_object_get(pool, "links"), address) : NULL;
    const double latency = (double)json_integer_value(json_array_get(figures, 0)),
                 bandwidth = (double)json_integer_value(json_array_get(figures, 1));
    if (figures)
        printf(", %.1f us and %.1f MB/s from here", latency / 1e3, bandwidth / 1e6);
}

static void print_member(const json_t *pool, const json_t *member)
{
    char address[256], host[256], cuda[32];
    const json_t *gpu;
    size_t i;
    printf("  %s: %s, CUDA %s%s%s", text_of(member, "address", address, sizeof address),
           text_of(member, "host", host, sizeof host), text_of(member, "cuda", cuda, sizeof cuda),
           json_is_true(json_object_get(member, "rdma")) ? ", RDMA" : "",
           json_is_true(json_object_get(member, "draining")) ? ", draining" : "");
    print_labels("", json_object_get(member, "labels"));
    print_labels("taints: ", json_object_get(member, "taints"));
    rg_pool_print_link(pool, member);
    printf("\n");
    json_array_foreach(json_object_get(member, "gpus"), i, gpu) print_gpu(gpu);
}

/* One's own, for an operator anybody's. */
static void print_request(const json_t *request)
{
    char name[256];
    const json_int_t gpus = number_of(request, "gpus");
    const long long waited = (long long)time(NULL) - (long long)number_of(request, "since");
    printf("  waits at place %lld, for %lld s: %s, for %lld GPU%s\n", (long long)number_of(request, "place"),
           waited > 0 ? waited : 0,
           *text_of(request, "name", name, sizeof name) ? name : "somebody unauthenticated", (long long)gpus,
           gpus == 1 ? "" : "s");
}

static void print_lease(const json_t *lease)
{
    char id[32], name[256];
    const long long left = (long long)number_of(lease, "expires") - (long long)time(NULL);
    printf("  lease %s: %lld GPU%s%s%s", text_of(lease, "lease", id, sizeof id),
           (long long)number_of(lease, "gpus"), number_of(lease, "gpus") == 1 ? "" : "s",
           *text_of(lease, "name", name, sizeof name) ? ", " : "", name);
    if (json_is_true(json_object_get(lease, "kept")))
        printf(", kept for %lld s more", left > 0 ? left : 0);
    if (*text_of(lease, "priority", name, sizeof name) && strcmp(name, "normal") != 0)
        printf(", priority %s", name);
    if (*text_of(lease, "state", name, sizeof name))
        printf(", %s for a request of higher priority", name);
    if (*text_of(lease, "by", name, sizeof name))
        printf(", asked for by %s", name);
    const json_int_t gone = number_of(lease, "gone");
    if (gone)
        printf(", %lld of them gone with %s: release it", (long long)gone,
               gone == 1 ? "its server" : "their servers");
    printf("\n");
}

void rg_pool_print(const json_t *pool)
{
    const json_t *member, *gpu, *lease, *request;
    size_t i, j, n = 0, free_gpus = 0;
    char name[128], why[512];
    json_array_foreach(json_object_get(pool, "servers"), i, member)
        json_array_foreach(json_object_get(member, "gpus"), j, gpu)
    {
        n++;
        free_gpus += number_of(gpu, "free") == number_of(gpu, "memory");
    }
    const json_int_t waiting = number_of(pool, "waiting");
    printf("pool %s: %zu server%s, %zu GPU%s, %zu free, %lld waiting\n",
           text_of(pool, "pool", name, sizeof name), json_array_size(json_object_get(pool, "servers")),
           json_array_size(json_object_get(pool, "servers")) == 1 ? "" : "s", n, n == 1 ? "" : "s", free_gpus,
           (long long)waiting);
    if (*text_of(pool, "etcd", why, sizeof why))
        printf("  as it was last known: %s\n", why);
    json_array_foreach(json_object_get(pool, "servers"), i, member) print_member(pool, member);
    json_array_foreach(json_object_get(pool, "leases"), i, lease) print_lease(lease);
    json_array_foreach(json_object_get(pool, "requests"), i, request) print_request(request);
}
