/*
 * What is said when this process ends by exit(): by worlds that are still open, so that their peers take it for what it is. One list for
 * the process, since it ends once; a forked child, which is not the process that opened them, says nothing.
 */
#include "net/posix/posix.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct env_farewell *first;
static pid_t owner; /* 0: nothing is registered yet */

static void say_all(void)
{
    if (getpid() != owner)
        return;
    pthread_mutex_lock(&lock);
    for (struct env_farewell *f = first; f; f = f->next)
        f->say(f);
    pthread_mutex_unlock(&lock);
}

/* Where there is no room for another handler the end is taken for a death: that is all. */
void posix_farewell_add(const struct comm_env *env, struct env_farewell *farewell)
{
    (void)env;
    pthread_mutex_lock(&lock);
    if (!owner && atexit(say_all) == 0)
        owner = getpid();
    farewell->next = first;
    first = farewell;
    pthread_mutex_unlock(&lock);
}

void posix_farewell_drop(const struct comm_env *env, struct env_farewell *farewell)
{
    struct env_farewell **at = &first;

    (void)env;
    pthread_mutex_lock(&lock);
    while (*at && *at != farewell)
        at = &(*at)->next;
    if (*at)
        *at = farewell->next;
    pthread_mutex_unlock(&lock);
}
