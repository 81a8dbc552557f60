/*
 * control_client.c - says hello to a server in ways the real client does not, for the tests of the daemon.
 *
 *   control_client ADDRESS [WORD…]
 *     major=N  gpus=N  index=N  memory=N  command=TEXT  purpose=session|inventory|status|netperf|bulk:SESSION|resume:SESSION|stay:SESSION
 *     bulk     attach bulk data to the hello
 *     server   send a SessionEnd instead of a hello
 *     hold     stay until the server ends the session or stdin ends
 *     show     of an inventory, show the sessions
 *     ca=FILE  by TLS;  credentials=DIR  by TLS, with a certificate
 *
 * Prints what comes, one message a line: "hello session=… devices=0,1 driver=… kind=… software=…",
 * "refusal CODE REASON", "inventory devices=N sessions=N", "end REASON", "move TRANSPORT", "closed", "lost".
 */
#include "transport/connect/connect.h"
#include "transport/control.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool bulk, hold, by_tls, show;
static char ca[4096], certificate[4096], key[4096];
static struct rg_tls_client tls = {.ca_file = ca};

static void use_credentials(const char *folder)
{
    snprintf(ca, sizeof ca, "%s/ca.crt", folder);
    snprintf(certificate, sizeof certificate, "%s/tls.crt", folder);
    snprintf(key, sizeof key, "%s/tls.key", folder);
    tls.certificate_file = certificate;
    tls.key_file = key;
    by_tls = true;
}

static void apply(struct rg_control *message, const char *word)
{
    struct rg_client_hello *hello = &message->client_hello;
    const char *value = strchr(word, '=');
    long number = value ? strtol(++value, NULL, 0) : 0;
    if (strncmp(word, "major=", 6) == 0)
        hello->protocol_major = (uint32_t)number;
    else if (strncmp(word, "gpus=", 5) == 0)
        hello->gpus = (uint32_t)number;
    else if (strncmp(word, "index=", 6) == 0)
        hello->gpu_indices[hello->n_gpu_indices++] = (uint32_t)number;
    else if (strncmp(word, "memory=", 7) == 0)
        hello->share.memory_bytes = (uint64_t)number;
    else if (strncmp(word, "command=", 8) == 0)
        snprintf(hello->identity.command, sizeof hello->identity.command, "%s", value);
    else if (strcmp(word, "purpose=inventory") == 0)
        hello->purpose = RG_PURPOSE_INVENTORY;
    else if (strcmp(word, "purpose=netperf") == 0)
        hello->purpose = RG_PURPOSE_NETPERF;
    else if (strncmp(word, "purpose=bulk:", 13) == 0) { /* with the session's number */
        hello->purpose = RG_PURPOSE_BULK;
        hello->bulk_session = strtoull(word + 13, NULL, 10);
        for (unsigned char i = 0; i < RG_BULK_TOKEN; i++)
            hello->bulk_token[i] = i;
    } else if (strcmp(word, "purpose=status") == 0)
        hello->purpose = RG_PURPOSE_STATUS;
    else if (strcmp(word, "bulk") == 0)
        bulk = true;
    else if (strcmp(word, "hold") == 0)
        hold = true;
    else if (strcmp(word, "show") == 0)
        show = true;
    else if (strncmp(word, "ca=", 3) == 0) {
        snprintf(ca, sizeof ca, "%s", value);
        by_tls = true;
    } else if (strncmp(word, "credentials=", 12) == 0)
        use_credentials(value);
    else if (strncmp(word, "purpose=resume:", 15) == 0) {
        hello->purpose = RG_PURPOSE_RESUME;
        hello->resume_session = strtoull(word + 15, NULL, 10);
    } else if (strncmp(word, "purpose=stay:", 13) == 0) {
        hello->purpose = RG_PURPOSE_STAY;
        hello->resume_session = strtoull(word + 13, NULL, 10);
    } else if (strcmp(word, "server") == 0)
        rg_session_end_init(message, "nonsense");
    else
        exit(64);
}

static void print(const struct rg_control *message)
{
    switch (message->kind) {
    case RG_CONTROL_SERVER_HELLO:
        printf("hello session=%llu devices=", (unsigned long long)message->server_hello.session);
        for (uint32_t i = 0; i < message->server_hello.n_devices; i++)
            printf("%s%u", i ? "," : "", message->server_hello.devices[i].ordinal);
        printf(" rdma=%s driver=%s kind=%s software=%s\n",
               message->server_hello.transports.n > 1 ? "yes" : "no", message->server_hello.driver.path,
               message->server_hello.driver.kind, message->server_hello.software);
        break;
    case RG_CONTROL_REFUSAL:
        printf("refusal %s %s\n", rg_refusal_name(message->refusal.code), message->refusal.reason);
        break;
    case RG_CONTROL_INVENTORY:
        printf("inventory devices=%u sessions=%u\n", message->inventory.n_devices,
               message->inventory.sessions_running);
        for (uint32_t i = 0; i < message->inventory.n_sessions && show; i++) {
            const struct rg_session_info *session = &message->inventory.sessions[i];
            printf("session %llu user=%s encrypted=%d command=%s\n", (unsigned long long)session->id,
                   session->identity_name, session->encrypted, session->identity.command);
        }
        break;
    case RG_CONTROL_SESSION_END:
        printf("end %s\n", message->session_end.reason);
        break;
    case RG_CONTROL_UPGRADE:
        printf("move %s\n", message->upgrade.transport);
        break;
    case RG_CONTROL_ANSWER:
        printf("answer %u\n", message->answer.size);
        break;
    default:
        printf("unexpected %d\n", message->kind);
    }
    fflush(stdout);
}

static enum rg_status send_hello(struct rg_conn *conn, const struct rg_control *message)
{
    if (!bulk)
        return rg_control_send(conn, message);
    void *data;
    size_t size;
    enum rg_status status = rg_control_pack(message, &data, &size);
    if (status != RG_OK)
        return status;
    struct iovec part = {data, size}, attached = {(char[64]){0}, 64};
    status = rg_conn_send(conn, &(struct rg_send){.msg = &part, .n_msg = 1, .bulk = &attached, .n_bulk = 1});
    free(data);
    return status;
}

/* Whether the connection had something to say before stdin ended. */
static bool wait_for_it(struct rg_conn *conn)
{
    struct pollfd fds[] = {{.fd = rg_conn_fd(conn), .events = POLLIN}, {.fd = 0, .events = POLLIN}};
    if (poll(fds, 2, -1) < 0)
        exit(1);
    return fds[0].revents != 0;
}

int main(int argc, char **argv)
{
    static struct rg_control hello, answer;
    rg_client_hello_init(&hello, RG_PURPOSE_SESSION);
    for (int i = 2; i < argc; i++)
        apply(&hello, argv[i]);
    const struct rg_transport_options options = {.filters = "", .tls = by_tls ? &tls : NULL};
    struct rg_conn *conn;
    char why[1024];
    if (rg_transport_connect(argv[1], &options, why, sizeof why, &conn) != RG_OK) {
        printf("unreachable %s\n", why);
        return 1;
    }
    enum rg_status status = send_hello(conn, &hello);
    for (;;) {
        if (status == RG_OK)
            status = rg_control_receive(conn, 20000, &answer);
        if (status != RG_OK) {
            printf("%s\n", status == RG_ERR_CLOSED ? "closed" : rg_status_string(status));
            break;
        }
        print(&answer);
        bool greeted = answer.kind == RG_CONTROL_SERVER_HELLO,
             told = answer.kind == RG_CONTROL_INVENTORY || answer.kind == RG_CONTROL_UPGRADE;
        rg_control_fini(&answer);
        if (told || (greeted && (!hold || !wait_for_it(conn))))
            break;
    }
    rg_conn_destroy(conn);
    return 0;
}
