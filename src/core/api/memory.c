/* Memory that the library can transfer with fewer copies: checks the arguments. */
#include "api/api.h"

enum comm_result comm_mem_alloc(struct comm_communicator *c, size_t bytes, void **ptr)
{
    enum comm_result r = engine_alive(c);
    void *at = NULL;

    if (r != COMM_OK)
        return r;
    if (!ptr)
        return engine_decline(c, COMM_ERR_ARGUMENT, NULL, "comm_mem_alloc: ptr=0; expected room for the address");
    if (bytes == 0 || bytes > SIZE_MAX / 8)
        return engine_decline(c, COMM_ERR_ARGUMENT, NULL, "comm_mem_alloc: bytes=%zu; expected 1 or more, within the address space", bytes);
    r = engine_memory_take(c, bytes, &at);
    if (r == COMM_ERR_MEMORY)
        return engine_decline(c, r, NULL, "comm_mem_alloc: bytes=%zu; expected no more than there is: %s", bytes,
                              "on shm COMM_SHM_SEGMENT_BYTES bounds it too");
    if (r == COMM_OK)
        *ptr = at;
    return r;
}

enum comm_result comm_mem_alloc_symmetric(struct comm_communicator *c, size_t bytes, void **ptr, struct comm_request *req)
{
    struct api_check check;

    if (api_begin(&check, c, COLLECTIVE_MEMORY, req) != COMM_OK)
        return check.result;
    api_need(&check, ptr != NULL, "ptr", 0, "room for the address");
    api_need(&check, bytes != 0, "bytes", 0, "1 or more");
    api_need_fit(&check, bytes <= SIZE_MAX / 8, "bytes", bytes, "a length");
    return check.result == COMM_OK ? engine_memory_symmetric(c, bytes, ptr, req) : check.result;
}

void comm_mem_free(struct comm_communicator *c, void *ptr)
{
    if (ptr && engine_alive(c) == COMM_OK && engine_memory_give(c, ptr, true) == COMM_ERR_STATE)
        (void)engine_decline(c, COMM_ERR_ARGUMENT, NULL, "comm_mem_free: ptr=%p; expected an address of comm_mem_alloc, once", ptr);
}

enum comm_result comm_mem_register(struct comm_communicator *c, void *ptr, size_t bytes)
{
    enum comm_result r = engine_alive(c);

    if (r != COMM_OK)
        return r;
    if (!ptr || bytes == 0 || bytes > UINTPTR_MAX - (uintptr_t)ptr)
        return engine_decline(c, COMM_ERR_ARGUMENT, NULL, "comm_mem_register: ptr=%p bytes=%zu; expected memory of 1 byte or more", ptr,
                              bytes);
    r = engine_memory_register(c, ptr, bytes);
    if (r == COMM_ERR_STATE)
        return engine_decline(c, r, NULL, "comm_mem_register: ptr=%p; expected memory that is not registered yet", ptr);
    return r;
}

void comm_mem_unregister(struct comm_communicator *c, void *ptr)
{
    if (ptr && engine_alive(c) == COMM_OK && engine_memory_give(c, ptr, false) == COMM_ERR_STATE)
        (void)engine_decline(c, COMM_ERR_ARGUMENT, NULL, "comm_mem_unregister: ptr=%p; expected an address of comm_mem_register", ptr);
}
