/* token.c - see token.h. */
#include "client/credentials/token.h"

#include "client/credentials/credentials.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "rgpu1:"

enum { PAYLOAD = 32 + RG_JOIN_SECRET, LETTERS = PAYLOAD / 3 * 4 };

static_assert(PAYLOAD % 3 == 0, "the payload is written without padding");

static int value_of(char letter)
{
    if (letter >= 'A' && letter <= 'Z')
        return letter - 'A';
    if (letter >= 'a' && letter <= 'z')
        return letter - 'a' + 26;
    if (letter >= '0' && letter <= '9')
        return letter - '0' + 52;
    return letter == '-' ? 62 : letter == '_' ? 63 : -1;
}

static bool decode(const char *text, uint8_t *out)
{
    for (int i = 0; i < LETTERS; i += 4) {
        unsigned bits = 0;
        for (int k = 0; k < 4; k++) {
            const int value = value_of(text[i + k]);
            if (value < 0)
                return false;
            bits = bits << 6 | (unsigned)value;
        }
        *out++ = (uint8_t)(bits >> 16);
        *out++ = (uint8_t)(bits >> 8);
        *out++ = (uint8_t)bits;
    }
    return true;
}

/* "rgpu2:…" of a release to come. */
static bool is_later(const char *text)
{
    return strncmp(text, "rgpu", 4) == 0 && isdigit((unsigned char)text[4]) && strchr(text, ':');
}

enum rg_status rg_join_token_parse(const char *text, struct rg_join_token *out, char *why, size_t why_size)
{
    uint8_t payload[PAYLOAD];
    if (strncmp(text, PREFIX, strlen(PREFIX)) != 0) {
        if (is_later(text))
            rg_explain(why, why_size,
                       "the token is of a later release of remote-gpu; install that release here");
        else
            rg_explain(why, why_size,
                       "that is no token: one begins with " PREFIX
                       " and is printed by remote-gpud token --user NAME on the GPU machine");
        return RG_ERR_INVALID;
    }
    const char *letters = text + strlen(PREFIX), *at = strchr(letters, '@');
    if (!at || at - letters != LETTERS || !decode(letters, payload))
        return RG_FAILED(RG_ERR_INVALID, why, why_size,
                         "the token is damaged: copy the whole line that remote-gpud token has printed");
    char reason[256] = "";
    if (rg_address_parse(at + 1, &out->address, reason, sizeof reason) != RG_OK ||
        strcmp(out->address.scheme, "tcp") != 0 || out->address.port == 0) {
        rg_explain(why, why_size,
                   "the token names no server that can be joined (%s); copy the whole line again",
                   *reason ? reason : at + 1);
        explicit_bzero(payload, sizeof payload);
        return RG_ERR_INVALID;
    }
    memcpy(out->authority, payload, sizeof out->authority);
    memcpy(out->secret, payload + sizeof out->authority, sizeof out->secret);
    explicit_bzero(payload, sizeof payload);
    rg_credentials_server(&out->address, out->server, sizeof out->server);
    return RG_OK;
}
