/* The last call of the short path, issued again with other buffers (repeat.c). Private to this room. */
#ifndef NATIVE_REPEAT_H
#define NATIVE_REPEAT_H

#include "comm/state.h"

/* Keeps a call that the library was just asked about (library_work.form), with its counts. */
void repeat_keep(struct comm_state *b, const struct engine_call *call);
/* The communicator ends. */
void repeat_forget(struct comm_state *b);
/* As repeat of struct collective_library. */
bool native_repeat(struct comm_state *b, const void *in, void *out, size_t n, uint64_t what, uint64_t where, const size_t *counts,
                   const size_t *displs, struct comm_request *req);

#endif
