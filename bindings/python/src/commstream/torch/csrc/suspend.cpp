/*
 * A process group that gives back its memory and connections for a while: its world is closed, and opened again as another one. Since
 * peers use a world at any time, all ranks agree before one of them closes it. They do so through the store, where they meet again too:
 * what goes wrong there fails no communicator.
 */
#include <c10/util/ScopeExit.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "backend.hpp"
#include "engine.hpp"
#include "interpreter.hpp"

namespace commstream
{

namespace
{

std::chrono::milliseconds since(Clock::time_point start)
{
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
}

std::string failure_of(const World &world)
{
    (void)!comm_progress(world.get()); /* which learns of the death of ranks */
    comm_error detail;
    return error_of(world) != ErrorType::SUCCESS && world.failed(&detail) ? "the group has failed: " + world.text_of(detail.result) : "";
}

} // namespace

void Backend::leave_state(State state)
{
    std::lock_guard<std::mutex> hold(lock_);
    state_ = state;
}

/* What keeps this rank from closing its world; empty: nothing, and no work is in flight. */
std::string Backend::hindrance(const World &world, std::chrono::milliseconds limit)
{
    {
        std::lock_guard<std::mutex> hold(lock_);
        if (recorder_ || estimating_)
            return c10::str("a ", recorder_ ? "coalescing block" : "time estimate", " has begun; expected its end first");
    }
    if (comm_sync(world.get(), std::chrono::nanoseconds(limit).count()) == COMM_PENDING)
        return c10::str("work is not complete after ", limit.count(), " ms; expected that all work ends within the timeout");
    world.engine()->settle(world);
    std::string failure = failure_of(world);
    return failure.empty() ? world.in_use() : failure;
}

void Backend::suspend()
{
    Unlocked interpreter;
    Clock::time_point start = Clock::now();
    std::shared_ptr<World> old;
    std::chrono::milliseconds limit;
    {
        std::lock_guard<std::mutex> hold(lock_);
        check_open("suspend");
        state_ = State::changing;
        old = world_;
        limit = timeout_;
    }
    auto undo = c10::make_scope_exit([this] { leave_state(State::open); });
    std::string against = hindrance(*old, limit);
    auto store = c10::make_intrusive<c10d::PrefixStore>("commstream/" + old->name(), store_);
    auto agreement = std::make_unique<Agreement>(c10::make_intrusive<c10d::PrefixStore>("suspend", store), rank_, size_);
    Vote vote{against, old->sent, old->received};
    /* Another rank may wait for its work as long as this one has. */
    std::string refusal = agreement->reach(vote, 2 * limit - since(start), [&] { return failure_of(*old); });
    TORCH_CHECK(refusal.empty(), "commstream: suspend of ", group(), ": ", refusal, "; no rank is suspended");
    undo.release();
    {
        std::lock_guard<std::mutex> hold(lock_);
        suspended_ = {std::move(agreement), c10::make_intrusive<c10d::PrefixStore>("resume", store), old->deadline()};
        world_ = nullptr;
        state_ = State::suspended;
    }
    old->retire();
}

/* It may be called again after an error, and is as it was then. */
void Backend::resume()
{
    Unlocked interpreter;
    {
        std::lock_guard<std::mutex> hold(lock_);
        TORCH_CHECK(state_ == State::suspended, "commstream: resume: ", group(),
                    state_ == State::changing ? " is being suspended or resumed by another thread"
                                              : " is not suspended; expected suspend() first");
        state_ = State::changing;
    }
    auto undo = c10::make_scope_exit([this] { leave_state(State::suspended); });
    auto next = std::make_shared<World>(suspended_.store, rank_, size_, suspended_.deadline, device_, true);
    suspended_.agreement->forget();
    undo.release();
    replace_world(next);
}

} // namespace commstream
