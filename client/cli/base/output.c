/* output.c - see output.h. */
#include "client/cli/base/output.h"

#include "common/base/log.h"

#include <errno.h>
#include <string.h>

void rg_cli_json_add(json_t **list, json_t *one)
{
    if (json_array_append_new(*list, one) == 0)
        return;
    json_decref(*list);
    *list = NULL;
}

bool rg_cli_print_json(json_t *all)
{
    const bool good = all && json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0;
    if (good)
        putchar('\n');
    else
        rg_error("cannot write JSON");
    json_decref(all);
    return good;
}

bool rg_cli_write_file(const char *path, bool (*write)(const void *object, FILE *out), const void *object)
{
    FILE *out = fopen(path, "we");
    bool good = out && write(object, out);
    int error = errno;
    if (out && fclose(out) != 0 && good) {
        good = false;
        error = errno;
    }
    if (!good)
        rg_error("cannot write %s: %s", path, strerror(error));
    return good;
}

const char *rg_cli_bytes_text(uint64_t bytes, char *text, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < sizeof units / sizeof units[0]; unit++)
        value /= 1024;
    snprintf(text, size, unit && value < 100 ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return text;
}

int rg_cli_text_columns(const char *text)
{
    int columns = 0;
    for (; *text; text++)
        columns += (*text & 0xc0) != 0x80;
    return columns;
}
