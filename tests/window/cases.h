/* Cases of windows.c, each the work of one rank, and their helpers. */
#ifndef TESTS_WINDOW_CASES_H
#define TESTS_WINDOW_CASES_H

#include "conform/rig.h"
#include "now.h"

#include <stdlib.h>
#include <string.h>

typedef void window_case(struct comm_communicator *c, int32_t rank, int32_t ranks);
/* calls.c */
window_case window_all_populated, window_leader_populated, window_puts_and_gets, window_sums, window_tickets, window_ring, window_rings;
/* rules.c; the last one is for ranks that share no memory */
window_case window_held, window_behind_work, window_swap_around, window_swap_behind, window_own_memory, window_heap_memory, window_crowds,
    window_refusals, window_closed_first, window_left_alone;

static inline void says(struct comm_communicator *c, const char *text)
{
    struct comm_error error = {.size = sizeof error};
    MUST(comm_error_detail(c, &error));
    if (!strstr(error.text, text))
        rig_die(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", error.text, text);
}

static inline void done(struct comm_request req)
{
    MUST(comm_wait(req, RIG_PATIENCE));
}

static inline void fence(struct comm_window *w)
{
    struct comm_request req;
    MUST(comm_window_fence(w, &req));
    done(req);
}

static inline void barrier(struct comm_communicator *c)
{
    struct comm_request req;
    MUST(comm_barrier(c, &req));
    done(req);
}

static inline void *part_of(struct comm_window *w, int32_t rank, size_t want)
{
    void *at = NULL;
    size_t bytes = 0;
    MUST(comm_window_pointer(w, rank, &at, &bytes));
    EQUAL(bytes, want);
    return at;
}

/* Reads a part: through its pointer, or in a copy (window_copy). */
extern _Thread_local void *window_copy; /* valid until the next call of look() */
static inline const void *look(struct comm_window *w, int32_t rank, size_t want)
{
    struct comm_request req;
    void *at = NULL;
    size_t bytes = 0;
    enum comm_result r = comm_window_pointer(w, rank, &at, &bytes);
    if (r == COMM_OK) {
        EQUAL(bytes, want);
        return at;
    }
    EQUAL(r, COMM_ERR_UNSUPPORTED);
    free(window_copy);
    window_copy = at = malloc(want);
    MUST(comm_get(w, at, want, COMM_BYTE, rank, 0, &req));
    done(req);
    return at;
}

/* Stores into another rank's part: directly, or through the owner. */
static inline void poke(struct comm_window *w, int32_t rank, size_t offset, const void *from, size_t bytes)
{
    struct comm_request req;
    void *at = NULL;
    if (comm_window_pointer(w, rank, &at, NULL) == COMM_OK) {
        memcpy((char *)at + offset, from, bytes);
        return;
    }
    MUST(comm_put(w, from, bytes, COMM_BYTE, rank, offset, &req));
    done(req);
}

static inline struct comm_window *make(struct comm_communicator *c, size_t bytes, uint32_t signals)
{
    struct comm_window *w = NULL;
    MUST(NOW(comm_window_create, c, bytes, &(struct comm_window_options){.size = sizeof(struct comm_window_options), .signals = signals},
             &w));
    return w;
}

#endif
