/*
 * The program's own MPI_Finalize while a world over MPI is open. From its beginning on this library makes no call of MPI, and the calls
 * that other threads have begun (a progress thread's, the monitor's) must end before MPI does. So MPI_Finalize waits for them, with a
 * bound. In MPICH 4.0 that may be too late: a thread that was inside when MPI_Finalize began leaves MPI's lock locked, and MPI ends the
 * process.
 *
 * A wire's calls are made under its lock. A channel's are made under its communicator's, which this module does not know, so it notes that
 * it is inside one. A fence for each of them would cost a short collective more than the rest, so the one thread that asks pays for all.
 * Opening, making an MPI_Comm, closing, and asking for the text of an error are rare. They are on the list of callers only meanwhile.
 */
#define _GNU_SOURCE
#include "net/mpi/mpi_module.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { AWAIT_S = 5 };
#define LOOK_NS 1000000
#define STORES_NS 20000000 /* how long a store of another CPU may stay unseen, where the kernel has no barrier for all of them */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mpi_caller *callers;

void mpi_caller_add(struct mpi_caller *caller)
{
    pthread_mutex_lock(&lock);
    caller->next = callers;
    callers = caller;
    pthread_mutex_unlock(&lock);
}

void mpi_caller_remove(struct mpi_caller *caller)
{
    pthread_mutex_lock(&lock);
    for (struct mpi_caller **at = &callers; *at; at = &(*at)->next)
        if (*at == caller) {
            *at = caller->next;
            break;
        }
    pthread_mutex_unlock(&lock);
}

void mpi_call_begin(struct mpi_caller *caller)
{
    *caller = (struct mpi_caller){.inside = true};
    mpi_caller_add(caller);
}

void mpi_call_end(struct mpi_caller *caller)
{
    atomic_store_explicit(&caller->inside, false, memory_order_release); /* before the lock, which MPI_Finalize may hold meanwhile */
    mpi_caller_remove(caller);
}

static void nap(long ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static bool is_before(const struct timespec *end)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec < end->tv_sec;
}

static void await(struct mpi_caller *caller, const struct timespec *end)
{
    if (caller->lock) {
        if (pthread_mutex_timedlock(caller->lock, end) == 0)
            pthread_mutex_unlock(caller->lock);
        return;
    }
    while (atomic_load_explicit(&caller->inside, memory_order_acquire) && is_before(end))
        nap(LOOK_NS);
}

void mpi_await_callers(void)
{
    struct timespec end;

    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += AWAIT_S;
    pthread_mutex_lock(&lock);
    if (callers && syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0))
        nap(STORES_NS);
    for (struct mpi_caller *caller = callers; caller; caller = caller->next)
        await(caller, &end);
    pthread_mutex_unlock(&lock);
}
