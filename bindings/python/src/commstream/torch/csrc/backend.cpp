#include "backend.hpp"

#include <cstdio>
#include <utility>

#include "engine.hpp"
#include "meeting.hpp"

namespace commstream
{

namespace
{

comm_result record_group(comm_communicator *c, comm_request *request, const std::vector<Call> &calls)
{
    comm_communicator *recorder;
    comm_result result = comm_group_begin(c, &recorder);
    for (size_t i = 0; result == COMM_OK && i < calls.size(); i++)
        (void)!calls[i].run(recorder, nullptr); /* A refused call is told at the end. */
    return result == COMM_OK ? comm_group_end(recorder, request) : result;
}

/* Waits while the queue is full. A group that is longer than the queue is refused. */
comm_result issue_group(comm_communicator *c, comm_request *request, const std::vector<Call> &calls)
{
    comm_result result;
    bool empty = false;
    while ((result = record_group(c, request, calls)) == COMM_ERR_FULL && !empty) {
        (void)!comm_progress(c);
        empty = comm_sync(c, 0) == COMM_OK;
    }
    return result;
}

/* A name that no other rank has. Names are ordered as their ranks. */
std::string unique_name(int rank)
{
    char text[16];
    snprintf(text, sizeof text, "%010d-", rank);
    return text + random_word();
}

} // namespace

Backend::Backend(const StorePtr &store, int rank, int size, std::chrono::milliseconds timeout, const std::string &device)
    : Backend(store, rank, size, std::make_shared<World>(store, rank, size, timeout, device), timeout, device)
{
}

Backend::Backend(const StorePtr &store, int rank, int size, std::shared_ptr<World> world, std::chrono::milliseconds timeout,
                 std::string device)
    : c10d::Backend(rank, size), store_(store), device_(std::move(device)), world_(std::move(world)), timeout_(timeout),
      handle_(unique_name(rank))
{
    if (world_)
        world_->hooks = hooks_;
    init();
}

std::string Backend::group() const
{
    if (getGroupUid().empty())
        return "the process group";
    return "process group " + getGroupUid();
}

void Backend::check_open(const char *name) const
{
    if (state_ == State::open && world_)
        return;
    std::string who = c10::str("commstream: ", name, *name ? ": " : "", group());
    TORCH_CHECK(state_ != State::suspended, who, " is suspended; expected resume() on all of its ranks first");
    TORCH_CHECK(state_ == State::open, who, " is being suspended or resumed by another thread");
    TORCH_CHECK(false, who, " has no world: it was shut down, or reconfigure() comes first");
}

std::shared_ptr<World> Backend::world(const char *name)
{
    std::lock_guard<std::mutex> hold(lock_);
    check_open(name);
    return world_;
}

Dropped::~Dropped()
{
    if (block)
        block->give_up("a call in the coalescing block was refused, an exception left the block, or the process group was shut down; "
                       "nothing of it is started");
}

std::shared_ptr<Operation> Backend::begin(const char *name, std::chrono::milliseconds timeout)
{
    Dropped dropped;
    std::lock_guard<std::mutex> hold(lock_);
    check_open(name);
    if (recorder_ && block_->calling)
        drop_block(dropped);
    if (recorder_)
        block_->calling = true;
    auto begun = std::make_shared<Operation>(world_, name, timeout.count() > 0 ? std::min(timeout, world_->deadline()) : timeout_);
    if (!recorder_)
        begun->extend(extensions_);
    return begun;
}

/* What is called when an operation ends may use the process group, so the lock is not held then. */
WorkPtr Backend::start(c10d::OpType type, std::shared_ptr<Operation> operation, bool async, const std::vector<Call> &calls,
                       at::TensorList shown)
{
    Dropped dropped;
    {
        std::lock_guard<std::mutex> hold(lock_);
        check_open(operation->name.c_str());
        if (!operation->message)
            operation->sequence = ++sequence_;
        if (recorder_ && !estimating_)
            return record(type, operation, calls, dropped);
        operation->report.begin(type, shown, hooks_->timing);
        if (!estimating_) {
            issue(*operation, calls);
        } else {
            estimate(calls, *operation);
            operation->after.clear(); /* there are no results to copy */
        }
        if (recorder_)
            block_->calling = false;
    }
    auto work = c10::make_intrusive<Work>(operation, rank_, type);
    if (!operation->request.comm) /* nothing was issued */
        operation->settle(COMM_OK);
    /* A caller that waits at once needs no thread, with hooks either: it calls them, or else whoever the work is left to. */
    else if (async && !operation->complete())
        operation->adopt();
    return work;
}

/* The lock is held. */
void Backend::issue(Operation &operation, const std::vector<Call> &calls)
{
    comm_communicator *c = operation.world->get();
    if (operation.on_device())
        operation.follow_stream(c);
    comm_result result = COMM_OK;
    if (calls.size() == 1)
        result = until_queued(c, [&] { return calls.front().run(c, &operation.request); });
    else if (!calls.empty())
        result = issue_group(c, &operation.request, calls);
    operation.world->check(result, operation.name);
    operation.world->sent += operation.sends;
}

WorkPtr Backend::record(c10d::OpType type, const std::shared_ptr<Operation> &operation, const std::vector<Call> &calls, Dropped &dropped)
{
    if (operation->place)
        block_->use(*operation->place);
    if (operation->on_device())
        operation->follow_stream(operation->world->get());
    for (const Call &call : calls) {
        comm_result result = call.run(recorder_, nullptr);
        if (result == COMM_OK)
            continue;
        drop_block(dropped);
        operation->world->check(result, operation->name);
    }
    block_->absorb(*operation);
    block_calls_.insert(block_calls_.end(), calls.begin(), calls.end());
    block_->calling = false;
    return c10::make_intrusive<Work>(block_, rank_, type, operation->key);
}

bool Backend::in_block()
{
    std::lock_guard<std::mutex> hold(lock_);
    return recorder_ != nullptr;
}

bool Backend::in_estimate()
{
    std::lock_guard<std::mutex> hold(lock_);
    return estimating_;
}

/* A recorder must be ended. The call that the library refuses makes sure that nothing of the group is started. */
void Backend::drop_block(Dropped &dropped)
{
    comm_request none;
    (void)!comm_broadcast(recorder_, nullptr, 1, COMM_U8, -1, nullptr);
    (void)!comm_group_end(recorder_, &none);
    recorder_ = nullptr;
    dropped.block = std::move(block_);
    block_ = nullptr;
    dropped.calls.swap(block_calls_);
}

Backend::~Backend()
{
    dropCoalescing();
}

void Backend::dropCoalescing()
{
    Dropped dropped;
    std::lock_guard<std::mutex> hold(lock_);
    if (recorder_)
        drop_block(dropped);
}

/* Blocks do not nest: one that is still there was left by an exception. */
void Backend::startCoalescing()
{
    dropCoalescing();
    auto block = begin("coalesced", c10d::kUnsetTimeout);
    std::lock_guard<std::mutex> hold(lock_);
    TORCH_CHECK(!recorder_, "commstream: startCoalescing inside of a coalescing block");
    world_->check(comm_group_begin(world_->get(), &recorder_), "startCoalescing");
    block_ = block;
    block_->recorded = true;
}

WorkPtr Backend::endCoalescing()
{
    auto block = start_block();
    auto work = c10::make_intrusive<Work>(block, rank_, c10d::OpType::COALESCED);
    if (!block->complete())
        block->adopt();
    return work;
}

/* An end that finds the queue full has consumed the recorder, so the calls are recorded again. */
std::shared_ptr<Operation> Backend::start_block()
{
    Dropped dropped;
    std::lock_guard<std::mutex> hold(lock_);
    if (!recorder_)
        check_open("endCoalescing");
    TORCH_CHECK(recorder_, "commstream: endCoalescing without startCoalescing");
    if (block_->calling) {
        drop_block(dropped);
        TORCH_CHECK_VALUE(false, "commstream: endCoalescing: a call in the block was refused, so nothing of the block is started");
    }
    block_->report.begin(c10d::OpType::COALESCED, block_->keep, hooks_->timing);
    comm_communicator *recorder = std::exchange(recorder_, nullptr), *c = world_->get();
    auto block = std::move(block_);
    block_ = nullptr;
    dropped.calls.swap(block_calls_);
    comm_result result = comm_group_end(recorder, &block->request);
    if (result == COMM_ERR_FULL)
        result = issue_group(c, &block->request, dropped.calls);
    if (result != COMM_OK)
        dropped.block = block;
    world_->check(result, block->name);
    world_->sent += block->sends;
    block->recorded = false;
    return block;
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

/* The longest timeout of a work: the library's deadline is fixed when a world opens. The lock is held. */
std::chrono::milliseconds Backend::longest_timeout(std::chrono::milliseconds without_world) const
{
    if (world_)
        return world_->deadline();
    return state_ == State::suspended ? suspended_.deadline : without_world;
}

void Backend::setTimeout(std::chrono::milliseconds timeout)
{
    std::lock_guard<std::mutex> hold(lock_);
    auto most = longest_timeout(timeout);
    TORCH_CHECK_VALUE(timeout.count() > 0 && timeout <= most, "commstream: timeout of ", timeout.count(), " ms; expected 1 to ",
                      most.count(), ", the timeout that the process group was made with");
    timeout_ = timeout;
}

void Backend::addEphemeralTimeout(const std::chrono::milliseconds &more)
{
    TORCH_CHECK_VALUE(more.count() >= 0, "commstream: ephemeral timeout of ", more.count(), " ms; expected 0 or more");
    extensions_->add(more);
    std::unique_lock<std::mutex> hold(lock_);
    auto usual = timeout_, most = longest_timeout(usual);
    hold.unlock();
    if (usual + more > most)
        TORCH_WARN("commstream: ", group(), ": ephemeral timeout of ", more.count(), " ms after ", usual.count(),
                   " ms; a work has at most ", most.count(), " ms, the timeout that the process group was made with");
}

ErrorType error_of(const World &world)
{
    comm_error detail;
    if (!world.failed(&detail))
        return ErrorType::SUCCESS;
    switch (detail.result) {
    case COMM_ERR_TIMEOUT:
        return ErrorType::TIMEOUT;
    case COMM_ERR_PEER:
    case COMM_ERR_ABORTED:
    case COMM_ERR_CLOSED:
        return ErrorType::REMOTE_ERROR;
    case COMM_ERR_ARGUMENT:
    case COMM_ERR_UNSUPPORTED:
    case COMM_ERR_STATE:
    case COMM_ERR_FULL:
        return ErrorType::SUCCESS; /* a refused call: nothing has failed */
    default:
        return ErrorType::COMM_ERROR;
    }
}

bool Backend::is_suspended()
{
    std::lock_guard<std::mutex> hold(lock_);
    return state_ == State::suspended;
}

ErrorType Backend::getError()
{
    return is_suspended() ? ErrorType::SUCCESS : error_of(*world());
}

/* A suspended group has no peers that could hear of it. It ends. */
void Backend::abort()
{
    hooks_->aborting();
    if (is_suspended())
        shutdown();
    else
        world()->abort(1);
}

void Backend::shutdown()
{
    replace_world(nullptr);
}

bool Backend::isInitialized()
{
    std::lock_guard<std::mutex> hold(lock_);
    return world_ != nullptr;
}

/* Of this rank, those that were dropped too. What they copy to tensors that are not dense has then been copied. */
void Backend::waitForPendingWorks()
{
    auto all = world();
    all->check(comm_sync(all->get(), COMM_FOREVER), "waitForPendingWorks");
    all->engine()->settle(*all);
}

std::unordered_map<std::string, uint64_t> Backend::getMemoryStats()
{
    if (is_suspended())
        return {{"memory_bytes", 0}};
    auto all = world();
    comm_info info{};
    info.size = sizeof info;
    all->check(comm_describe(all->get(), &info), "getMemoryStats");
    return {{"memory_bytes", info.memory_bytes}};
}

/* A block of the old world ends with it: its recorder is not valid after the close. */
void Backend::replace_world(std::shared_ptr<World> next)
{
    {
        Dropped dropped;
        std::lock_guard<std::mutex> hold(lock_);
        if (recorder_)
            drop_block(dropped);
        world_.swap(next);
        state_ = State::open;
        if (world_)
            world_->hooks = hooks_;
    }
    if (next)
        next->retire();
}

/* Collectives between start and end are priced and not made: the outputs keep what is in them. */
void Backend::startTimeEstimate()
{
    std::lock_guard<std::mutex> hold(lock_);
    TORCH_CHECK(!estimating_ && !recorder_, "commstream: startTimeEstimate inside of an estimate or a coalescing block");
    estimating_ = true;
    estimate_ns_ = 0;
}

/* In microseconds. */
float Backend::endTimeEstimate()
{
    std::lock_guard<std::mutex> hold(lock_);
    TORCH_CHECK(estimating_, "commstream: endTimeEstimate without startTimeEstimate");
    estimating_ = false;
    return static_cast<float>(estimate_ns_ / 1000);
}

void Backend::estimate(const std::vector<Call> &calls, const Operation &operation)
{
    for (const Call &call : calls) {
        TORCH_CHECK_NOT_IMPLEMENTED(call.collective, "commstream: the time of ", operation.name,
                                    " with these arguments cannot be estimated");
        comm_call query{};
        query.size = sizeof query;
        query.collective = call.collective;
        query.n = call.n;
        query.type = call.type;
        query.op = call.op;
        query.root = call.root;
        int64_t ns;
        operation.world->check(comm_predict(operation.world->get(), &query, nullptr, nullptr, &ns), operation.name);
        estimate_ns_ += static_cast<double>(ns);
    }
}

void Backend::enableCollectivesTiming()
{
    hooks_->timing = true;
}

void Backend::registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)> &&hook)
{
    hooks_->set_reporter(std::move(hook));
}

#ifdef C10D_BACKEND_HAS_HOOKS
void Backend::registerAbortHook(int64_t id, c10d::AbortHook hook)
{
    hooks_->add_abort(id, std::move(hook));
}

void Backend::unregisterAbortHook(int64_t id)
{
    hooks_->remove_abort(id);
}

void Backend::registerCompletionHook(int64_t id, c10d::CompletionHook hook)
{
    hooks_->add_completion(id, [hook = std::move(hook)](uint64_t key) {
        c10d::CompletionHookArgs args;
        args.completionKey = key;
        hook(args);
    });
}

void Backend::unregisterCompletionHook(int64_t id)
{
    hooks_->remove_completion(id);
}
#endif

void Backend::check_root(int64_t root, const char *name) const
{
    TORCH_CHECK_VALUE(root >= 0 && root < size_, "commstream: ", name, ": root ", root, "; expected 0 to ", size_ - 1);
}

void Backend::check_size(size_t given, size_t expected, const char *name, const char *what) const
{
    TORCH_CHECK_VALUE(given == expected, "commstream: ", name, ": ", given, " ", what, "; expected ", expected);
}

} // namespace commstream
