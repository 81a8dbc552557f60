/* explain.c - a sentence for a request that has got no answer. Any thread. */
#include "pool/etcd/internal.h"

#include "common/base/log.h"

#include <stdio.h>
#include <string.h>

/* libcurl's message but for how long it took ("… after 12 ms: …"), which differs each time. */
static void copy_untimed(char *to, size_t size, const char *error)
{
    const char *after = error;
    while ((after = strstr(after, " after ")) != NULL) {
        const char *number = after + strlen(" after ");
        const char *unit = number + strspn(number, "0123456789");
        const size_t length = strncmp(unit, " milliseconds", 13) == 0 ? 13
                              : strncmp(unit, " ms", 3) == 0          ? 3
                                                                      : 0;
        if (unit > number && length) {
            snprintf(to, size, "%.*s%s", (int)(after - error), error, unit + length);
            return;
        }
        after = number;
    }
    snprintf(to, size, "%s", error);
}

/* What is to be done about a certificate that one of the two does not accept. */
static const char *mend_of_etcds(const char *said)
{
    if (strstr(said, "expired") || strstr(said, "not yet valid"))
        return "renew it, or set the clock that is wrong";
    if (strstr(said, "subject name") || strstr(said, "match target host"))
        return "--etcd names etcd as its certificate does, or the certificate has to have this name as well";
    return "--etcd-ca names the authority that has made it";
}

static const char *mend_of_ours(const char *said)
{
    if (strstr(said, "expired"))
        return "renew the one that --etcd-cert names, or set the clock that is wrong";
    return "--etcd-cert and --etcd-key name one that its --trusted-ca-file has certified and that is valid "
           "now";
}

void rg_etcd_explain(const char *endpoint, const char *error, CURLcode code, char *why, size_t why_size)
{
    char said[CURL_ERROR_SIZE];
    copy_untimed(said, sizeof said, error);
    if (code == CURLE_PEER_FAILED_VERIFICATION)
        rg_explain(why, why_size, "the certificate of etcd at %s is not accepted (%s): %s", endpoint, said,
                   mend_of_etcds(said));
    else if (strstr(said, "alert"))
        rg_explain(why, why_size, "etcd at %s refuses this server's certificate (%s): %s", endpoint, said,
                   mend_of_ours(said));
    else if (code == CURLE_SSL_CERTPROBLEM)
        rg_explain(why, why_size, "--etcd-cert and --etcd-key cannot be used (%s)", said);
    else
        rg_explain(why, why_size, "etcd at %s does not answer (%s)", endpoint, said);
}
