/*
 * The medium store:pmix: the store of Open MPI's mpirun, of PRRTE and of SLURM with --mpi=pmix (PMIx Standard 4.1, chapters 5 and 6). The
 * library is loaded with dlopen, and only when a world meets by it; this file needs only its types.
 *
 * The process has one session. mpirun treats a process that ends without closing the session as crashed, and MPI cannot start after the
 * session was closed. Therefore the session is closed when the process exits.
 */
#define _GNU_SOURCE
#include "net/boot/meeting.h"

#include "base/format.h"

#include <string.h>

#ifdef COMM_HAVE_PMIX
#    define ABSENT false
#    include <dlfcn.h>
#    include <errno.h>
#    include <pmix.h>
#    include <pthread.h>
#    include <stdio.h>
#    include <stdlib.h>
#    include <time.h>
#    include <unistd.h>

/* One for the process. */
static struct {
    pthread_mutex_t lock;
    bool started;
    pid_t process; /* the process that began the session; a forked child has no session */
    pmix_proc_t self;
    __typeof__(PMIx_Init) *init;
    __typeof__(PMIx_Finalize) *finalize;
    __typeof__(PMIx_Put) *put;
    __typeof__(PMIx_Commit) *commit;
    __typeof__(PMIx_Get_nb) *get_nb;
    __typeof__(PMIx_Error_string) *error_string;
} pmix = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool load(char *why, size_t why_bytes)
{
    static const struct {
        const char *name;
        void *to;
    } wanted[] = {{"PMIx_Init", &pmix.init},     {"PMIx_Finalize", &pmix.finalize}, {"PMIx_Put", &pmix.put},
                  {"PMIx_Commit", &pmix.commit}, {"PMIx_Get_nb", &pmix.get_nb},     {"PMIx_Error_string", &pmix.error_string}};
    void *library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL); /* global, because its plug-ins look up its symbols */

    for (size_t i = 0; library && i < sizeof wanted / sizeof *wanted; i++) {
        void *found = dlsym(library, wanted[i].name);
        if (!found)
            library = NULL;
        memcpy(wanted[i].to, &found, sizeof found);
    }
    if (!library)
        base_format(why, why_bytes, "libpmix.so.2 cannot be used: %s", dlerror());
    return library != NULL;
}

static void end_session(void)
{
    if (pmix.started && pmix.process == getpid())
        pmix.finalize(NULL, 0);
}

static enum comm_result begin(char *why, size_t why_bytes)
{
    if (pmix.started)
        return COMM_OK;
    if (!getenv("PMIX_RANK") || !getenv("PMIX_NAMESPACE")) { /* without a launcher, the library would look for any server of this user */
        base_format(why, why_bytes, "PMIX_NAMESPACE is not set: no launcher that has PMIx started this rank; give COMM_ADDRESS=HOST:PORT");
        return COMM_ERR_CONFIG;
    }
    if (!load(why, why_bytes))
        return COMM_ERR_CONFIG;
    pmix_status_t status = pmix.init(&pmix.self, NULL, 0);
    if (status != PMIX_SUCCESS) {
        base_format(why, why_bytes, "PMIx_Init: %s", pmix.error_string(status));
        return COMM_ERR_SYSTEM;
    }
    pmix.started = true;
    pmix.process = getpid();
    atexit(end_session);
    return COMM_OK;
}

static void name_key(char key[PMIX_MAX_KEYLEN + 1], const char *world)
{
    base_format(key, PMIX_MAX_KEYLEN + 1, "commstream.%s", world);
}

static enum comm_result put(const char *world, const struct meeting *m, char *why, size_t why_bytes)
{
    char text[MEETING_BYTES + 1], key[PMIX_MAX_KEYLEN + 1];
    pmix_value_t value = {.type = PMIX_STRING, .data.string = text};

    text[meeting_format(m, text)] = 0;
    name_key(key, world);
    pmix_status_t status = pmix.put(PMIX_GLOBAL, key, &value);
    if (status == PMIX_SUCCESS)
        status = pmix.commit();
    crypto_wipe(text, sizeof text);
    if (status != PMIX_SUCCESS)
        base_format(why, why_bytes, "PMIx_Put: %s", pmix.error_string(status));
    return status == PMIX_SUCCESS ? COMM_OK : COMM_ERR_SYSTEM;
}

static enum comm_result pmix_write(const struct boot_config *config, const char *place, const struct meeting *m, char *why,
                                   size_t why_bytes)
{
    (void)config;
    pthread_mutex_lock(&pmix.lock);
    enum comm_result result = begin(why, why_bytes);
    if (result == COMM_OK)
        result = put(place, m, why, why_bytes);
    pthread_mutex_unlock(&pmix.lock);
    return result;
}

/* ------------------------------------------------------------------------------------------------------------ asking */
/* A request with a callback. The last of the requester and the callback frees it, because the requester may leave before the answer. */
struct question {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    pmix_status_t status;
    bool done, left;
    char text[MEETING_BYTES + 1];
};

static void drop(struct question *q)
{
    crypto_wipe(q->text, sizeof q->text);
    pthread_cond_destroy(&q->answered);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

/* Runs on a thread of PMIx. */
static void on_answer(pmix_status_t status, pmix_value_t *value, void *arg)
{
    struct question *q = arg;

    pthread_mutex_lock(&q->lock);
    q->status = status;
    if (status == PMIX_SUCCESS && value && value->type == PMIX_STRING && value->data.string)
        base_copy_text(q->text, sizeof q->text, value->data.string);
    q->done = true;
    pthread_cond_signal(&q->answered);
    bool last = q->left;
    pthread_mutex_unlock(&q->lock);
    if (last)
        drop(q);
}

static struct question *make_question(void)
{
    struct question *q = calloc(1, sizeof *q);
    pthread_condattr_t attributes;

    if (!q)
        return NULL;
    pthread_mutex_init(&q->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&q->answered, &attributes);
    pthread_condattr_destroy(&attributes);
    return q;
}

/* Waits until rank 0 has put the value, or until the deadline. */
static pmix_status_t await(struct question *q, const struct boot_config *config)
{
    int64_t left = config->deadline - config->env->now(config->env);
    struct timespec until;
    int late = left <= 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    left = left > 0 ? left + until.tv_nsec : until.tv_nsec;
    until.tv_sec += (time_t)(left / 1000000000);
    until.tv_nsec = (long)(left % 1000000000);
    pthread_mutex_lock(&q->lock);
    while (!q->done && !late)
        late = pthread_cond_timedwait(&q->answered, &q->lock, &until) == ETIMEDOUT;
    pmix_status_t status = q->done ? q->status : PMIX_ERR_TIMEOUT;
    pthread_mutex_unlock(&q->lock);
    return status;
}

static void leave(struct question *q)
{
    pthread_mutex_lock(&q->lock);
    q->left = true;
    bool last = q->done;
    pthread_mutex_unlock(&q->lock);
    if (last)
        drop(q);
}

static enum comm_result get(const struct boot_config *config, const char *world, struct meeting *m, char *why, size_t why_bytes)
{
    struct question *q = make_question();
    char key[PMIX_MAX_KEYLEN + 1];
    pmix_proc_t zero = pmix.self;
    enum comm_result result = COMM_OK;

    if (!q)
        return COMM_ERR_MEMORY;
    zero.rank = 0;
    name_key(key, world);
    pmix_status_t status = pmix.get_nb(&zero, key, NULL, 0, on_answer, q);
    if (status == PMIX_SUCCESS) {
        status = await(q, config);
    } else { /* the callback will not be called */
        q->done = true;
    }
    if (status == PMIX_ERR_TIMEOUT || status == PMIX_ERR_NOT_FOUND)
        result = COMM_ERR_TIMEOUT;
    else if (status != PMIX_SUCCESS)
        result = COMM_ERR_SYSTEM;
    else if (!meeting_parse(q->text, strlen(q->text), m))
        result = COMM_ERR_AUTH;
    if (result == COMM_ERR_AUTH)
        base_format(why, why_bytes, "what rank 0 has in the launcher's store is of another version");
    else if (result != COMM_OK)
        base_format(why, why_bytes, "PMIx_Get: %s", pmix.error_string(status));
    leave(q);
    return result;
}

static enum comm_result pmix_read(const struct boot_config *config, const char *place, struct meeting *m, char *why, size_t why_bytes)
{
    pthread_mutex_lock(&pmix.lock);
    enum comm_result result = begin(why, why_bytes);
    if (result == COMM_OK)
        result = get(config, place, m, why, why_bytes);
    pthread_mutex_unlock(&pmix.lock);
    return result;
}

#else
#    define ABSENT true
static enum comm_result absent(char *why, size_t why_bytes)
{
    base_format(why, why_bytes, "this library was built without PMIx (libpmix-dev); give COMM_ADDRESS=HOST:PORT of rank 0's host");
    return COMM_ERR_CONFIG;
}

static enum comm_result pmix_write(const struct boot_config *config, const char *place, const struct meeting *m, char *why,
                                   size_t why_bytes)
{
    (void)config, (void)place, (void)m;
    return absent(why, why_bytes);
}

static enum comm_result pmix_read(const struct boot_config *config, const char *place, struct meeting *m, char *why, size_t why_bytes)
{
    (void)config, (void)place, (void)m;
    return absent(why, why_bytes);
}
#endif

const struct meeting_medium meeting_pmix = {.prefix = "store:pmix",
                                            .noun = "the launcher's store, world ",
                                            .absent = ABSENT,
                                            .of_one_job = true,
                                            .write = pmix_write,
                                            .read = pmix_read};
