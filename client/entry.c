#include "client/entry.h"

#include "client/api.h"

__attribute__((visibility("default"))) void *const *rg_client_entry(size_t count);

void *const *rg_client_entry(size_t count)
{
    return count == RG_API_COUNT ? rg_client_api : NULL;
}
