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

/* Until one of them is readable. The bell is taken back. */
void doze(int bell, int fd)
{
    struct pollfd fds[] = {{bell, POLLIN, 0}, {fd, POLLIN, 0}};
    poll(fds, fd < 0 ? 1 : 2, 1000);
    uint64_t rung;
    (void)!read(bell, &rung, sizeof rung);
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
    pending_.push_back(operation);
    if (!moving_)
        let_move();
    if (comm_test(operation->request) != COMM_PENDING)
        ring();
}

void Engine::settle(const World &world)
{
    std::vector<std::shared_ptr<Operation>> adopted;
    {
        std::lock_guard<std::mutex> hold(lock_);
        for (const auto &operation : pending_)
            if (operation->world.get() == &world)
                adopted.push_back(operation);
    }
    for (const auto &operation : adopted)
        if (comm_result result = comm_test(operation->request); result != COMM_PENDING)
            operation->settle(result);
    std::unique_lock<std::mutex> hold(lock_);
    none_ending_.wait(hold, [this] { return ending_ == 0; });
}

/* One of the threads takes the part of the one that moves. The lock is held. */
void Engine::let_move()
{
    if (stopping_)
        return;
    if (idle_)
        work_.notify_one();
    else
        threads_.emplace_back(&Engine::run, this);
}

void Engine::ring()
{
    uint64_t one = 1;
    (void)!write(bell_, &one, sizeof one);
}

void Engine::stop()
{
    std::vector<std::thread> ending;
    {
        std::lock_guard<std::mutex> hold(lock_);
        stopping_ = true;
        ending.swap(threads_);
        work_.notify_all();
        ring();
    }
    for (std::thread &thread : ending)
        thread.join();
}

/* At most one that has a future, since what it calls may wait for the others. */
void Engine::take_ended(std::vector<std::shared_ptr<Operation>> &ended)
{
    bool enough = false;
    auto running = [&](const std::shared_ptr<Operation> &o) {
        if (enough || (!o->settled() && comm_test(o->request) == COMM_PENDING))
            return true;
        enough = o->calls_others();
        return false;
    };
    auto first = std::stable_partition(pending_.begin(), pending_.end(), running);
    ended.assign(first, pending_.end());
    pending_.erase(first, pending_.end());
    ending_ += ended.size();
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

/*
 * An operation gets no future any more when it has been settled, so those that have one are known then. What is called by
 * them may wait for what is pending: another thread moves that.
 */
void Engine::end(std::vector<std::shared_ptr<Operation>> &ended, bool *mover)
{
    auto by_another = [](const std::shared_ptr<Operation> &o) { return !o->settle_quietly(comm_test(o->request)); };
    size_t taken = ended.size();
    ended.erase(std::remove_if(ended.begin(), ended.end(), by_another), ended.end());
    if (taken) {
        std::lock_guard<std::mutex> hold(lock_);
        ending_ -= taken;
        none_ending_.notify_all();
    }
    if (std::any_of(ended.begin(), ended.end(), [](const std::shared_ptr<Operation> &o) { return o->calls_others(); })) {
        std::lock_guard<std::mutex> hold(lock_);
        *mover = moving_ = false;
        if (!pending_.empty())
            let_move();
    }
    for (auto &operation : ended)
        operation->tell();
    ended.clear();
}

void Engine::run()
{
    pthread_setname_np(pthread_self(), "commstream");
    std::vector<std::shared_ptr<Operation>> ended;
    std::unique_lock<std::mutex> hold(lock_);
    while (!stopping_) {
        if (pending_.empty() || moving_) {
            idle_++;
            work_.wait(hold);
            idle_--;
            continue;
        }
        int fd;
        bool mover = moving_ = true;
        bool sleep = move(ended, &fd);
        hold.unlock();
        end(ended, &mover);
        if (sleep)
            doze(bell_, fd);
        hold.lock();
        if (mover)
            moving_ = false;
    }
}

} // namespace commstream
