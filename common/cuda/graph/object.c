/*
 * object.c - handles of graphs, nodes, executable graphs and user objects: which addresses are alive, and of
 * what kind. One lock guards them and all that they name.
 */
#include "common/cuda/graph/graph.h"

pthread_mutex_t rg_graph_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rg_hash_table living;

void rg_graph_register(struct rg_graph_object *object, enum rg_graph_kind kind)
{
    object->kind = kind;
    rg_hash_table_add(&living, &object->link, (uintptr_t)object);
}

void *rg_graph_find(const void *handle, enum rg_graph_kind kind)
{
    struct rg_graph_object *object =
        (struct rg_graph_object *)rg_hash_table_first(&living, (uintptr_t)handle);
    return object && object->kind == kind ? object : NULL;
}

void rg_graph_unregister(struct rg_graph_object *object)
{
    rg_hash_table_remove(&living, &object->link);
}

uint64_t rg_graph_next_id(void)
{
    static uint64_t next = 1;
    return next++;
}
