#include "world.hpp"

#include <c10/util/Exception.h>

#include "device.hpp"
#include "engine.hpp"
#include "interpreter.hpp"
#include "meeting.hpp"
#include "operation.hpp"

namespace commstream
{

World::World(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, std::chrono::milliseconds timeout, std::string device,
             bool again)
    : device_(std::move(device)), engine_(Engine::with_room()), size_(size), deadline_(timeout)
{
    open(store, rank, again);
    engine_->enlist(communicator_);
}

World::World(const World &parent, comm_communicator *made, const std::string &name)
    : name_(parent.name_ + "/" + name), siblings_(parent.children_), device_(parent.device_), engine_(parent.engine_), communicator_(made),
      size_(comm_size(made)), deadline_(parent.deadline_)
{
    ++*siblings_;
    engine_->enlist(communicator_);
}

void World::open(const c10::intrusive_ptr<c10d::Store> &store, int rank, bool again)
{
    char text[1024] = "";
    load_driver();
    Meeting meeting(store, rank, size_, deadline_);
    meeting.open();
    name_ = meeting.attempt();
    comm_config config{};
    config.size = sizeof config;
    config.rank = rank;
    config.device = device_.empty() ? nullptr : device_.c_str();
    config.ranks = size_;
    config.exchange = Meeting::exchange;
    config.exchange_arg = &meeting;
    config.engine_of = engine_->member();
    config.progress = COMM_PROGRESS_CALLER;
    config.open_timeout_ns = config.operation_timeout_ns = std::chrono::nanoseconds(deadline_).count();
    config.error_text = text;
    config.error_text_bytes = sizeof text;
    comm_result result = comm_open(&config, &communicator_);
    if (result != COMM_OK)
        C10_THROW_ERROR(DistBackendError, c10::str("commstream: open of rank ", rank, " of ", size_, ": ", comm_result_name(result), ": ",
                                                   text, meeting.error().empty() ? "" : "; the store: ", meeting.error()));
    if (again)
        end_meeting(meeting);
}

/* Behind a barrier all ranks have opened the world, and have read what the others told. */
void World::end_meeting(Meeting &meeting)
{
    comm_request request;
    comm_result result = comm_barrier(communicator_, &request);
    if (result == COMM_OK)
        result = comm_wait(request, COMM_FOREVER);
    if (result != COMM_OK) {
        std::string text = text_of(result);
        comm_close(communicator_, COMM_DEFAULT_TIMEOUT);
        C10_THROW_ERROR(DistBackendError, c10::str("commstream: not all ranks have opened the world: ", text));
    }
    meeting.forget();
}

World::~World()
{
    close();
}

comm_communicator *World::get() const
{
    std::lock_guard<std::mutex> hold(lock_);
    TORCH_CHECK(communicator_ && !retired_, "commstream: the process group was shut down or suspended");
    return communicator_;
}

void World::retire()
{
    {
        std::lock_guard<std::mutex> hold(lock_);
        retired_ = true;
        if (holds_)
            return;
    }
    close();
}

void World::close()
{
    comm_communicator *c;
    {
        std::lock_guard<std::mutex> hold(lock_);
        c = communicator_;
        communicator_ = nullptr;
    }
    if (!c)
        return;
    engine_->leave(c);
    drop_kept(comm_close(c, COMM_DEFAULT_TIMEOUT));
    if (siblings_)
        --*siblings_;
    scratch.clear();
}

/* The library may use them for ever if it could not end all work. They are never freed then. */
void World::drop_kept(comm_result closed)
{
    std::vector<at::Tensor> kept;
    {
        std::lock_guard<std::mutex> hold(lock_);
        closed_ = closed;
        kept.swap(kept_);
    }
    if (closed != COMM_OK)
        new std::vector<at::Tensor>(std::move(kept));
}

void World::keep(const std::vector<at::Tensor> &tensors)
{
    std::lock_guard<std::mutex> hold(lock_);
    if (!closed_)
        kept_.insert(kept_.end(), tensors.begin(), tensors.end());
    else if (closed_ != COMM_OK)
        new std::vector<at::Tensor>(tensors);
}

/* After the close the library does not tell. */
void World::keep_held(comm_request request, const std::vector<at::Tensor> &tensors)
{
    comm_request_info info{};
    info.size = sizeof info;
    if (comm_describe_request(request, &info) != COMM_OK || info.flags & COMM_INFO_BUFFERS_HELD)
        keep(tensors);
}

std::string World::in_use() const
{
    std::lock_guard<std::mutex> hold(lock_);
    if (holds_)
        return c10::str(holds_, " windows, shared tensors or tensors in its memory are in use; expected that they are freed first");
    if (*children_)
        return c10::str(*children_, " process groups that shrink() made of it are open; expected suspend() or shutdown() of them first");
    return "";
}

Hold::Hold(std::shared_ptr<World> world) : world_(std::move(world))
{
    std::lock_guard<std::mutex> hold(world_->lock_);
    world_->holds_++;
}

Hold::~Hold()
{
    bool last;
    {
        std::lock_guard<std::mutex> hold(world_->lock_);
        last = --world_->holds_ == 0 && world_->retired_;
    }
    if (last)
        world_->close();
}

void World::abort(int32_t code)
{
    std::lock_guard<std::mutex> hold(lock_);
    if (communicator_)
        comm_abort(communicator_, code);
}

bool World::failed(comm_error *detail) const
{
    *detail = {};
    detail->size = sizeof *detail;
    std::lock_guard<std::mutex> hold(lock_);
    return communicator_ && comm_error_detail(communicator_, detail) == COMM_OK && detail->result != COMM_OK;
}

void World::check(comm_result result, const std::string &name) const
{
    if (result == COMM_OK)
        return;
    std::string text = c10::str("commstream: ", name, ": ", result == COMM_ERR_TIMEOUT ? "Timed out : " : "", text_of(result));
    if (result == COMM_ERR_ARGUMENT || result == COMM_ERR_UNSUPPORTED || result == COMM_ERR_STATE)
        TORCH_CHECK(false, text);
    C10_THROW_ERROR(DistBackendError, text);
}

std::string World::text_of(comm_result result) const
{
    comm_error detail;
    std::string name = comm_result_name(result), text = failed(&detail) && detail.result == result ? detail.text : comm_result_text(result);
    return text.compare(0, name.size(), name) == 0 ? text : name + ": " + text;
}

comm_info World::describe() const
{
    comm_info info{};
    info.size = sizeof info;
    check(comm_describe(get(), &info), "describe");
    return info;
}

bool World::sees_devices() const
{
    return describe().device_buffers;
}

bool World::in_device_order() const
{
    return describe().device_order;
}

void World::late(const Operation &operation, std::chrono::milliseconds limit) const
{
    C10_THROW_ERROR(DistBackendError, c10::str("commstream: ", operation.name, " number ", operation.sequence, " is not complete after ",
                                               limit.count(), " ms; it goes on, and its tensors are in use until it ends"));
}

void World::ended(const Operation &operation, bool success) const
{
    if (!hooks)
        return;
    hooks->report(operation);
    comm_error detail;
    if (success) {
        hooks->completed(operation.key);
        for (uint64_t part : operation.parts)
            hooks->completed(part);
    } else if (failed(&detail))
        hooks->aborting();
}

/* Waits for one that another thread runs. */
template <class Some> void Hooks::remove(Some &hooks, int64_t id)
{
    Unlocked interpreter;
    typename Some::node_type gone;
    std::lock_guard<std::recursive_mutex> alone(running_);
    std::lock_guard<std::mutex> hold(lock_);
    gone = hooks.extract(id);
}

void Hooks::add_completion(int64_t id, std::function<void(uint64_t)> hook)
{
    std::lock_guard<std::mutex> hold(lock_);
    completion_[id] = std::move(hook);
}

void Hooks::remove_completion(int64_t id)
{
    remove(completion_, id);
}

void Hooks::add_abort(int64_t id, std::function<void()> hook)
{
    std::lock_guard<std::mutex> hold(lock_);
    abort_[id] = std::move(hook);
}

void Hooks::remove_abort(int64_t id)
{
    remove(abort_, id);
}

bool Hooks::empty() const
{
    std::lock_guard<std::mutex> hold(lock_);
    return completion_.empty() && abort_.empty() && !reporter_;
}

void Hooks::set_reporter(std::function<void(std::shared_ptr<c10d::WorkInfo>)> hook)
{
    std::lock_guard<std::mutex> hold(lock_);
    TORCH_CHECK(!reporter_, "commstream: registerOnCompletionHook: there is one already; expected one for a process group");
    reporter_ = std::move(hook);
    timing = true;
}

/* What a hook raises may not stop whoever completes the work. */
template <class Hook, class... Values> void Hooks::run(const Hook &hook, const Values &...values)
{
    try {
        hook(values...);
    } catch (const std::exception &e) {
        TORCH_WARN("commstream: a hook of the process group raised: ", e.what());
    }
}

/* Others may be added meanwhile. */
template <class Some> Some Hooks::copy_of(const Some &hooks) const
{
    std::lock_guard<std::mutex> hold(lock_);
    return hooks;
}

void Hooks::report(const Operation &operation) const
{
    if (!timing)
        return;
    Unlocked interpreter;
    std::lock_guard<std::recursive_mutex> alone(running_);
    auto hook = copy_of(reporter_);
    if (hook && operation.report.timed())
        run(hook, operation.report.info(operation.sequence));
}

void Hooks::completed(uint64_t key) const
{
    if (empty())
        return;
    Unlocked interpreter;
    std::lock_guard<std::recursive_mutex> alone(running_);
    for (const auto &hook : copy_of(completion_))
        run(hook.second, key);
}

void Hooks::aborting() const
{
    Unlocked interpreter;
    std::lock_guard<std::recursive_mutex> alone(running_);
    for (const auto &hook : copy_of(abort_))
        run(hook.second);
}

} // namespace commstream
