/*
 * The life of MPI in this process: whether this library or the program starts it, at which thread level, with which ranks, and when it
 * ends.
 *
 * A process can start MPI only once, and not again after it has ended. So if this library started MPI, it ends MPI when the process exits,
 * and only if nothing is unfinished, because MPI_Finalize waits for the other ranks.
 */
#define _GNU_SOURCE
#include "net/mpi/mpi_module.h"

#include "base/log.h"
#include "net/mpi/family.h"
#include "net/mpi/library.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock; /* one thread starts MPI. No call that waits for other ranks is made under it, except MPI_Init_thread */
    _Atomic bool ours;    /* this library started MPI */
    /* Without the lock, since MPI_Init_thread may wait for other ranks, and a failure does not. */
    _Atomic bool unfinished; /* MPI keeps something for ever */
    _Atomic bool failed;     /* a communicator over MPI failed: other ranks may be dead, or may leave without MPI_Finalize */
    _Atomic int natives;     /* number of open natives */
    pid_t pid;
    int keyval;
    bool has_keyval;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

pthread_mutex_t mpi_issue = PTHREAD_MUTEX_INITIALIZER;
_Atomic int mpi_over;
void (*mpi_log)(const struct base_log *log, int level, const char *line);

static enum comm_result complain(const struct native_config *config, enum comm_result result, const char *text)
{
    if (config->error_text && config->error_text_bytes)
        snprintf(config->error_text, config->error_text_bytes, "%s", text);
    return result;
}

/* ------------------------------------------------------------------------------------------------------------ the end */
void mpi_keep(void)
{
    atomic_store(&process.unfinished, true);
}

void mpi_failed(void)
{
    atomic_store(&process.failed, true);
}

/* MPI_Finalize waits for the other ranks. So it is not called if something is still open, or after a failure. Runs when the process exits
 * (on_exit(3)). */
static void finalize_ours(int status, void *unused)
{
    (void)unused;
    bool unclean = process.natives || process.unfinished || process.failed;

    if (process.ours && process.pid == getpid() && !unclean && !mpi_is_over()) {
        atomic_store(&mpi_over, 1);
        mpi_end(status);
    }
}

/* MPI calls this when the program's MPI_Finalize begins. From then on this library must not call MPI. */
static int hear_finalize(MPI_Comm comm, int keyval, void *attribute, void *extra)
{
    (void)comm, (void)keyval, (void)attribute, (void)extra;
    atomic_store(&mpi_over, 1);
    mpi_await_callers();
    return MPI_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------------------ the beginning */
/* Open MPI 5 calls PMIx_Init only if nobody has, and does not learn this process's name otherwise. Then it ends the process. */
static bool must_be_before_pmix(void)
{
    char version[NATIVE_VERSION_BYTES];

    mpi_library_text(version, sizeof version);
    return strncmp(version, "Open MPI v5", 11) == 0;
}

static bool is_late_for_pmix(void)
{
    int (*initialized)(void) = NULL;
    void *at = mpi_library_symbol("PMIx_Initialized");

    memcpy(&initialized, &at, sizeof at);
    return initialized && must_be_before_pmix() && initialized();
}

/* The level that this library asks MPI for. */
static enum comm_result level_to_ask(const struct native_config *config, int *level)
{
    const char *asked = config->env->lookup(config->env, "COMM_MPI_THREADS");
    char text[384];

    *level = MPI_THREAD_MULTIPLE; /* costs the same as SERIALIZED with Open MPI 4.1 and MPICH 4.0 */
    if (asked && strcmp(asked, "serialized") == 0) {
        *level = MPI_THREAD_SERIALIZED;
    } else if (asked && strcmp(asked, "funneled") == 0) {
        *level = MPI_THREAD_FUNNELED;
    } else if (asked && *asked && strcmp(asked, "multiple") != 0) {
        snprintf(text, sizeof text, "COMM_MPI_THREADS=%s; expected funneled, serialized or multiple", asked);
        return complain(config, COMM_ERR_CONFIG, text);
    }
    return COMM_OK;
}

/* Whether a world with these options can be opened at this level of an MPI that runs, or that this library starts. */
static enum comm_result check_level(const struct native_config *config, bool runs, int level)
{
    const char *who = runs && !process.ours ? "by the program" : "by this library";
    char text[384];
    int main_thread = 1;

    if (runs)
        MPI_Is_thread_main(&main_thread);
    if (level < MPI_THREAD_SERIALIZED && !main_thread) {
        snprintf(text, sizeof text,
                 "MPI was started %s below MPI_THREAD_SERIALIZED, so only the thread that started it may open a world over it", who);
        return complain(config, COMM_ERR_STATE, text);
    }
    if (config->threads && level < MPI_THREAD_MULTIPLE) {
        snprintf(
            text, sizeof text,
            "progress=thread, but MPI %s started %s with a thread level below MPI_THREAD_MULTIPLE, so that no thread of this library may "
            "call it: MPI_Init_thread with MPI_THREAD_MULTIPLE, or progress=caller",
            runs ? "was" : "is", who);
        return complain(config, COMM_ERR_CONFIG, text);
    }
    return COMM_OK;
}

/* Whether MPI runs, or can be started. */
static enum comm_result look_at_mpi(const struct native_config *config, bool *runs, int *level)
{
    int initialized = 0, finalized = 0;

    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    *runs = initialized;
    if (finalized || mpi_is_over())
        return complain(config, COMM_ERR_STATE,
                        "MPI_Finalize was called in this process, and MPI cannot be started twice: open before that");
    if (!initialized && is_late_for_pmix())
        return complain(
            config, COMM_ERR_STATE,
            "Open MPI 5 cannot start after PMIx, by whose store ranks of this process have met: open a world over MPI first, or "
            "call MPI_Init_thread before");
    if (!initialized)
        return level_to_ask(config, level);
    MPI_Query_thread(level);
    return COMM_OK;
}

/* A rank that alone cannot open says so before the ranks meet: later the others may be in a call of MPI, which has no deadline. */
enum comm_result mpi_probe(const struct native_config *config, char version[NATIVE_VERSION_BYTES])
{
    enum comm_result r = mpi_library_open(config);
    int level = MPI_THREAD_MULTIPLE;
    struct mpi_caller caller;
    bool runs = false;

    if (r != COMM_OK)
        return r;
    mpi_library_text(version, NATIVE_VERSION_BYTES);
    mpi_call_begin(&caller);
    r = look_at_mpi(config, &runs, &level);
    r = r == COMM_OK ? check_level(config, runs, level) : r;
    mpi_call_end(&caller);
    return r;
}

/* level: what to ask for; receives what MPI gives. */
static enum comm_result start_mpi(const struct native_config *config, int *level)
{
    char text[384];
    int code = MPI_Init_thread(NULL, NULL, *level, level);

    if (code != MPI_SUCCESS) {
        snprintf(text, sizeof text, "MPI_Init_thread of %s said %d", MODULE_LIBRARY, code);
        return complain(config, COMM_ERR_BACKEND, text);
    }
    process.ours = true;
    /* Open MPI reports an error of a nonblocking collective to the handler of MPI_COMM_WORLD, which by default ends the job. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN); /* since MPI 4, of errors of no communicator (MPI 4.1, 9.3) */
    process.pid = getpid();
    on_exit(finalize_ours, NULL);
    return COMM_OK;
}

static enum comm_result find_mpi(const struct native_config *config, int *level)
{
    bool runs = false;
    enum comm_result r = look_at_mpi(config, &runs, level);

    if (r == COMM_OK && !runs)
        r = start_mpi(config, level);
    return r == COMM_OK ? check_level(config, true, *level) : r;
}

/* Without its own launcher, MPI would make each of N ranks a world of its own. So the opening fails if the numbers of ranks differ. Only a
 * program that gives the ranks itself may open a world of a part of MPI's ranks. */
static enum comm_result check_ranks(const struct native_config *config, const struct mpi_world *w)
{
    int size = 0;
    char text[640], library[NATIVE_VERSION_BYTES];

    mpi_enter(w);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    mpi_exit(w);
    if (size == config->ranks)
        return COMM_OK;
    mpi_library_text(library, sizeof library);
    if (strcmp(config->launcher, "program") == 0 && size > config->ranks)
        return COMM_OK;
    snprintf(
        text, sizeof text,
        "launcher %s says %d ranks, but %s in this process sees %d%s; start it with %s, or use the module of the MPI that %s belongs to",
        config->launcher, config->ranks, library, size, size == 1 ? ": it was not started by its own launcher" : "", MODULE_STARTER,
        config->launcher);
    return complain(config, COMM_ERR_CONFIG, text);
}

/* Assigns each rank its share of MPI's tags. On MPI_COMM_WORLD the program uses tags too, usually low ones, so this library takes the
 * highest. */
static void share_tags(struct mpi_world *w)
{
    static _Atomic uint64_t of_world;
    int *highest = NULL, found = 0, size = 1;

    MPI_Comm_size(w->parent, &size);
    MPI_Comm_get_attr(w->parent, MPI_TAG_UB, &highest, &found);
    int64_t tags = (found ? (int64_t)*highest : 32767) + 1, each = tags / size;
    w->tags_each = each > 64 ? 64 : (int)each;
    w->first_tag = w->base == MPI_COMM_NULL ? (int)(tags - (int64_t)size * w->tags_each) : 0;
    w->tags_taken = w->base == MPI_COMM_NULL ? &of_world : &w->own_tags;
}

enum { HAS_LARGE = 1, HAS_STANDING_LARGE = 2, HAS_STANDING_INT = 4, HAS_MEMORY = 8 };

/* All ranks have memory for it. */
static void meet_processes(struct mpi_world *w, struct mpi_process *all)
{
    struct mpi_process mine = mpi_process_here();

    if (MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, w->base) == MPI_SUCCESS)
        mpi_processes_note(&mine, all, w->ranks);
}

/* MPI may run other code on a rank with another CPU. So the ranks keep only the rules that hold on all of them. */
static void agree_on_rules(struct mpi_world *w)
{
    const struct mpi_fault *fault = mpi_faults_here();
    struct mpi_process *all = malloc((size_t)w->ranks * sizeof *all);

    mpi_enter(w);
    mpi_rules_here(w->rules, false, NULL);
    w->large = mpi_large_find();
    w->standing_large = fault->stands ? mpi_standing_large_find() : NULL;
    w->standing_int = fault->stands ? mpi_standing_int_find() : NULL;
    /* index 0 is not a type */
    w->rules[0] = (w->large ? HAS_LARGE : 0) | (w->standing_large ? HAS_STANDING_LARGE : 0) | (w->standing_int ? HAS_STANDING_INT : 0) |
                  (all ? HAS_MEMORY : 0);
    if (MPI_Allreduce(MPI_IN_PLACE, w->rules, MPI_TYPES, MPI_UINT32_T, MPI_BAND, w->base) != MPI_SUCCESS)
        memset(w->rules, 0, sizeof w->rules);
    mpi_rules_here(w->own, true, w->rules);
    if (MPI_Allreduce(MPI_IN_PLACE, w->own, MPI_TYPES, MPI_UINT32_T, MPI_BAND, w->base) != MPI_SUCCESS)
        memset(w->own, 0, sizeof w->own);
    if (w->rules[0] & HAS_MEMORY)
        meet_processes(w, all);
    mpi_exit(w);
    free(all);
    w->average[0] = mpi_reducer(COMM_F32, COMM_AVG);
    w->average[1] = mpi_reducer(COMM_F64, COMM_AVG);
    const uint32_t has = w->rules[0];
    w->large = has & HAS_LARGE ? w->large : NULL;
    w->standing_large = w->large && has & HAS_STANDING_LARGE ? w->standing_large : NULL;
    w->standing_int = !w->large && has & HAS_STANDING_INT ? w->standing_int : NULL;
    w->handle.flags |= w->standing_large || w->standing_int ? NATIVE_STANDS : 0;
    w->most = w->large ? SIZE_MAX / 2 : INT_MAX;
    w->most_bytes = fault->most_bytes;
    w->without = fault->without;
    w->apart = fault->apart;
    w->slow_standing = fault->slow_standing;
    w->dies_with_peers = mpi_dies_with_peers();
}

static void hear_of_end(const struct mpi_world *w)
{
    if (process.has_keyval)
        return;
    mpi_enter(w);
    process.has_keyval = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, hear_finalize, &process.keyval, NULL) == MPI_SUCCESS;
    if (process.has_keyval)
        MPI_Comm_set_attr(MPI_COMM_SELF, process.keyval, NULL);
    mpi_exit(w);
}

/* All ranks of the world call it when they have base. */
static void use_base(struct mpi_world *w)
{
    agree_on_rules(w);
    w->parent = w->base;
    w->parent_rank = w->rank;
    mpi_enter(w);
    share_tags(w);
    mpi_exit(w);
}

int mpi_make_base_of(struct mpi_world *w, const int *members, int tag, int tag_index)
{
    MPI_Comm made = MPI_COMM_NULL;

    mpi_enter(w);
    int code = mpi_create_group(w, members, w->ranks, tag, &made);
    mpi_exit(w);
    if (code != MPI_SUCCESS)
        return code;
    mpi_tag_give(w, tag_index);
    w->base = made;
    use_base(w);
    return MPI_SUCCESS;
}

int mpi_make_base(struct mpi_world *w, const struct mpi_card *cards, int tag_index)
{
    struct mpi_caller caller;

    for (int i = 0; i < w->ranks; i++)
        w->members[i] = cards[i].parent_rank;
    mpi_call_begin(&caller);
    int code = mpi_is_over() ? MPI_OVER : mpi_make_base_of(w, w->members, cards[0].tag, tag_index);
    mpi_call_end(&caller);
    return code;
}

enum comm_result mpi_start_process(const struct native_config *config, int *level)
{
    enum comm_result r = mpi_library_open(config);
    struct mpi_caller caller;

    if (r != COMM_OK)
        return r;
    pthread_mutex_lock(&process.lock);
    mpi_call_begin(&caller);
    r = find_mpi(config, level);
    mpi_call_end(&caller);
    pthread_mutex_unlock(&process.lock);
    return r;
}

static enum comm_result mpi_before_store(const struct native_config *config)
{
    enum comm_result r = mpi_library_open(config);
    int level;

    return r == COMM_OK && must_be_before_pmix() ? mpi_start_process(config, &level) : r;
}

static struct mpi_world *make_world(const struct native_config *config)
{
    struct mpi_world *w = calloc(1, sizeof *w);

    if (!w)
        return NULL;
    w->handle.class = &mpi_native_class;
    w->log = config->log;
    w->base = MPI_COMM_NULL;
    w->parent = MPI_COMM_WORLD;
    w->rank = config->rank;
    w->ranks = config->ranks;
    w->only = pthread_self();
    w->members = malloc((size_t)w->ranks * sizeof *w->members);
    if (w->members)
        return w;
    free(w);
    return NULL;
}

static void free_world(struct mpi_world *w)
{
    free(w->members);
    free(w);
}

static enum comm_result find_place(const struct native_config *config, struct mpi_world *w)
{
    enum comm_result r = find_mpi(config, &w->level);

    if (r != COMM_OK)
        return r;
    w->shared = w->level == MPI_THREAD_MULTIPLE;
    w->locks = w->level == MPI_THREAD_SERIALIZED;
    w->handle.flags |= w->shared ? 0 : NATIVE_CALLER;
    r = check_ranks(config, w);
    if (r != COMM_OK)
        return r;
    mpi_enter(w);
    MPI_Comm_rank(w->parent, &w->parent_rank);
    share_tags(w);
    mpi_exit(w);
    hear_of_end(w);
    mpi_survive_broken_pipes();
    return COMM_OK;
}

/* Calls nothing that waits for other ranks, except MPI_Init_thread. A rank that alone cannot open then leaves none behind in MPI: the ranks
 * exchange their cards next, with a deadline, and only then make base. Threads may open several worlds at once, in a different order on
 * each rank: MPI_Comm_split of MPI_COMM_WORLD would join the wrong ones, MPI_Comm_create_group has a tag for each. */
enum comm_result mpi_open(const struct native_config *config, struct native **native)
{
    enum comm_result r = mpi_library_open(config);
    struct mpi_world *w = r == COMM_OK ? make_world(config) : NULL;
    struct mpi_caller caller;

    if (!w)
        return r == COMM_OK ? COMM_ERR_MEMORY : r;
    pthread_mutex_lock(&process.lock);
    mpi_call_begin(&caller);
    r = find_place(config, w);
    mpi_call_end(&caller);
    pthread_mutex_unlock(&process.lock);
    if (r != COMM_OK) {
        free_world(w);
        return r;
    }
    atomic_fetch_add(&process.natives, 1);
    *native = &w->handle;
    return COMM_OK;
}

static void free_base(struct mpi_world *w)
{
    struct mpi_caller caller;

    mpi_call_begin(&caller);
    if (w->base != MPI_COMM_NULL && !mpi_is_over() && mpi_may_call(w)) {
        mpi_enter(w);
        MPI_Comm_free(&w->base);
        mpi_exit(w);
    }
    mpi_call_end(&caller);
}

void mpi_close(struct native *native)
{
    struct mpi_world *w = (struct mpi_world *)native;

    if (native->flags & NATIVE_GONE)
        mpi_failed();
    if (!atomic_load(&process.unfinished)) { /* otherwise channels that were kept still refer to it */
        free_base(w);
        free_world(w);
    }
    atomic_fetch_sub(&process.natives, 1); /* at last: the process may be about to end MPI */
}

const struct native_class mpi_native_class = {
    .name = "mpi",
    .probe = mpi_probe,
    .before_store = mpi_before_store,
    .open = mpi_open,
    .join = mpi_join,
    .joined = mpi_joined,
    .accept = mpi_accept,
    .algorithm = mpi_algorithm,
    .start = mpi_start,
    .forget = mpi_forget,
    .advance = mpi_advance,
    .leave = mpi_leave,
    .explain = mpi_explain,
    .close = mpi_close,
};
