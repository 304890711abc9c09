#include "backend.hpp"

#include "engine.hpp"

namespace commstream
{

namespace
{

comm_result issue(comm_communicator *c, comm_communicator *engine, comm_request *request, const Call &call)
{
    comm_result result;
    while ((result = call(c, request)) == COMM_ERR_FULL)
        (void)!comm_progress(engine);
    return result;
}

comm_result issue_group(comm_communicator *c, comm_request *request, const std::vector<Call> &calls)
{
    comm_communicator *recorder;
    comm_result result = comm_group_begin(c, &recorder);
    for (size_t i = 0; result == COMM_OK && i < calls.size(); i++)
        (void)!calls[i](recorder, nullptr); /* A refused call is told at the end. */
    return result == COMM_OK ? comm_group_end(recorder, request) : result;
}

} // namespace

Backend::Backend(const StorePtr &store, int rank, int size, std::chrono::milliseconds timeout)
    : Backend(store, std::make_shared<World>(store, rank, size, timeout), timeout)
{
}

Backend::Backend(const StorePtr &store, std::shared_ptr<World> world, std::chrono::milliseconds timeout)
    : c10d::Backend(comm_rank(world->get()), world->size()), store_(store), world_(std::move(world)), timeout_(timeout)
{
    init();
}

std::shared_ptr<World> Backend::world()
{
    std::lock_guard<std::mutex> hold(lock_);
    TORCH_CHECK(world_, "commstream: the process group was shut down");
    return world_;
}

std::shared_ptr<Operation> Backend::begin(const char *name, std::chrono::milliseconds timeout)
{
    std::lock_guard<std::mutex> hold(lock_);
    TORCH_CHECK(world_, "commstream: ", name, ": the process group was shut down");
    return std::make_shared<Operation>(world_, name, timeout.count() > 0 ? std::min(timeout, world_->deadline()) : timeout_);
}

WorkPtr Backend::start(c10d::OpType type, std::shared_ptr<Operation> operation, bool async, const std::vector<Call> &calls)
{
    std::lock_guard<std::mutex> hold(lock_);
    comm_communicator *c = operation->world->get();
    if (!operation->message)
        operation->sequence = ++sequence_;
    if (recorder_)
        return record(type, operation, calls);
    comm_request *request = &operation->request;
    comm_result result = COMM_OK;
    if (calls.size() == 1)
        result = issue(c, c, request, calls.front());
    else if (!calls.empty())
        result = issue(c, c, request, [&](comm_communicator *group, comm_request *r) { return issue_group(group, r, calls); });
    operation->world->check(result, operation->name);
    auto work = c10::make_intrusive<Work>(operation, rank_, type);
    if (async && !operation->complete())
        operation->adopt();
    return work;
}

WorkPtr Backend::record(c10d::OpType type, const std::shared_ptr<Operation> &operation, const std::vector<Call> &calls)
{
    for (const Call &call : calls) {
        comm_result result = call(recorder_, nullptr);
        if (result == COMM_OK)
            continue;
        /* The block cannot run any more; without this, later calls would be recorded too. */
        comm_request none;
        (void)!comm_group_end(recorder_, &none);
        recorder_ = nullptr;
        block_ = nullptr;
        operation->world->check(result, operation->name);
    }
    block_->absorb(*operation);
    return c10::make_intrusive<Work>(block_, rank_, type);
}

void Backend::startCoalescing()
{
    auto block = begin("coalesced", c10d::kUnsetTimeout);
    std::lock_guard<std::mutex> hold(lock_);
    TORCH_CHECK(!recorder_, "commstream: startCoalescing inside of a coalescing block");
    world_->check(comm_group_begin(world_->get(), &recorder_), "startCoalescing");
    block_ = block;
    block_->recorded = true;
}

WorkPtr Backend::endCoalescing()
{
    std::lock_guard<std::mutex> hold(lock_);
    TORCH_CHECK(recorder_, "commstream: endCoalescing without startCoalescing");
    comm_communicator *recorder = recorder_;
    auto block = std::move(block_);
    recorder_ = nullptr;
    block_ = nullptr;
    comm_result result = comm_group_end(recorder, &block->request);
    block->recorded = false;
    world_->check(result, block->name);
    auto work = c10::make_intrusive<Work>(block, rank_, c10d::OpType::COALESCED);
    if (!block->complete())
        block->adopt();
    return work;
}

OptionsPtr Backend::getBackendOptions()
{
    std::lock_guard<std::mutex> hold(lock_);
    return c10::make_intrusive<Options>("commstream", timeout_);
}

uint64_t Backend::getSequenceNumberForGroup()
{
    std::lock_guard<std::mutex> hold(lock_);
    return sequence_;
}

void Backend::setTimeout(std::chrono::milliseconds timeout)
{
    std::lock_guard<std::mutex> hold(lock_);
    TORCH_CHECK_VALUE(timeout.count() > 0 && (!world_ || timeout <= world_->deadline()), "commstream: timeout of ", timeout.count(),
                      " ms; expected 1 to ", world_ ? world_->deadline().count() : 0, ", the timeout that the process group was made with");
    timeout_ = timeout;
}

c10d::ErrorType Backend::getError()
{
    comm_error detail;
    if (!world()->failed(&detail))
        return c10d::ErrorType::SUCCESS;
    switch (detail.result) {
    case COMM_ERR_TIMEOUT:
        return c10d::ErrorType::TIMEOUT;
    case COMM_ERR_PEER:
    case COMM_ERR_ABORTED:
    case COMM_ERR_CLOSED:
        return c10d::ErrorType::REMOTE_ERROR;
    case COMM_ERR_ARGUMENT:
    case COMM_ERR_UNSUPPORTED:
    case COMM_ERR_STATE:
    case COMM_ERR_FULL:
        return c10d::ErrorType::SUCCESS; /* a refused call: nothing has failed */
    default:
        return c10d::ErrorType::COMM_ERROR;
    }
}

void Backend::abort()
{
    world()->abort(1);
}

void Backend::shutdown()
{
    std::shared_ptr<World> world;
    {
        std::lock_guard<std::mutex> hold(lock_);
        world = std::move(world_);
        world_ = nullptr;
    }
    if (world)
        world->close(COMM_DEFAULT_TIMEOUT);
}

void Backend::check_root(int64_t root, const char *name) const
{
    TORCH_CHECK_VALUE(root >= 0 && root < size_, "commstream: ", name, ": root ", root, "; expected 0 to ", size_ - 1);
}

void Backend::check_size(size_t given, size_t expected, const char *name, const char *what) const
{
    TORCH_CHECK_VALUE(given == expected, "commstream: ", name, ": ", given, " ", what, "; expected ", expected);
}

} // namespace commstream
