/*
 * records.c - the record layer: known answers of RFC 8448, every suite and size, and every way to change what was sent.
 */
#include "tests/transport/support.h"

#include "transport/tls/record.h"

#include <string.h>

static const uint16_t suites[] = {0x1301, 0x1302, 0x1303};

static void make_secret(uint8_t secret[RG_TLS_SECRET_SIZE], uint8_t first)
{
    for (int i = 0; i < RG_TLS_SECRET_SIZE; i++)
        secret[i] = (uint8_t)(first + i * 7);
}

struct ends {
    struct rg_tls_direction out, in;
};

static struct ends make_ends(uint16_t suite, uint64_t number)
{
    struct ends e;
    uint8_t secret[RG_TLS_SECRET_SIZE];
    make_secret(secret, (uint8_t)suite);
    CHECK_OK(rg_tls_direction_init(&e.out, suite, true, secret, number));
    CHECK_OK(rg_tls_direction_init(&e.in, suite, false, secret, number));
    return e;
}

static void end_ends(struct ends *e)
{
    rg_tls_direction_fini(&e->out);
    rg_tls_direction_fini(&e->in);
}

static size_t seal(struct ends *e, enum rg_tls_content type, const void *data, size_t size, uint8_t *record)
{
    const struct iovec part = {(void *)(uintptr_t)data, size};
    size_t record_size;
    CHECK_OK(rg_tls_seal(&e->out, type, &part, 1, record, &record_size));
    CHECK(record_size == size + RG_TLS_OVERHEAD);
    return record_size;
}

/* RFC 8448, 3: the client's application data, and its secret after the handshake. */
static void test_known_answer(void)
{
    static const uint8_t secret[RG_TLS_SECRET_SIZE] = {
        0x9e, 0x40, 0x64, 0x6c, 0xe7, 0x9a, 0x7f, 0x9d, 0xc0, 0x5a, 0xf8, 0x88, 0x9b, 0xce, 0x65, 0x52,
        0x87, 0x5a, 0xfa, 0x0b, 0x06, 0xdf, 0x00, 0x87, 0xf7, 0x92, 0xeb, 0xb7, 0xc1, 0x75, 0x04, 0xa5};
    static const uint8_t key_expected[16] = {0x17, 0x42, 0x2d, 0xda, 0x59, 0x6e, 0xd5, 0xd9,
                                             0xac, 0xd8, 0x90, 0xe3, 0xc6, 0x3f, 0x50, 0x51};
    static const uint8_t iv_expected[12] = {0x5b, 0x78, 0x92, 0x3d, 0xee, 0x08,
                                            0x57, 0x90, 0x33, 0xe5, 0x23, 0xd9};
    static const uint8_t record_expected[72] = {
        0x17, 0x03, 0x03, 0x00, 0x43, 0xa2, 0x3f, 0x70, 0x54, 0xb6, 0x2c, 0x94, 0xd0, 0xaf, 0xfa,
        0xfe, 0x82, 0x28, 0xba, 0x55, 0xcb, 0xef, 0xac, 0xea, 0x42, 0xf9, 0x14, 0xaa, 0x66, 0xbc,
        0xab, 0x3f, 0x2b, 0x98, 0x19, 0xa8, 0xa5, 0xb4, 0x6b, 0x39, 0x5b, 0xd5, 0x4a, 0x9a, 0x20,
        0x44, 0x1e, 0x2b, 0x62, 0x97, 0x4e, 0x1f, 0x5a, 0x62, 0x92, 0xa2, 0x97, 0x70, 0x14, 0xbd,
        0x1e, 0x3d, 0xea, 0xe6, 0x3a, 0xee, 0xbb, 0x21, 0x69, 0x49, 0x15, 0xe4};
    uint8_t key[RG_TLS_KEY_MOST], iv[RG_TLS_IV], text[50], record[72];
    CHECK_OK(rg_tls_derive_keys(rg_tls_suite_find(0x1301), secret, key, iv));
    CHECK(memcmp(key, key_expected, sizeof key_expected) == 0);
    CHECK(memcmp(iv, iv_expected, sizeof iv_expected) == 0);
    for (unsigned i = 0; i < sizeof text; i++)
        text[i] = (uint8_t)i;
    struct ends e;
    CHECK_OK(rg_tls_direction_init(&e.out, 0x1301, true, secret, 0));
    CHECK_OK(rg_tls_direction_init(&e.in, 0x1301, false, secret, 0));
    CHECK(seal(&e, RG_TLS_DATA, text, sizeof text, record) == sizeof record_expected);
    CHECK(memcmp(record, record_expected, sizeof record_expected) == 0);
    end_ends(&e);
}

static void test_sizes(void)
{
    static const size_t sizes[] = {1, 2, 15, 16, 17, 63, 64, 1000, 4096, 16383, 16384};
    static uint8_t data[RG_TLS_PLAIN], record[RG_TLS_RECORD], got[RG_TLS_PLAIN];
    pattern_fill(data, sizeof data, 3);
    for (size_t s = 0; s < sizeof suites / sizeof suites[0]; s++) {
        struct ends e = make_ends(suites[s], 1ull << 40);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            const size_t half = sizes[i] / 2;
            const struct iovec parts[3] = {{data, half}, {data, 0}, {data + half, sizes[i] - half}};
            size_t size, content;
            uint8_t type;
            CHECK_OK(rg_tls_seal(&e.out, RG_TLS_DATA, parts, 3, record, &size));
            CHECK_OK(rg_tls_header(record, &content));
            CHECK(content == sizes[i] && size == content + RG_TLS_OVERHEAD);
            CHECK_OK(rg_tls_open(&e.in, record, content, got, &type));
            CHECK(type == RG_TLS_DATA && memcmp(got, data, content) == 0);
        }
        end_ends(&e);
    }
}

static void expect_refused(struct ends *e, const uint8_t *record, size_t content)
{
    uint8_t got[256], type;
    memset(got, 0xee, sizeof got);
    CHECK_STATUS(rg_tls_open(&e->in, record, content, got, &type), RG_ERR_PROTOCOL);
    for (size_t i = 0; i < content; i++)
        CHECK(got[i] == 0); /* nothing unauthenticated stays */
    e->in.number--;         /* the connection would end here */
}

static void test_changed(void)
{
    uint8_t data[100], first[200], second[200], got[200], type;
    pattern_fill(data, sizeof data, 9);
    for (size_t s = 0; s < sizeof suites / sizeof suites[0]; s++) {
        struct ends e = make_ends(suites[s], 0);
        const size_t size = seal(&e, RG_TLS_DATA, data, sizeof data, first);
        seal(&e, RG_TLS_DATA, data, sizeof data, second);
        for (size_t i = 0; i < size; i++) { /* one bit anywhere, the header included */
            first[i] ^= (uint8_t)(1u << (i % 8));
            expect_refused(&e, first, sizeof data);
            first[i] ^= (uint8_t)(1u << (i % 8));
        }
        expect_refused(&e, second, sizeof data);    /* out of order, or one left out */
        expect_refused(&e, first, sizeof data - 1); /* shorter than it is */
        CHECK_OK(rg_tls_open(&e.in, first, sizeof data, got, &type));
        expect_refused(&e, first, sizeof data); /* once more */
        CHECK_OK(rg_tls_open(&e.in, second, sizeof data, got, &type));
        CHECK(memcmp(got, data, sizeof data) == 0);
        end_ends(&e);
    }
}

static void test_headers(void)
{
    size_t content;
    static const uint8_t bad[][RG_TLS_HEADER] = {
        {22, 3, 3, 0, 40},      {21, 3, 3, 0, 19},    {20, 3, 3, 0, 1}, /* not encrypted */
        {23, 3, 1, 0, 40},      {23, 2, 3, 0, 40},                      /* no such version */
        {23, 3, 3, 0, 0},       {23, 3, 3, 0, 17},                      /* no content */
        {23, 3, 3, 0x40, 0x12}, {23, 3, 3, 255, 255},                   /* more than a record carries */
        {'R', 'G', 'P', '1', 0}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_STATUS(rg_tls_header(bad[i], &content), RG_ERR_PROTOCOL);
    CHECK_OK(rg_tls_header((const uint8_t[]){23, 3, 3, 0x40, 0x11}, &content));
    CHECK(content == RG_TLS_PLAIN);
}

static void test_update(void)
{
    uint8_t data[] = "after the new keys", record[64], got[64], type, before[RG_TLS_SECRET_SIZE];
    for (size_t s = 0; s < sizeof suites / sizeof suites[0]; s++) {
        struct ends e = make_ends(suites[s], 7);
        memcpy(before, e.out.secret, sizeof before);
        CHECK_OK(rg_tls_direction_update(&e.out));
        CHECK(e.out.number == 0 && memcmp(before, e.out.secret, e.out.suite->secret_size) != 0);
        seal(&e, RG_TLS_DATA, data, sizeof data, record);
        expect_refused(&e, record, sizeof data); /* with the old keys */
        CHECK_OK(rg_tls_direction_update(&e.in));
        CHECK_OK(rg_tls_open(&e.in, record, sizeof data, got, &type));
        CHECK(memcmp(got, data, sizeof data) == 0);
        end_ends(&e);
    }
}

int main(void)
{
    struct rg_tls_direction none;
    const uint8_t secret[RG_TLS_SECRET_SIZE] = {0};
    CHECK_STATUS(rg_tls_direction_init(&none, 0x1304, true, secret, 0), RG_ERR_INVALID);
    test_known_answer();
    test_sizes();
    test_changed();
    test_headers();
    test_update();
    return 0;
}
