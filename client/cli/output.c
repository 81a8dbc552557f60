/* output.c - see output.h. */
#include "client/cli/output.h"

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
