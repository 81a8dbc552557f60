/* page.h - the files that are answered as they are: the page, and the description of the API. Generated from the files beside this. */
#ifndef RG_SERVER_HTTP_PAGE_H
#define RG_SERVER_HTTP_PAGE_H

#include <stddef.h>

struct rg_page_part {
    const char *path, *type;
    const unsigned char *data;
    size_t size;
};

extern const struct rg_page_part rg_page_parts[];
extern const size_t rg_page_n_parts;

#endif
