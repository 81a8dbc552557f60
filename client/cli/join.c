/*
 * join.c - remote-gpu join: credentials for a server, against the token that its operator has handed out.
 *
 * The token is a secret until it is used: as an argument it can be seen by others on this machine, so that "-" reads it
 * from standard input.
 */
#include "client/cli/base/cli.h"
#include "client/credentials/enrol.h"
#include "common/base/log.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The token as one word, of the command line or of standard input. False: it was said what is wrong. */
static bool take_token(int argc, char **argv, char *out, size_t size)
{
    if (argc != 1) {
        rg_error(argc == 0 ? "which token? remote-gpud token --user NAME on the GPU machine prints one; see "
                             "remote-gpu join --help"
                           : "one token at a time: it is a single word; see remote-gpu join --help");
        return false;
    }
    const char *text = argv[0];
    char line[1024];
    if (strcmp(text, "-") == 0) {
        if (!fgets(line, sizeof line, stdin)) {
            rg_error("there is no token on standard input");
            return false;
        }
        text = line;
    }
    text += strspn(text, " \t");
    const size_t length = strcspn(text, " \t\r\n");
    if (length >= size) {
        rg_error("that is no token: it is too long");
        return false;
    }
    memcpy(out, text, length);
    out[length] = 0;
    explicit_bzero(line, sizeof line);
    return true;
}

int rg_cli_join(const struct rg_cli_settings *settings, int argc, char **argv)
{
    char text[640], why[2048] = "";
    struct rg_join_token token;
    struct rg_enrolled enrolled;
    if (!take_token(argc, argv, text, sizeof text))
        return RG_EXIT_FAILURE;
    const uint64_t timeout_ms = settings->timeout_ns / 1000000u;
    enum rg_status status = rg_join_token_parse(text, &token, why, sizeof why);
    explicit_bzero(text, sizeof text);
    if (status == RG_OK)
        status = rg_enrol_join(&token, settings->force, timeout_ms > INT_MAX ? INT_MAX : (int)timeout_ms,
                               &enrolled, why, sizeof why);
    explicit_bzero(&token.secret, sizeof token.secret);
    if (status != RG_OK) {
        rg_error("%s", *why ? why : rg_status_string(status));
        return RG_EXIT_FAILURE;
    }
    char until[64];
    struct tm date;
    const time_t end = (time_t)enrolled.not_after;
    strftime(until, sizeof until, "%Y-%m-%d", gmtime_r(&end, &date));
    printf("joined %s as %s; the certificate is valid until %s and renews itself before\n"
           "credentials: %s\n"
           "next: remote-gpu list, or remote-gpu run -- COMMAND (this server is used where none is named)\n",
           token.server, enrolled.user, until, enrolled.folder);
    return 0;
}
