/* folder.h - a state folder of the test's own, which goes with the test, and what the tests do with its files. */
#ifndef TESTS_SERVER_IDENTITY_FOLDER_H
#define TESTS_SERVER_IDENTITY_FOLDER_H

#include "server/identity/identity.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define NOW 1800000000ll /* January 2027 */
#define DAY 86400ll

/** A new empty folder below $TMPDIR, with "/state" (which is not there yet) appended; removed when the process ends. */
const char *test_folder(void);
/** PATH below it. Static storage, four of them. */
const char *below(const char *name);

void write_file(const char *name, const char *text, mode_t mode);
/** Its text, to be freed; NULL: there is none. */
char *read_file(const char *name);
mode_t mode_of(const char *name);
size_t count_files(const char *name);

/** Output of a shell command that must succeed; static storage. */
const char *output_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** Opens the store at that time; must succeed. */
struct rg_identity_store *open_at(int64_t now);
/** Must fail, with these words in the reason. */
void open_fails(const struct rg_identity_settings *settings, const char *words);

/** A token as remote-gpud token makes it. */
void make_token(const char *user, uint32_t uses, int64_t expires, const struct rg_identity_limits *limits,
                uint8_t secret[RG_IDENTITY_SECRET]);
/** A public key of P-256. */
void make_point(uint8_t point[RG_IDENTITY_PUBLIC_KEY]);

#endif
