/* entry.c - see entry.h. */
#include "client/entry.h"

#include "client/core/api_table.h"
#include "client/modules.h"
#include "client/profile/profile.h"

__attribute__((visibility("default"))) void *const *rg_client_entry(size_t count);

void *const *rg_client_entry(size_t count)
{
    rg_modules_register();
    rg_profile_start();
    return count == RG_API_COUNT ? rg_api_table : NULL;
}
