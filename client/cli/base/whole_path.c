/* whole_path.c - see whole_path.h. */
#include "client/cli/base/whole_path.h"

#include "common/base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool rg_cli_whole_path(const char *option, const char *name, char path[PATH_MAX])
{
    const size_t size = strlen(name) + 1; /* with the slash before it, or its NUL */
    if (size >= PATH_MAX) {
        rg_error("%s: the name is too long", option);
        return false;
    }
    if (*name == '/') {
        memcpy(path, name, size);
        return true;
    }
    if (getcwd(path, PATH_MAX - size)) {
        sprintf(path + strlen(path), "/%s", name);
        return true;
    }
    if (errno == ERANGE)
        rg_error("%s: the name is too long", option);
    else
        rg_error(
            "%s %s: the current folder has no path (%s); start this in another one, or say the whole path",
            option, name, strerror(errno));
    return false;
}
