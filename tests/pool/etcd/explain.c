/* explain.c - why etcd has not answered: the same reason is the same sentence. */
#include "pool/etcd/internal.h"

#include <criterion/criterion.h>

static const char *explained(const char *error, CURLcode code)
{
    static char why[RG_ETCD_WHY];
    rg_etcd_explain("http://etcd:2379", error, code, why, sizeof why);
    return why;
}

Test(etcd_explain, not_how_long_it_took)
{
    cr_expect_str_eq(explained("Failed to connect to etcd port 2379 after 12 ms: Couldn't connect to server",
                               CURLE_COULDNT_CONNECT),
                     "etcd at http://etcd:2379 does not answer (Failed to connect to etcd port 2379: "
                     "Couldn't connect to server)");
    cr_expect_str_eq(explained("Operation timed out after 2001 milliseconds with 0 bytes received",
                               CURLE_OPERATION_TIMEDOUT),
                     "etcd at http://etcd:2379 does not answer (Operation timed out with 0 bytes received)");
}

Test(etcd_explain, other_words_stay)
{
    cr_expect_str_eq(explained("Empty reply after all after x ms", CURLE_GOT_NOTHING),
                     "etcd at http://etcd:2379 does not answer (Empty reply after all after x ms)");
    cr_expect(
        strstr(explained("tlsv1 alert unknown ca", CURLE_RECV_ERROR), "refuses this server's certificate"));
    cr_expect(
        strstr(explained("self-signed certificate", CURLE_PEER_FAILED_VERIFICATION), "--etcd-ca names"));
    cr_expect(strstr(explained("no such file", CURLE_SSL_CERTPROBLEM), "--etcd-cert and --etcd-key"));
}
