/* open: a world that is being opened. Private to the files that open it: open.c (the steps), open_options.c (the requested options),
 * open_terms.c (terms that all ranks must share), open_library.c (MPI, NCCL) and open_tell.c (what was chosen, and why). */
#ifndef WORLD_OPEN_H
#define WORLD_OPEN_H

#include "inspect/inspect.h"
#include "comm/state.h"

enum { OPEN_TEXT_BYTES = 1024 };

/* The contents of a comm_id. */
struct identity {
    unsigned char job[32], secret[32];
    char address[64]; /* where rank 0 listens; empty: all ranks are on one host */
};
_Static_assert(sizeof(struct identity) == sizeof(struct comm_id), "an identity fills a comm_id");

bool identity_read(const struct comm_id *from, struct identity *id); /* false: it has no secret, so nobody made it */
bool identity_is_blank(const void *secret, size_t bytes);            /* all bytes are 0 */
void identity_wipe(struct identity *id);                             /* clears its secret */

struct opening {
    const struct comm_env *env;
    struct comm_config config;
    struct base_options options;
    struct base_log log;
    struct team_launch launch;
    const struct wire_backend *backend;
    struct engine *engine;
    struct world *world;
    struct wire_boot *boot;
    bool comes;                 /* this rank has come to where the ranks meet */
    struct identity identity;   /* from config.id */
    const char *address, *met;  /* HOST:PORT of rank 0, and its source; NULL: not given */
    const char *const *devices; /* from comm_open_local */
    int64_t deadline, library_deadline;
    uint32_t check;          /* CHECK_* */
    int32_t neighbours;      /* ranks of this world on this machine, including this one */
    enum comm_result probed; /* result of this rank's probe of the backend's native */
    bool without;            /* some rank lacks the native, and nccl_fallback has all do without it */
    char version[NATIVE_VERSION_BYTES];
    char text[OPEN_TEXT_BYTES];
};

/* open_options.c */
/* Copies as much of it as this library knows. NULL, or without a size: nothing. Not OK: text has the reason. */
enum comm_result open_copy_config(struct comm_config *config, const struct comm_config *given, char *text, size_t text_bytes);
enum comm_result open_begin(struct opening *o, const struct comm_config *given);
/* logs why the world does not open; returns the same result */
enum comm_result open_complain(struct opening *o, enum comm_result result);

/* tuning options of the environment override the program */
bool open_by_environment(const struct opening *o, const char *key);
enum comm_result open_gather(struct opening *o, const void *in, size_t bytes, void *out);
bool open_several_hosts(const struct opening *o);     /* as far as this rank knows */
enum comm_result open_count_local(struct opening *o); /* ranks that meet by the program's exchange learn there who shares their host */
enum comm_result open_terms(struct opening *o, struct world *w);
void open_tell(const struct opening *o);
void open_tell_misspelt(const struct opening *o);

/* open_library.c */
enum comm_result open_probe_library(struct opening *o); /* does this rank have it? */
enum comm_result open_before_store(struct opening *o);
enum comm_result open_library(struct opening *o, struct world *w);
/* Waits until it has connected the ranks, of which `here` are in this process. */
enum comm_result open_await_library(struct opening *o, struct comm_state *const *states, int32_t here);
/* Rank 0 logs why device buffers are staged: what rank `rank` lacks. */
void open_say_staged(const struct opening *o, int32_t rank, const char *why);

#endif
