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

/* A certificate can be refused for more than who has made it: what to do is said of each. */
Test(etcd_explain, what_is_wrong_with_a_certificate)
{
    static const struct {
        const char *error;
        CURLcode code;
        const char *mend;
    } cases[] = {
        {"SSL certificate problem: certificate is not yet valid", CURLE_PEER_FAILED_VERIFICATION,
         "set the clock"},
        {"SSL certificate problem: certificate has expired", CURLE_PEER_FAILED_VERIFICATION, "renew it, or"},
        {"SSL: no alternative certificate subject name matches target host name 'e1'",
         CURLE_PEER_FAILED_VERIFICATION, "--etcd names etcd as its certificate does"},
        {"OpenSSL SSL_read: error:0A000415:SSL routines::sslv3 alert certificate expired, errno 0",
         CURLE_RECV_ERROR, "renew the one that --etcd-cert names, or set the clock"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *why = explained(cases[i].error, cases[i].code);
        cr_expect(strstr(why, cases[i].mend), "%s", why);
        cr_expect_not(strstr(why, "--etcd-ca") || strstr(why, "--trusted-ca-file"), "%s", why);
    }
}
