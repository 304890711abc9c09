/* Farewells: open worlds send a last word when this process ends by exit(), so that their peers know that it did not crash. There is one
 * list, since the process ends once. A forked child did not open the worlds and sends nothing. */
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

/* If atexit has no room, peers take the end of the process for a death, and that is all. */
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
