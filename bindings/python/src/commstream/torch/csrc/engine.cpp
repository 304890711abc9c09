#include "engine.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <c10/util/Exception.h>

#include "operation.hpp"

namespace commstream
{

namespace
{

/* The C library joins 64 worlds to an engine. */
constexpr size_t worlds_per_engine = 60;

std::mutex engines_lock;
std::vector<std::shared_ptr<Engine>> &engines()
{
    static auto *all = new std::vector<std::shared_ptr<Engine>>;
    return *all;
}

} // namespace

std::shared_ptr<Engine> Engine::with_room()
{
    std::lock_guard<std::mutex> hold(engines_lock);
    for (const auto &engine : engines()) {
        std::lock_guard<std::mutex> inner(engine->lock_);
        if (engine->members_.size() < worlds_per_engine)
            return engine;
    }
    engines().push_back(std::make_shared<Engine>());
    return engines().back();
}

void Engine::stop_all()
{
    std::lock_guard<std::mutex> hold(engines_lock);
    for (const auto &engine : engines())
        engine->stop();
}

Engine::Engine() : bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))
{
    TORCH_CHECK(bell_ >= 0, "commstream: eventfd: ", strerror(errno));
}

comm_communicator *Engine::member()
{
    std::lock_guard<std::mutex> hold(lock_);
    return members_.empty() ? nullptr : members_.front();
}

void Engine::enlist(comm_communicator *c)
{
    std::lock_guard<std::mutex> hold(lock_);
    members_.push_back(c);
}

/* Afterwards the thread makes no call on c. */
void Engine::leave(comm_communicator *c)
{
    std::lock_guard<std::mutex> hold(lock_);
    members_.erase(std::remove(members_.begin(), members_.end(), c), members_.end());
    ring();
}

/* What ends after this call rings the engine's descriptor while the thread sleeps on it; what has ended already would not. */
void Engine::adopt(const std::shared_ptr<Operation> &operation)
{
    std::lock_guard<std::mutex> hold(lock_);
    if (stopping_) { /* Nobody will see its end: what it uses stays. */
        new std::shared_ptr<Operation>(operation);
        return;
    }
    if (!thread_.joinable())
        thread_ = std::thread(&Engine::run, this);
    bool idle = pending_.empty();
    pending_.push_back(operation);
    if (idle)
        work_.notify_one();
    if (comm_test(operation->request) != COMM_PENDING)
        ring();
}

void Engine::ring()
{
    uint64_t one = 1;
    (void)!write(bell_, &one, sizeof one);
}

void Engine::stop()
{
    std::thread ending;
    {
        std::lock_guard<std::mutex> hold(lock_);
        stopping_ = true;
        ending.swap(thread_);
        work_.notify_one();
        ring();
    }
    if (ending.joinable())
        ending.join();
}

void Engine::take_ended(std::vector<std::shared_ptr<Operation>> &ended)
{
    auto running = [](const std::shared_ptr<Operation> &o) { return !o->settled() && comm_test(o->request) == COMM_PENDING; };
    auto first = std::stable_partition(pending_.begin(), pending_.end(), running);
    ended.assign(first, pending_.end());
    pending_.erase(first, pending_.end());
}

/* Moves what can be moved. True: nothing more can be done before the descriptor becomes readable. */
bool Engine::move(std::vector<std::shared_ptr<Operation>> &ended, int *fd)
{
    comm_communicator *any = members_.empty() ? nullptr : members_.front();
    *fd = -1;
    if (any)
        for (int turn = 0; turn < 64 && comm_progress(any) == COMM_PENDING; turn++)
            continue;
    take_ended(ended);
    if (!ended.empty() || !any)
        return ended.empty();
    if (comm_fd(any, fd) != COMM_OK || comm_arm(any) != COMM_OK)
        return false;
    take_ended(ended);
    return ended.empty();
}

void Engine::run()
{
    pthread_setname_np(pthread_self(), "commstream");
    std::vector<std::shared_ptr<Operation>> ended;
    std::unique_lock<std::mutex> hold(lock_);
    while (!stopping_) {
        if (pending_.empty()) {
            work_.wait(hold);
            continue;
        }
        int fd;
        bool sleep = move(ended, &fd);
        hold.unlock();
        for (auto &operation : ended)
            operation->settle(comm_test(operation->request));
        ended.clear();
        if (sleep) {
            struct pollfd fds[] = {{bell_, POLLIN, 0}, {fd, POLLIN, 0}};
            poll(fds, fd < 0 ? 1 : 2, 1000);
            uint64_t rung;
            (void)!read(bell_, &rung, sizeof rung);
        }
        hold.lock();
    }
}

} // namespace commstream
